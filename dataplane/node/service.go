package node

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/node/access"
	"github.com/weirhq/weir/shared/bounded"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// service is weir.v1.RateLimitService over a Limiter, for all protocols: connect.go and grpc.go serve it. Errors are
// connect's errors, with details.
type service struct {
	all    access.Limiter // use limiter instead, which applies the token's scope
	waits  *fair.Places   // for calls that wait for a lease
	bounds *bounds
}

// waitsShare is the part of all calls in flight that may wait for leases.
const waitsShare = 4

// newService is for all ports: they share the bounds.
func newService(limiter access.Limiter, maxInFlight int, b *bounds) service {
	return service{limiter, &fair.Places{Most: int64(max(1, maxInFlight/waitsShare))}, b}
}

// limiter returns the Limiter for a call, restricted to the scope of its token.
func (s service) limiter(ctx context.Context) access.Limiter {
	return access.Restrict(s.all, access.ScopeIn(ctx))
}

// limit also returns the decision, for protocols that can return more than the message.
func (s service) limit(ctx context.Context, m *weirv1.LimitRequest) (*weirv1.LimitResponse, dataplane.Decision, error) {
	request, err := readLimit(m)
	if err != nil {
		return nil, dataplane.Decision{}, err
	}
	decision := s.limiter(ctx).Allow(ctx, request)
	if decision.Err != nil {
		return nil, decision, refusal(decision.Err)
	}
	return writeDecision(decision), decision, nil
}

func (s service) limitMany(ctx context.Context, m *weirv1.LimitManyRequest) (*weirv1.LimitManyResponse, error) {
	requests, err := readLimitMany(m)
	if err != nil {
		return nil, err
	}
	place := bounded.PlaceOf(ctx)
	place.Leave()
	batch := s.limiter(ctx).AppendAllowMany(ctx, nil, requests)
	place.Return(ctx)
	if batch.Err != nil {
		return nil, refusal(batch.Err)
	}
	return writeBatch(batch), nil
}

func (s service) peek(ctx context.Context, m *weirv1.PeekRequest) (*weirv1.PeekResponse, error) {
	request, err := readLimit(m)
	if err != nil {
		return nil, err
	}
	decision := s.limiter(ctx).Peek(ctx, request)
	if decision.Err != nil {
		return nil, refusal(decision.Err)
	}
	return &weirv1.PeekResponse{Response: writeDecision(decision)}, nil
}

func (s service) refund(ctx context.Context, m *weirv1.RefundRequest) (*weirv1.RefundResponse, error) {
	request, err := readRefund(m)
	if err != nil {
		return nil, err
	}
	refunded, err := s.limiter(ctx).Refund(request)
	if err != nil {
		return nil, refusal(err)
	}
	return &weirv1.RefundResponse{Refunded: refunded}, nil
}

// refusal converts the limiter's error about a request. Validation here leaves few such errors. They must not become
// faults of the server unless they are.
func refusal(err error) error {
	switch {
	case access.IsOutOfScope(err):
		return access.OutOfScope()
	case errors.Is(err, dataplane.ErrInvalid):
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
		RetryAfterMs: retryAfterMs(d),
		Current:      d.Current,
		Source:       writeSource(d.Source),
		Shadowed:     d.Shadowed,
		Override:     d.Override,
		DurationMs:   d.Duration.Milliseconds(),

		CandidateDenied: d.CandidateDenied,
		NeverPasses:     d.NeverPasses,
	}
}

func writeBatch(batch dataplane.Batch) *weirv1.LimitManyResponse {
	answer := &weirv1.LimitManyResponse{
		Allowed:   batch.Allowed,
		Responses: make([]*weirv1.LimitResponse, len(batch.Decisions)),
	}
	for i, decision := range batch.Decisions {
		answer.Responses[i] = writeDecision(decision)
	}
	return answer
}

func writeSource(s dataplane.Source) weirv1.Source {
	switch s {
	case dataplane.SourceLocal:
		return weirv1.Source_SOURCE_LOCAL
	case dataplane.SourceOrigin:
		return weirv1.Source_SOURCE_ORIGIN
	case dataplane.SourceDegraded:
		return weirv1.Source_SOURCE_DEGRADED
	case dataplane.SourceDegradedOpen:
		return weirv1.Source_SOURCE_DEGRADED_OPEN
	case dataplane.SourceDegradedClosed:
		return weirv1.Source_SOURCE_DEGRADED_CLOSED
	}
	return weirv1.Source_SOURCE_UNSPECIFIED
}

// retryAfterSeconds returns the time that every HTTP client understands: whole seconds, never too early. It returns 0
// if waiting does not help, because the request passed or never will.
func retryAfterSeconds(d dataplane.Decision) int64 {
	if d.Allowed {
		return 0
	}
	return roundUp(d.RetryAfter, time.Second)
}

func retryAfterMs(d dataplane.Decision) int64 { return roundUp(d.RetryAfter, time.Millisecond) }

func roundUp(d, unit time.Duration) int64 {
	return int64((d + unit - 1) / unit)
}
