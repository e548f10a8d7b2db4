package node

import (
	"context"
	"errors"
	"os"

	"connectrpc.com/connect"
)

// boundMessages is connect's own bound, for streams: bodies of calls are within theirs before
// connect sees them.
func boundMessages() connect.HandlerOption {
	return connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
		return []connect.HandlerOption{connect.WithReadMaxBytes(int(routeOf(spec.Procedure).Bytes))}
	})
}

// bodyCode says whose fault it is that a body ends early. Left to itself connect would answer 500
// to one that breaks off.
func bodyCode(err error) connect.Code {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	}
	return connect.CodeInvalidArgument
}
