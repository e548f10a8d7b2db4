package dataplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/internal/slots"
)

const (
	// LeaseTokensMax is how many leases a RenewTokens or ReleaseTokens is about at most.
	LeaseTokensMax = 100

	acquireRetryMin = 20 * time.Millisecond
	acquireRetryMax = time.Second
)

// What else ConcurrencyDecision.Err may be: nothing is wrong with the request, but this node has no room for it.
var (
	// ErrTooManyKeys is returned if too many keys have leases on this node: at most Config.EntriesMax, and without an
	// origin 100,000 leases by ID. One caller alone may have three quarters of them: see WithCaller.
	ErrTooManyKeys = errors.New("dataplane: too many keys have leases on this node")

	// ErrTooManyWaiters is returned if 1,000 requests wait for a lease of the key on this node, or 750 of one caller: see
	// WithCaller.
	ErrTooManyWaiters = errors.New("dataplane: too many wait for a lease of the key on this node")

	// ErrTooManyLeases is returned if the key has 1,000,000 leases on this node, or 750,000 of one caller: see WithCaller.
	ErrTooManyLeases = errors.New("dataplane: the key has too many leases on this node")
)

// ConcurrencyRequest asks for a lease on one of a key's slots: at most Limit leases of a key are held at once, by all
// nodes of the region together. A Request for the same key counts elsewhere. But overrides and other settings of a
// namespace apply to both, so concurrency limits should have a namespace of their own.
//
// All requests for a key should have the same Limit and TTL.
type ConcurrencyRequest struct {
	Workspace  string // 1 to 191 bytes
	Namespace  string // 1 to 255 bytes
	Identifier string // 1 to 255 bytes
	Limit      int64  // leases at once, 0 (blocks) to window.LimitMax; an override's limit takes its place

	// TTL is how long a slot stays taken at most, give or take a second, when its node dies: LeaseTTLMin to LeaseTTLMax,
	// 0 for 10 s. As long the lease goes on when the origin does not answer.
	TTL time.Duration

	// RenewedByHolder makes it a lease that ends TTL after it was granted, or renewed last with Lease.Renew: for holders
	// that are not in this process. All other leases are renewed by the limiter until they are released.
	RenewedByHolder bool

	// AgeMax ends a lease that the limiter renews after so long, 0 for none.
	AgeMax time.Duration

	Holder string // a label for people, at most HolderBytesMax
}

// ConcurrencyDecision is the answer to a ConcurrencyRequest.
type ConcurrencyDecision struct {
	Allowed   bool   // the verdict; false when Err is set
	Shadowed  bool   // it was over the limit and passes because the namespace is in shadow mode; no slot is held
	Source    Source // what the decision is based on
	Limit     int64  // that was applied: the request's, or an override's
	Held      int64  // leases of the key after this decision, as far as this node has heard
	Remaining int64  // Limit - Held, never negative
	Override  string // the pattern of the override that applied, "" for none
	Err       error  // wraps ErrInvalid, or is ErrBusy, ErrTooManyKeys, ErrTooManyWaiters or ErrTooManyLeases

	// TTL is how long the lease of an AcquireToken lasts unless it is renewed, from before that was called: the time that
	// it has waited, and the request's.
	TTL time.Duration

	// RetryAfter is when a request that was denied may be tried again, 0 if it was allowed. A slot may become free
	// earlier or later: how long leases are held is not known.
	RetryAfter time.Duration
}

// Acquire requests a lease on one slot of a concurrency limit. While this node has a free slot, it
// decides locally; otherwise it asks the origin and waits for at most Config.ReadTimeout, or until
// ctx ends. Release the lease when the work is done, also after a panic:
//
//	lease, d := limiter.Acquire(ctx, dataplane.ConcurrencyRequest{...})
//	if !d.Allowed {
//		return d.RetryAfter
//	}
//	defer lease.Release()
//
// If the origin does not answer, the namespace's outage policy decides: local grants the slots that
// this node still has, open grants a lease that holds no slot, and closed denies. The limit holds
// only if each holder stops its work when its lease ends: see Lease.Done, and the section on
// concurrency limits in ACCURACY.md.
//
// Without an origin, or with an origin that is not a store.Granter, the limit holds for this process
// alone.
//
// Before Start, leases are not renewed, so each ends after its TTL. After Stop, Acquire grants no
// leases except under the policy open.
func (l *Limiter) Acquire(ctx context.Context, r ConcurrencyRequest) (Lease, ConcurrencyDecision) {
	return l.acquire(ctx, &r, false)
}

