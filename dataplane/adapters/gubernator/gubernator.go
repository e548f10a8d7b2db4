// Package gubernator answers gubernator's V1 API (github.com/gubernator-io/gubernator/v2) from a Weir limiter. Use it
// to move to Weir without changing callers: gubernator's Go client and callers of its HTTP API keep working. The
// differences are in ../README.md.
package gubernator

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	v1 "github.com/gubernator-io/gubernator/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// ItemsMax is how many requests a call may have, as in gubernator.
const ItemsMax = 1000

// waitMax bounds how long the requests of a call wait for Redis together. Each request may wait for an equal part of
// the remaining time. After that, the node decides by its own counts, as in an outage.
const waitMax = 5 * time.Second

// Server is gubernator's V1 service. Make it with New, register it with v1.RegisterV1Server, and serve its Handler. All
// methods are safe for concurrent use.
type Server struct {
	v1.UnimplementedV1Server
	limiter   *dataplane.Limiter
	workspace string
	exhausted exhausted
	draining  atomic.Bool
}

// New makes a Server whose keys are in a workspace of 1 to 191 bytes; a request's name is the namespace. It neither
// starts nor stops the limiter. Errors wrap dataplane.ErrInvalid, and name the field and its bound.
func New(l *dataplane.Limiter, workspace string) (*Server, error) {
	if l == nil {
		return nil, fmt.Errorf("%w: limiter is nil", dataplane.ErrInvalid)
	}
	any := dataplane.Request{Workspace: workspace, Namespace: "any", Identifier: "any", Duration: time.Second}
	return &Server{limiter: l, workspace: workspace}, any.Validate()
}

// GetRateLimits decides each request by itself, in order. An invalid request gets its error as its answer, and does not
// affect the other requests.
func (s *Server) GetRateLimits(ctx context.Context, in *v1.GetRateLimitsReq) (*v1.GetRateLimitsResp, error) {
	if n := len(in.GetRequests()); n > ItemsMax {
		return nil, status.Errorf(codes.OutOfRange, "requests holds %d items (at most %d)", n, ItemsMax)
	}
	deadline := time.Now().Add(waitMax)
	out := &v1.GetRateLimitsResp{Responses: make([]*v1.RateLimitResp, 0, len(in.GetRequests()))}
	for i, r := range in.GetRequests() {
		if err := ctx.Err(); err != nil { // the caller has left
			return nil, status.FromContextError(err).Err()
		}
		within, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(in.GetRequests())-i))
		answer, err := s.decide(within, r)
		cancel()
		if err != nil {
			answer = &v1.RateLimitResp{Error: err.Error()}
		}
		out.Responses = append(out.Responses, answer)
	}
	return out, nil
}

// Drain makes HealthCheck fail from now on, so that load balancers look for other servers.
func (s *Server) Drain() { s.draining.Store(true) }

// HealthCheck reports the server as healthy until Drain, because decisions go on whichever dependency is down.
func (s *Server) HealthCheck(context.Context, *v1.HealthCheckReq) (*v1.HealthCheckResp, error) {
	if s.draining.Load() {
		return nil, status.Error(codes.Unavailable, "this server is draining")
	}
	return &v1.HealthCheckResp{Status: v1.Healthy, PeerCount: 1}, nil
}

// LiveCheck answers.
func (s *Server) LiveCheck(context.Context, *v1.LiveCheckReq) (*v1.LiveCheckResp, error) {
	return &v1.LiveCheckResp{}, nil
}

// unknown maps behaviors that Weir does not support to their replacement. The remaining behaviors control how
// gubernator's peers exchange counts, and have no effect here.
var unknown = map[v1.Behavior]string{
	v1.Behavior_DURATION_IS_GREGORIAN: "name the calendar's month or day in unique_key instead",
	v1.Behavior_RESET_REMAINING:       "an operator resets a key: weirctl reset",
}

func (s *Server) decide(ctx context.Context, in *v1.RateLimitReq) (*v1.RateLimitResp, error) {
	for behavior, instead := range unknown {
		if v1.HasBehavior(in.GetBehavior(), behavior) {
			return nil, fmt.Errorf("%w: behavior %v is not supported: %s", dataplane.ErrInvalid, behavior, instead)
		}
	}
	r := dataplane.Request{Workspace: s.workspace, Namespace: in.GetName(), Identifier: in.GetUniqueKey(),
		Limit: in.GetLimit(), Cost: min(max(in.GetHits(), -window.LimitMax), window.LimitMax), ZeroCost: in.GetHits() == 0}
	if r.Identifier != "" { // gubernator returns an error for an empty key as well
		r.Identifier = window.BoundIdentifier(r.Identifier)
	}
	if ms := in.GetDuration(); ms >= 0 && ms <= window.DurationMax.Milliseconds() {
		r.Duration = time.Duration(ms) * time.Millisecond
	} else {
		r.Duration = window.DurationMax + time.Millisecond // out of bounds, and rejected as such
	}
	bucket := in.GetAlgorithm() == v1.Algorithm_TOKEN_BUCKET
	switch {
	case r.Cost < 0:
		r.Cost = -r.Cost
		if _, err := s.limiter.Refund(r); err != nil {
			return nil, err
		}
		r.Cost, r.ZeroCost = 0, true
		return said(s.limiter.Peek(ctx, r))
	case r.Cost == 0:
		out, err := said(s.limiter.Peek(ctx, r))
		if err == nil && bucket && out.GetRemaining() == 0 && s.exhausted.has(&r) {
			out.Status = v1.Status_OVER_LIMIT
		}
		return out, err
	}
	d := s.limiter.Allow(ctx, r)
	if bucket && d.Err == nil {
		s.exhausted.note(&r, !d.Allowed && d.Remaining == 0)
	}
	if !d.Allowed && d.Err == nil && d.Remaining > 0 && v1.HasBehavior(in.GetBehavior(), v1.Behavior_DRAIN_OVER_LIMIT) {
		r.Cost = d.Remaining
		if drained := s.limiter.Allow(ctx, r); drained.Allowed {
			d.Remaining = drained.Remaining
		}
	}
	return said(d)
}

// said converts a decision into gubernator's answer. ResetTime is the time at which a denied request would pass, or the
// end of the window's cell for an allowed request.
func said(d dataplane.Decision) (*v1.RateLimitResp, error) {
	if d.Err != nil {
		return nil, d.Err
	}
	out := &v1.RateLimitResp{Status: v1.Status_UNDER_LIMIT, Limit: d.Limit, Remaining: d.Remaining,
		ResetTime: d.ResetAt.UnixMilli()}
	if !d.Allowed {
		out.Status = v1.Status_OVER_LIMIT
		if d.RetryAfter > 0 {
			out.ResetTime = time.Now().Add(d.RetryAfter + time.Millisecond - 1).UnixMilli()
		}
	}
	return out, nil
}
