package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// Bounds of a body, framing included, and of the message it decompresses to. The
// longest names, every byte of them escaped as \u00xx, make 4.4 KB a request in JSON.
const (
	bodyBytesMax      = 16 << 10 // Limit and Peek
	batchBodyBytesMax = 5 << 20  // LimitMany: 1000 of the longest requests
)

func bytesMax(procedure string) int {
	if procedure == weirv1connect.RateLimitServiceLimitManyProcedure {
		return batchBodyBytesMax
	}
	return bodyBytesMax
}

// boundMessages bounds what a body decompresses to, and what gRPC announces.
func boundMessages() connect.HandlerOption {
	return connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
		return []connect.HandlerOption{connect.WithReadMaxBytes(bytesMax(spec.Procedure))}
	})
}

// boundBody bounds what is read from the wire at all (connect alone reads a body
// that is too long to its end, however far that is), and makes a body end with
// an error whose code says whose fault it was. Connect passes such errors on as
// they are; left to itself it would answer 429 to a body that is too long, which
// callers of a rate limiter misread, and 500 to one that breaks off.
func boundBody(w http.ResponseWriter, r *http.Request, procedure string) {
	r.Body = body{http.MaxBytesReader(w, r.Body, int64(bytesMax(procedure)))}
}

type body struct{ io.ReadCloser }

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	return n, bodyError(err)
}

func bodyError(err error) error {
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("body is longer than %d bytes", tooLong.Limit))
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("body did not arrive in time"))
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, errors.New("body broke off: the caller went away"))
	}
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("body cannot be read: %w", err))
}
