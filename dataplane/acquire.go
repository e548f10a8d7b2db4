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
	// LeaseTokensMax is the highest number of leases in a call of RenewTokens or ReleaseTokens.
	LeaseTokensMax = 100

	acquireRetryMin = 20 * time.Millisecond
	acquireRetryMax = time.Second
)

// Other values of ConcurrencyDecision.Err. The request is valid, but this node has no room for it.
var (
	// ErrTooManyKeys is returned if too many keys have leases on this node. The bound is Config.EntriesMax keys, and
	// without an origin also 100,000 leases by ID. One caller can have at most three quarters of them: see WithCaller.
	ErrTooManyKeys = errors.New("dataplane: too many keys have leases on this node")

	// ErrTooManyWaiters is returned if 1,000 requests already wait for a lease of the key on this node, or 750 requests
	// of the same caller: see WithCaller.
	ErrTooManyWaiters = errors.New("dataplane: too many requests wait for a lease of the key on this node")

	// ErrTooManyLeases is returned if the key has 1,000,000 leases on this node, or 750,000 of the same caller: see
	// WithCaller.
	ErrTooManyLeases = errors.New("dataplane: the key has too many leases on this node")
)

// ConcurrencyRequest requests a lease on a slot of a key. The nodes of a region together grant at most Limit leases
// of a key at the same time. For example, a request with a Limit of 10 is denied while ten leases of its key are
// held.
//
// A Request for the same key has a separate count. But overrides and other settings of a namespace apply to both, so
// concurrency limits should have a namespace of their own.
//
// All requests for a key should have the same Limit and TTL.
type ConcurrencyRequest struct {
	Workspace  string // 1 to 191 bytes
	Namespace  string // 1 to 255 bytes
	Identifier string // 1 to 255 bytes
	Limit      int64  // the most leases at once, 0 (blocks) to window.LimitMax; an override replaces it

	// TTL is how long a slot stays taken after its node dies, within a second: LeaseTTLMin to LeaseTTLMax, 0 for 10 s.
	// While the origin does not answer, a lease lasts as long.
	TTL time.Duration

	// RenewedByHolder makes the lease end TTL after it was granted or last renewed with Lease.Renew. Use it for holders
	// outside this process. The limiter renews all other leases until they are released.
	RenewedByHolder bool

	// AgeMax ends a lease that the limiter renews at this age; 0 for no bound.
	AgeMax time.Duration

	Holder string // a label for people, at most HolderBytesMax
}

// ConcurrencyDecision is the answer to a ConcurrencyRequest.
type ConcurrencyDecision struct {
	Allowed   bool   // whether the work may start; false if Err is set
	Shadowed  bool   // the request was over the limit and passes because the namespace is in shadow mode; it holds no slot
	Source    Source // where the decision comes from
	Limit     int64  // the limit that was applied: the request's, or an override's
	Held      int64  // leases of the key after this decision, as far as this node has read
	Remaining int64  // Limit - Held, never negative
	Override  string // the pattern of the override that applied, "" for none
	Err       error  // wraps ErrInvalid, or is ErrBusy, ErrTooManyKeys, ErrTooManyWaiters or ErrTooManyLeases

	// TTL is how long the lease of an AcquireToken lasts without a renewal. It counts from the call of AcquireToken, so
	// it is the request's TTL plus the time that the call waited.
	TTL time.Duration

	// RetryAfter is the time to wait before the caller retries a denied request, 0 if it was allowed. A slot can become
	// free earlier or later, because the limiter cannot predict how long leases are held.
	RetryAfter time.Duration
}

// Acquire requests a lease on one slot of a concurrency limit. While this node has a free slot, it decides locally.
// Otherwise it calls the origin and waits for at most Config.ReadTimeout, or until ctx ends. Release the lease when the
// work is done, even after a panic:
//
//	lease, d := limiter.Acquire(ctx, dataplane.ConcurrencyRequest{...})
//	if !d.Allowed {
//		return d.RetryAfter
//	}
//	defer lease.Release()
//
// If the origin does not answer, the namespace's outage policy decides: local grants the slots that this node still
// has, open grants a lease that holds no slot, and closed denies. The limit holds only if each holder stops its work
// when its lease ends: see Lease.Done, and the section on concurrency limits in ACCURACY.md.
//
// Without an origin, or with an origin that is not a store.Granter, the limit holds for this process alone.
//
// Before Start, leases are not renewed, so each ends after its TTL. After Stop, Acquire grants no leases except under
// the policy open.
func (l *Limiter) Acquire(ctx context.Context, r ConcurrencyRequest) (Lease, ConcurrencyDecision) {
	return l.acquire(ctx, &r, false)
}

// AcquireWait is Acquire, but waits for a slot until ctx ends. For example, a job queue can wait for its turn, while
// a web server should call Acquire and return an error. On a node, callers take turns (see WithCaller), and a
// caller's requests are served in the order in which they came. Between nodes there is no order.
//
// Overrides and policies that change meanwhile apply to waiting requests too: a raised limit serves them at once, and
// a limit of 0 denies them at once.
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

// called returns the context for a call about leases, or an error if the limiter was not made by New. A nil ctx
// becomes context.Background.
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

// check returns an error for the first field that is out of bounds.
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

// take sets the decision from the result of an ask and from the rule that applies to it.
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
