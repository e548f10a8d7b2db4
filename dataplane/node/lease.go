package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/internal/fair"
	"github.com/weirhq/weir/dataplane/node/access"
	"github.com/weirhq/weir/shared/bounded"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/window"
)

// Leases of concurrency limits on the wire. All calls wait for the origin, and leave their place to others meanwhile.

// waitMax bounds the time that an Acquire can wait for a slot. It is below the time limits of all ports.
const waitMax = 10 * time.Second

func (s service) acquire(ctx context.Context, m *weirv1.AcquireRequest) (*weirv1.AcquireResponse, error) {
	request, wait, err := readAcquire(m)
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		of := fair.Of{Caller: fair.In(ctx), Space: fair.Space{Workspace: request.Workspace, Namespace: request.Namespace}}
		if !s.waits.Take(of, 1) {
			bound := bounded.BoundCaller
			if s.waits.Used() >= s.waits.Most {
				bound = bounded.BoundSlots
			}
			s.bounds.countBound(bound)
			return nil, refusalOfCall(dataplane.ErrTooManyWaiters)
		}
		defer s.waits.Give(of, 1)
		within, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		ctx = within
	}
	var token string
	var d dataplane.ConcurrencyDecision
	leavingPlace(ctx, func() { token, d = s.limiter(ctx).AcquireToken(ctx, request, m.GetId(), wait > 0) })
	if d.Err != nil {
		return nil, refusalOfCall(d.Err)
	}
	answer := writeLease(&d)
	answer.Lease, answer.TtlMs = token, d.TTL.Milliseconds()
	return answer, nil
}

func writeLease(d *dataplane.ConcurrencyDecision) *weirv1.AcquireResponse {
	return &weirv1.AcquireResponse{Allowed: d.Allowed, Limit: d.Limit, Held: d.Held, Remaining: d.Remaining,
		RetryAfterMs: roundUp(d.RetryAfter, time.Millisecond), Source: writeSource(d.Source), Shadowed: d.Shadowed,
		Override: valid(d.Override)}
}

func (s service) explainLease(ctx context.Context,
	m *weirv1.ExplainLeaseRequest) (*weirv1.ExplainLeaseResponse, error) {
	var found violations
	r := found.readSlots(m)
	if err := found.err(); err != nil {
		return nil, err
	}
	x, err := s.limiter(ctx).ExplainConcurrency(r)
	if err != nil {
		return nil, refusal(err)
	}
	return &weirv1.ExplainLeaseResponse{Summary: x.String(), Decision: writeLease(&x.Decision), AtMs: x.At.UnixMilli(),
		Overridden: x.Overridden, Shadow: x.Shadow, Outage: x.Outage, Known: x.Known, Leases: x.Leases, Slots: x.Slots,
		Others: x.Others, Waiters: x.Waiters, ValidForMs: x.ValidFor.Milliseconds(), Starved: x.Starved,
		RestsForMs: x.RestsFor.Milliseconds()}, nil
}

func (s service) renew(ctx context.Context, m *weirv1.RenewRequest) (*weirv1.RenewResponse, error) {
	var found violations
	found.leases(m.GetLeases())
	ttl := found.leaseTTL(m.GetTtlMs())
	if err := found.err(); err != nil {
		return nil, err
	}
	var errs []error
	leavingPlace(ctx, func() { errs = s.limiter(ctx).RenewTokens(ctx, ttl, m.GetLeases()...) })
	if slices.ContainsFunc(errs, access.IsOutOfScope) {
		return nil, access.OutOfScope()
	}
	answer := &weirv1.RenewResponse{States: make([]weirv1.LeaseState, len(errs))}
	for i, err := range errs {
		switch {
		case err == nil:
			answer.States[i] = weirv1.LeaseState_LEASE_STATE_HELD
		case errors.Is(err, dataplane.ErrInvalid):
			found.notLease(i)
		case errors.Is(err, dataplane.ErrLeaseLost):
			answer.States[i] = weirv1.LeaseState_LEASE_STATE_ENDED
		default:
			answer.States[i] = weirv1.LeaseState_LEASE_STATE_UNKNOWN
		}
	}
	if len(found) > 0 {
		return nil, found.err()
	}
	return answer, nil
}

func (s service) release(ctx context.Context, m *weirv1.ReleaseRequest) (*weirv1.ReleaseResponse, error) {
	var found violations
	if found.leases(m.GetLeases()); len(found) > 0 {
		return nil, found.err()
	}
	var errs []error
	leavingPlace(ctx, func() { errs = s.limiter(ctx).ReleaseTokens(ctx, m.GetLeases()...) })
	for i, err := range errs {
		if errors.Is(err, dataplane.ErrInvalid) {
			found.notLease(i)
		}
	}
	if len(found) > 0 {
		return nil, found.err()
	}
	if err := errors.Join(errs...); err != nil {
		return nil, refusalOfCall(err)
	}
	return new(weirv1.ReleaseResponse), nil
}

func readAcquire(m *weirv1.AcquireRequest) (r dataplane.ConcurrencyRequest, wait time.Duration, err error) {
	var found violations
	r = found.readSlots(m)
	found.bytes("id", m.GetId(), 0, dataplane.LeaseIDBytesMax)
	found.bytes("holder", m.GetHolder(), 0, dataplane.HolderBytesMax)
	if ms := m.GetWaitMs(); ms < 0 || ms > waitMax.Milliseconds() {
		found.add("wait_ms", "is %d (0 to %d)", ms, waitMax.Milliseconds())
	}
	r.Holder, r.TTL = m.GetHolder(), cmp.Or(found.leaseTTL(m.GetTtlMs()), dataplane.LeaseTTLDefault)
	return r, time.Duration(m.GetWaitMs()) * time.Millisecond, found.err()
}

// readSlots reads the key and the limit.
func (v *violations) readSlots(m interface {
	GetWorkspace() string
	GetNamespace() string
	GetIdentifier() string
	GetLimit() int64
}) dataplane.ConcurrencyRequest {
	v.name("workspace", m.GetWorkspace(), window.WorkspaceBytesMax)
	v.name("namespace", m.GetNamespace(), window.NamespaceBytesMax)
	identifier := v.identifier(m.GetIdentifier())
	v.amount("limit", m.GetLimit())
	return dataplane.ConcurrencyRequest{Workspace: m.GetWorkspace(), Namespace: m.GetNamespace(),
		Identifier: identifier, Limit: m.GetLimit()}
}

func (v *violations) leaseTTL(ms int64) time.Duration {
	return v.ttl(ms, dataplane.LeaseTTLMin, dataplane.LeaseTTLMax)
}

// notLease adds a violation about a token that no Acquire has returned. The call's other leases are still processed.
func (v *violations) notLease(i int) {
	v.add(fmt.Sprintf("leases[%d]", i), "is not a lease that Acquire returned")
}

func (v *violations) leases(tokens []string) {
	if n := len(tokens); n < 1 || n > dataplane.LeaseTokensMax {
		v.add("leases", "has %d items (1 to %d)", n, dataplane.LeaseTokensMax)
	}
}
