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

// bodyCode returns the code for a body that ends early. Without it, connect would answer 500 if the body breaks off.
func bodyCode(err error) connect.Code {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	}
	return connect.CodeInvalidArgument
}
