package redisorigin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/redisclient"
)

// notApplied marks the error of a command as store.ErrNotApplied if it is certain that nothing was applied.
func notApplied(err error) error {
	if neverSent(err) || refused(err) {
		return fmt.Errorf("%w: %w", store.ErrNotApplied, err)
	}
	return err
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
		errors.As(err, new(*redisclient.HandshakeError)) ||
		errors.As(err, new(*FileError)) // no password, no connection
}

// refused reports whether the server answered, and with an error: LOADING, READONLY,
// MOVED, NOAUTH and the like. It then ran nothing, as the scripts do not fail once
// they have written.
func refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// replyOf separates replies from errors more exactly than go-redis. A command that was answered before the connection
// broke has both. A command that was not sent because the server refused the connection (for example, for a wrong
// password) has neither, and only the pipeline has the error.
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

// parseCount reads a stored count: an integer >= 0 as Redis itself writes it.
func parseCount(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, false
	}
	return n, true
}
