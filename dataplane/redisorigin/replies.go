package redisorigin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane"
)

// addError marks the error of a call as dataplane.ErrMaybeApplied, unless it is
// certain that nothing was applied.
func addError(err error) error {
	if neverSent(err) || refused(err) {
		return err
	}
	return fmt.Errorf("%w: %w", dataplane.ErrMaybeApplied, err)
}

// neverSent reports whether the call failed for want of a connection. ctx's own
// errors are among these: once a command is being written, the end of ctx's time
// shows as the timeout of a read or a write.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" ||
		errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, redis.ErrPoolTimeout) ||
		errors.Is(err, redis.ErrPoolExhausted) ||
		errors.Is(err, redis.ErrClosed)
}

// refused reports whether the server answered, and with an error: LOADING, READONLY,
// MOVED, NOAUTH and the like. It then ran nothing, as the scripts do not fail once
// they have written.
func refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// parseCount reads a stored total: an integer >= 0 as Redis itself writes it.
func parseCount(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, false
	}
	return n, true
}

// count is the total that a value stands for, 0 if it is no count.
func (o *Origin) count(key string, value any) int64 {
	s, _ := value.(string)
	n, ok := parseCount(s)
	if !ok {
		o.garbage.Add(1)
		o.garbageOnce.Do(func() {
			o.logger.Error("a value at the origin is no count and is read as 0; further ones are only counted", "key", key)
		})
	}
	return n
}
