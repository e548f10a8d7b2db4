package redisorigin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
)

// sendError marks the error of a call that increments as store.ErrMaybeApplied, unless it is
// certain that nothing was applied.
func sendError(err error) error {
	if neverSent(err) || refused(err) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrMaybeApplied, err)
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
		errors.Is(err, redis.ErrClosed) ||
		errors.As(err, new(*handshakeError)) ||
		errors.As(err, new(*FileError)) // no password, no connection
}

// refused reports whether the server answered, and with an error: LOADING, READONLY,
// MOVED, NOAUTH and the like. It then ran nothing, as the scripts do not fail once
// they have written.
func refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// replyOf tells replies from errors as go-redis does not quite: a command that was
// answered before the connection broke has both, and one that was not sent because
// the server refused the connection (a wrong password, say) has neither, and only
// the pipeline has the error.
func replyOf(cmd *redis.Cmd, pipelineErr error) (any, error) {
	reply, err := cmd.Val(), cmd.Err()
	switch list, isList := reply.([]any); {
	case reply != nil && (!isList || len(list) > 0):
		return reply, nil
	case err != nil:
		return nil, err
	case pipelineErr != nil:
		return nil, pipelineErr
	}
	return nil, errNoReply
}

var errNoReply = errors.New("no reply")

// addedOf reads one answer of addScript.
func addedOf(reply any) store.Added {
	total, err := totalOf(reply)
	return store.Added{Total: total, Err: err}
}

// claimedOf reads one answer of claimScript.
func claimedOf(reply any) store.Claimed {
	pair, _ := reply.([]any)
	if len(pair) != 2 {
		_, err := totalOf(reply) // an error, or something that is none of the script's
		if err == nil {
			err = strangeReply(reply)
		}
		return store.Claimed{Err: err}
	}
	total, err := totalOf(pair[0])
	switch added := pair[1]; {
	case err != nil:
		return store.Claimed{Err: err}
	case added == int64(0), added == int64(1):
		return store.Claimed{Total: total, Added: added == int64(1)}
	}
	return store.Claimed{Err: strangeReply(reply)}
}

// totalOf reads a total, or the error that stands in its place.
func totalOf(v any) (int64, error) {
	switch v := v.(type) {
	case int64:
		return v, nil
	case string:
		if n, ok := parseCount(v); ok {
			return n, nil
		}
	case error:
		return 0, fmt.Errorf("redisorigin: increment: %w", v)
	}
	return 0, strangeReply(v)
}

// strangeReply says nothing about what was applied.
func strangeReply(v any) error {
	return fmt.Errorf("%w: redisorigin: increment: the reply is %.100q", store.ErrMaybeApplied, fmt.Sprint(v))
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
func (l *layout) count(key string, value any) int64 {
	s, _ := value.(string)
	n, ok := parseCount(s)
	if !ok {
		l.garbage.Add(1)
		l.garbageOnce.Do(func() {
			l.logger.Error("a value at the origin is no count and is read as 0; further ones are only counted", "key", key)
		})
	}
	return n
}
