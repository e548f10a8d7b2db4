package node

import (
	"context"
	"errors"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// service is weir.v1.RateLimitService over a Limiter.
type service struct{ limiter Limiter }

func (s service) Limit(ctx context.Context, call *connect.Request[weirv1.LimitRequest]) (*connect.Response[weirv1.LimitResponse], error) {
	request, err := readLimit(call.Msg)
	if err != nil {
		return nil, err
	}
	decision := s.limiter.Allow(ctx, request)
	if decision.Err != nil {
		return nil, refusal(decision.Err)
	}
	answer := connect.NewResponse(writeDecision(decision))
	if seconds := retryAfterSeconds(decision); seconds > 0 && call.Peer().Protocol == connect.ProtocolConnect {
		answer.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	return answer, nil
}

func (s service) LimitMany(ctx context.Context, call *connect.Request[weirv1.LimitManyRequest]) (*connect.Response[weirv1.LimitManyResponse], error) {
	requests, err := readLimitMany(call.Msg)
	if err != nil {
		return nil, err
	}
	batch := s.limiter.AllowMany(ctx, requests)
	if batch.Err != nil {
		return nil, refusal(batch.Err)
	}
	answer := &weirv1.LimitManyResponse{
		Allowed:   batch.Allowed,
		Responses: make([]*weirv1.LimitResponse, len(batch.Decisions)),
	}
	for i, decision := range batch.Decisions {
		answer.Responses[i] = writeDecision(decision)
	}
	return connect.NewResponse(answer), nil
}

func (s service) Peek(ctx context.Context, call *connect.Request[weirv1.PeekRequest]) (*connect.Response[weirv1.PeekResponse], error) {
	request, err := readPeek(call.Msg)
	if err != nil {
		return nil, err
	}
	decision := s.limiter.Peek(ctx, request)
	if decision.Err != nil {
		return nil, refusal(decision.Err)
	}
	return connect.NewResponse(&weirv1.PeekResponse{Response: writeDecision(decision)}), nil
}

// refusal is the limiter's own word against a request. Validation here leaves it
// little to say; whatever it is, it must not turn into a fault of the server
// unless it is one.
func refusal(err error) error {
	if errors.Is(err, dataplane.ErrInvalid) {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	return connect.NewError(connect.CodeInternal, err)
}

func writeDecision(d dataplane.Decision) *weirv1.LimitResponse {
	return &weirv1.LimitResponse{
		Allowed:      d.Allowed,
		Limit:        d.Limit,
		Remaining:    d.Remaining,
		ResetAtMs:    d.ResetAt.UnixMilli(),
		RetryAfterMs: roundUp(d.RetryAfter, time.Millisecond),
		Current:      d.Current,
		Source:       writeSource(d.Source),
		Shadowed:     d.Shadowed,
		Override:     d.Override,
	}
}

func writeSource(s dataplane.Source) weirv1.Source {
	switch s {
	case dataplane.SourceLocal:
		return weirv1.Source_SOURCE_LOCAL
	case dataplane.SourceOrigin:
		return weirv1.Source_SOURCE_ORIGIN
	case dataplane.SourceDegraded:
		return weirv1.Source_SOURCE_DEGRADED
	}
	return weirv1.Source_SOURCE_UNSPECIFIED
}

// retryAfterSeconds is what an HTTP client understands without knowing us: whole
// seconds, never too early. 0 where there is nothing to wait for: the request
// passed, or never will.
func retryAfterSeconds(d dataplane.Decision) int64 {
	if d.Allowed {
		return 0
	}
	return roundUp(d.RetryAfter, time.Second)
}

func roundUp(d, unit time.Duration) int64 {
	return int64((d + unit - 1) / unit)
}
