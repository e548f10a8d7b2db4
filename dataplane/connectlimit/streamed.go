package connectlimit

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
	"github.com/weirhq/weir/dataplane/streamed"
)

// Streamed makes an interceptor for handlers that meters their streams, and their calls: it reserves what reserve says
// when the first message of a stream is there, which Message returns, and settles when the handler returns, also if it
// panics. The handler says what was spent to streamed.MeterOf of its context. A call for which reserve returns an error
// ends as invalid_argument; one that does not pass as resource_exhausted, or as unavailable where the limiter cannot
// know or has no room, with Retry-After in its metadata and RetryInfo among its details.
func Streamed(streams *streamed.Streams,
	reserve func(httplimit.Call) (dataplane.ReserveRequest, error)) connect.Interceptor {
	return meters{streams, reserve}
}

type meters struct {
	streams *streamed.Streams
	reserve func(httplimit.Call) (dataplane.ReserveRequest, error)
}

func (m meters) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if request.Spec().IsClient {
			return next(ctx, request)
		}
		meter, err := m.begin(call{ctx, request.Header(), request.Peer(), request.Spec(), request.Any()})
		if err != nil {
			return nil, err
		}
		defer meter.End()
		return next(streamed.With(ctx, meter), request)
	}
}

func (m meters) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, stream connect.StreamingHandlerConn) error {
		conn := &meteredConn{StreamingHandlerConn: stream, of: m, ctx: ctx}
		defer func() { conn.meter.End() }()
		ctx, conn.begun = streamed.WithLater(ctx)
		return next(ctx, conn)
	}
}

// WrapStreamingClient leaves clients' streams alone.
func (m meters) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
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

// meteredConn reserves at a stream's first message.
type meteredConn struct {
	connect.StreamingHandlerConn
	of      meters
	ctx     context.Context
	begun   func(*streamed.Meter)
	meter   *streamed.Meter
	refused error // for good
}

// Receive is called by one goroutine at a time.
func (c *meteredConn) Receive(message any) error {
	if c.refused != nil {
		return c.refused
	}
	if err := c.StreamingHandlerConn.Receive(message); err != nil || c.meter != nil {
		return err
	}
	c.meter, c.refused = c.of.begin(call{c.ctx, c.RequestHeader(), c.Peer(), c.Spec(), message})
	c.begun(c.meter)
	return c.refused
}

// notReserved is the error of a call for which nothing was reserved.
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
