package dataplane

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// Handle decides about one key. Use it if you decide about the same key many times, for example once for each message
// of a connection. It makes the same decisions as Allow, without validating the request and looking up the key each
// time. A Handle is small. It keeps a pointer to its key's entry, and finds the entry again after an eviction. All
// its methods may be called concurrently. You must make a Handle with Limiter.Handle: the zero value returns
// decisions whose Err wraps ErrInvalid.
type Handle struct {
	limiter *Limiter
	request Request // names and duration
	target  atomic.Pointer[target]
}

// target is the key and the rule that a Handle's names resolve to under one snapshot of the settings.
type target struct {
	set        *rules.Settings
	request    Request // names and own duration
	id         cell.Identity
	durationMs int64
	rule       *rules.Rule
	entry      *cell.Entry
}

// Handle returns a handle on a key. Its errors are the errors of Request.Validate.
func (l *Limiter) Handle(workspace, namespace, identifier string, duration time.Duration) (*Handle, error) {
	r := Request{Workspace: workspace, Namespace: namespace, Identifier: identifier, Duration: duration}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return &Handle{limiter: l, request: r}, nil
}

// Cost is the part of a limit that a request spends: 1 to window.LimitMax; 0 means 1, as in a Request. It is a
// separate type, so that the compiler rejects a cost and a limit in the wrong order.
type Cost int64

// Allow is Limiter.Allow for this key.
func (k *Handle) Allow(ctx context.Context, limit int64, cost Cost) (d Decision) {
	k.decide(ctx, clock.Stamp{}, limit, cost, &d)
	return d
}

// AllowAt is Limiter.AllowAt for this key, for callers that already have the time.
func (k *Handle) AllowAt(ctx context.Context, now time.Time, limit int64, cost Cost) (d Decision) {
	var at clock.Stamp
	if k.limiter == nil {
		k.decide(ctx, at, limit, cost, &d)
	} else if at, d.Err = k.limiter.engine.stamp(now); d.Err == nil {
		k.decide(ctx, at, limit, cost, &d)
	}
	return d
}

// Peek is Limiter.Peek for this key.
func (k *Handle) Peek(ctx context.Context, limit int64, cost Cost) Decision {
	if k.limiter == nil {
		return k.Allow(ctx, limit, cost)
	}
	r := k.request
	r.Limit, r.Cost = limit, int64(cost)
	return k.limiter.Peek(ctx, r)
}

// decide decides a request at a time, or at the clock's time if at is zero. It calls the engine itself,
// so that the compiler can inline Allow.
func (k *Handle) decide(ctx context.Context, at clock.Stamp, limit int64, cost Cost, d *Decision) {
	l := k.limiter
	if l == nil {
		d.Err = fmt.Errorf("%w: the Handle is zero (make it with Limiter.Handle)", ErrInvalid)
		return
	}
	if at.Ms == 0 {
		at = l.engine.clock.Now()
	}
	if uint64(limit) > window.LimitMax || uint64(cost) > window.LimitMax {
		d.Err = validateAmounts(limit, int64(cost))
		return
	}
	var c call // set field by field: a literal would be made elsewhere and copied
	c.limit, c.own, c.cost = limit, limit, int64(max(1, cost))
	c.nowMs, c.cached, c.known, c.horizon = at.Ms, at.Cached, at.Known, l.engine.table.Horizon(at.Given)
	t := k.target.Load()
	if t == nil || t.set != l.engine.rules.InForce() {
		t = k.resolve()
	}
	if t.rule.Limit != rules.Keep {
		c.limit = t.rule.Limit
	}
	counts := l.engine.stats.stripe(&c)
	c.id, c.request, c.counts = &t.id, &t.request, counts
	c.durationMs, c.mode = t.durationMs, t.rule.Mode()
	e := t.entry
	if e == nil {
		e = l.engine.table.Get(&t.id)
	}
	if used := l.engine.decideCall(ctx, &c, t.rule, e, nil, d); used != nil && used != t.entry {
		k.follow(t, used)
	}
}

// resolve stores and returns the target under the settings in force.
func (k *Handle) resolve() *target {
	set := k.limiter.engine.rules.InForce()
	r := k.request
	t := &target{set: set, rule: r.resolve(set)}
	t.request = k.request
	t.durationMs = r.Duration.Milliseconds()
	t.id = k.limiter.engine.table.IdentityOf(r.Workspace, r.Namespace, r.Identifier, r.Duration, t.rule.Mode())
	if t.rule.Reset != nil {
		t.id.Renew(t.rule.Reset)
	}
	k.target.Store(t)
	return t
}

// follow stores another entry for the next call.
func (k *Handle) follow(t *target, e *cell.Entry) {
	next := *t
	next.entry = e
	k.target.CompareAndSwap(t, &next)
}