// AcquireWait is Acquire, but waits for a slot until ctx ends. On a node, callers take turns (see WithCaller), and a
// caller's requests are served in the order in which they came; between nodes there is no order. Overrides and
// policies that change meanwhile apply to waiting requests too: a raised limit serves them at once, and a limit of 0
// denies them at once.
func (l *Limiter) AcquireWait(ctx context.Context, r ConcurrencyRequest) (Lease, ConcurrencyDecision) {
	return l.acquire(ctx, &r, true)
}

func (l *Limiter) acquire(ctx context.Context, r *ConcurrencyRequest, wait bool) (lease Lease, d ConcurrencyDecision) {
	var ask slots.Ask
	if ctx, d.Err = l.called(ctx); d.Err != nil {
		return lease, d
	}
	if d.Err = r.prepare(&ask); d.Err != nil {
		return lease, d
	}
	var result slots.Result
	by := l.permits.Leases.Acquire(ctx, &ask, wait, &result)
	d.take(&result, &ask, by)
	lease.slot = result.Lease
	return lease, d
}

// called returns the context of a call about leases, which may be nil, or an error if New has not made the limiter.
func (l *Limiter) called(ctx context.Context) (context.Context, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	if l.engine.clock == nil {
		return ctx, fmt.Errorf("%w: the Limiter is zero (make it with New)", ErrInvalid)
	}
	return ctx, nil
}

// prepare sets ask from the request, or returns an error if the request is invalid.
func (r *ConcurrencyRequest) prepare(ask *slots.Ask) error {
	if err := r.check(); err != nil {
		return err
	}
	ask.Name.Workspace, ask.Name.Namespace, ask.Name.Identifier = r.Workspace, r.Namespace, r.Identifier
	ask.Own, ask.AgeMax, ask.Holder, ask.Unattended = r.Limit, r.AgeMax, r.Holder, r.RenewedByHolder
	if ask.TTL = r.TTL; ask.TTL == 0 {
		ask.TTL = LeaseTTLDefault
	}
	return nil
}

// check reports the first field outside its bounds.
func (r *ConcurrencyRequest) check() error {
	var named Request // set field by field: a literal would be made elsewhere and copied
	named.Workspace, named.Namespace, named.Identifier = r.Workspace, r.Namespace, r.Identifier
	named.Limit, named.Duration = r.Limit, time.Second
	switch {
	case !named.valid():
		return named.Validate()
	case r.TTL != 0 && (r.TTL < LeaseTTLMin || r.TTL > LeaseTTLMax):
		return fmt.Errorf("%w: TTL is %v (%v to %v, 0 for %v)", ErrInvalid, r.TTL, LeaseTTLMin, LeaseTTLMax, LeaseTTLDefault)
	case r.AgeMax < 0:
		return fmt.Errorf("%w: AgeMax is %v (0 for none, or more)", ErrInvalid, r.AgeMax)
	case len(r.Holder) > HolderBytesMax:
		return fmt.Errorf("%w: Holder is %d bytes long (at most %d)", ErrInvalid, len(r.Holder), HolderBytesMax)
	}
	return nil
}

// take sets the decision from the result of an ask, by the rule that applies to it.
func (d *ConcurrencyDecision) take(r *slots.Result, ask *slots.Ask, by *rules.Rule) {
	d.Limit, d.Override = ask.Limit, by.Pattern
	d.Held, d.Remaining = r.Held, max(0, d.Limit-r.Held)
	d.Source = SourceLocal
	switch {
	case r.Asked:
		d.Source = SourceOrigin
	case r.Out:
		d.Source = sourceOut(by.Outage)
	}
	switch {
	case r.Granted:
		d.Allowed = true
	case errors.Is(r.Err, ErrBusy):
		d.Err = ErrBusy
	case errors.Is(r.Err, slots.ErrFull):
		d.Err = ErrTooManyKeys
	case errors.Is(r.Err, slots.ErrWaiters):
		d.Err = ErrTooManyWaiters
	case errors.Is(r.Err, slots.ErrLeases):
		d.Err = ErrTooManyLeases
	case by.Shadow:
		d.Allowed, d.Shadowed = true, true
	case r.Out && by.Outage == rules.OutageOpen:
		d.Allowed = d.Limit > 0
	}
	if !d.Allowed {
		d.RetryAfter = max(acquireRetryMin, min(r.RetryIn, acquireRetryMax))
		if r.RetryIn == 0 {
			d.RetryAfter = acquireRetryMax
		}
	}
}
