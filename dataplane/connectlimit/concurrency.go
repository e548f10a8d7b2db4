package connectlimit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
)

// Concurrency makes an interceptor for handlers that lets each caller have a number of calls and streams under way at
// once: see httplimit.Concurrency. A call without a slot ends as resource_exhausted, or as unavailable if the limiter
// cannot decide or has no room. It has Retry-After in its metadata and RetryInfo among its details. A call whose slot
// is lost has its context cancelled.
func Concurrency(limit *httplimit.Concurrency) connect.Interceptor {
	return interceptor{slots{limit}.hold}
}

type slots struct{ limit *httplimit.Concurrency }

// hold holds a slot while next runs, also if it panics.
func (s slots) hold(ctx context.Context, of call, stream connect.StreamingHandlerConn,
	next rest) (connect.AnyResponse, error) {
	lease, d, err := s.limit.Acquire(ctx, of)
	if err != nil || !d.Allowed {
		return nil, noSlot(&d, err)
	}
	defer lease.Release()
	within, stop := httplimit.While(ctx, lease)
	defer stop()
	return next(within, stream)
}

// noSlot returns the error of a call that got no slot.
func noSlot(d *dataplane.ConcurrencyDecision, err error) *connect.Error {
	switch {
	case errors.Is(err, httplimit.ErrNoKey):
		return connect.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, dataplane.ErrInvalid):
		return connect.NewError(connect.CodeInternal, errors.New("the concurrency limit could not be applied"))
	}
	problem := connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%d calls are under way already", d.Limit))
	if err != nil || d.Source.Degraded() {
		problem = connect.NewError(connect.CodeUnavailable,
			errors.New("the limiter cannot decide about this call at the moment"))
	}
	return retried(problem, time.Duration(max(1, httplimit.Seconds(d.RetryAfter)))*time.Second)
}
