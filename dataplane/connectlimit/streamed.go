package connectlimit

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
	"github.com/weirhq/weir/dataplane/streamed"
)

// Streamed makes an interceptor for handlers that meters their streams, and their calls. It calls reserve with the
// first message of a stream, which Message returns, and reserves the result. It settles when the handler returns, also
// if it panics. The handler must report its cost to streamed.MeterOf of its context. A call for which reserve returns
// an error ends as invalid_argument. A call that does not pass ends as resource_exhausted, or as unavailable if the
// limiter cannot decide or has no room, with Retry-After in its metadata and RetryInfo among its details.
func Streamed(streams *streamed.Streams,
	reserve func(httplimit.Call) (dataplane.ReserveRequest, error)) connect.Interceptor {
	return interceptor{meters{streams, reserve}.hold}
}

type meters struct {
	streams *streamed.Streams
	reserve func(httplimit.Call) (dataplane.ReserveRequest, error)
}

func (m meters) hold(ctx context.Context, of call, stream connect.StreamingHandlerConn,
	next rest) (connect.AnyResponse, error) {
	if stream != nil {
		conn := &meteredConn{StreamingHandlerConn: stream, of: m, call: of}
		defer func() { conn.meter.End() }()
		ctx, conn.begun = streamed.WithLater(ctx)
		return next(ctx, conn)
	}
	meter, err := m.begin(of)
	if err != nil {
		return nil, err
	}
	defer meter.End()
	return next(streamed.With(ctx, meter), nil)
}

func (m meters) begin(of call) (*streamed.Meter, error) {
	request, err := m.reserve(of)
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	meter, got := m.streams.Begin(of.ctx, request)
	if meter == nil {
		return nil, notReserved(&got)
	}
	return meter, nil
}

// meteredConn reserves with a stream's first message.
type meteredConn struct {
	connect.StreamingHandlerConn
	of      meters
	call    call // without its message
	begun   func(*streamed.Meter)
	meter   *streamed.Meter
	refused error // for good
}

// Only one goroutine at a time may call Receive.
func (c *meteredConn) Receive(message any) error {
	if c.refused != nil {
		return c.refused
	}
	if err := c.StreamingHandlerConn.Receive(message); err != nil || c.meter != nil {
		return err
	}
	c.call.message = message
	c.meter, c.refused = c.of.begin(c.call)
	c.begun(c.meter)
	return c.refused
}

// notReserved returns the error of a call for which nothing was reserved.
func notReserved(got *dataplane.Reserved) *connect.Error {
	wait, helps := httplimit.RetryReserved(got)
	problem := connect.NewError(connect.CodeResourceExhausted,
		errors.New("the quota is used up, or reserved by calls that are under way"))
	switch {
	case errors.Is(got.Err, dataplane.ErrInvalid):
		return connect.NewError(connect.CodeInternal, errors.New("the limit could not be applied"))
	case got.Err != nil || httplimit.DegradedReserved(got):
		problem = connect.NewError(connect.CodeUnavailable,
			errors.New("the limiter cannot decide about this call at the moment"))
	case !helps:
		return connect.NewError(connect.CodeResourceExhausted, errors.New("the call may cost more than its limit"))
	}
	return retried(problem, wait)
}
