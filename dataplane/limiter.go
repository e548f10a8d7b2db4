package dataplane

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/permits"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/internal/turns"
	"github.com/weirhq/weir/shared/window"
)

// Limiter decides whether requests may pass. All methods may be called concurrently. You must make a Limiter with
// New: the zero value panics. A Limiter decides as soon as New returns. Start runs the loops that exchange counts
// with other nodes; Stop sends the remaining counts and ends the loops.
//
// A Limiter never fails a request because Redis or MySQL is down: it decides from the counts that it has, and
// Decision.Source shows that it did. Decision.Err is only about the request itself.
type Limiter struct {
	cfg Config

	engine  engine          // decides
	permits permits.Permits // reservations and leases of callers
	reports reports         // for operators
	loops   loops           // background work
	calls   loop.Calls      // to the origin, on behalf of decisions
	waits   turns.Lines[window.Key]
}

// New makes a limiter. It does no I/O, so a node can start while Redis and MySQL are down. Errors name the invalid
// field of Config.
func New(cfg Config) (*Limiter, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Limiter{cfg: cfg}
	g := &l.engine
	g.init(&l.cfg, &l.calls)
	g.out = outbox.New(outbox.Config{Origin: cfg.Origin, Breaker: breaker.Config(cfg.Breaker), Rules: &g.rules,
		ReadTimeout: cfg.ReadTimeout, Table: g.table, Dirty: &g.dirty, Clock: g.clock, Calls: &l.calls,
		Accepted: &g.usage, Trace: cfg.TraceBackground, EpochLost: func() { l.permits.Reservations.Lose() }})
	g.rules.Init(rules.Config{Source: cfg.Settings, Region: cfg.Region, NodeID: cfg.NodeID, RegionNodes: cfg.RegionNodes,
		Fleet: !g.alone, Clock: g.clock, Walk: g.table.Walk, Logger: cfg.Logger})
	granter, _ := cfg.Origin.(permits.Origin)
	l.permits.Init(permits.Config{Origin: granter, EntriesMax: cfg.EntriesMax, ReadTimeout: cfg.ReadTimeout,
		Clock: g.clock, Rules: &g.rules, Out: g.out, Calls: &l.calls, Engine: g})
	l.loops.rules, l.loops.logger, l.loops.trace = &g.rules, cfg.Logger, cfg.TraceBackground
	l.reports.init(&l.cfg, g, &l.permits)
	return l, nil
}

// Allow decides r at the clock's time, and counts its cost if it is allowed. For example:
//
//	d := limiter.Allow(ctx, dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: user, Limit: 100,
//		Duration: time.Minute})
//	if !d.Allowed {
//		return d.RetryAfter
//	}
//
// On a key that this node has read recently, Allow does a look-up, a few loads and one compare-and-swap: no lock, no
// I/O, no allocation. For a cold, stale or strict key, it reads the origin first, within Config.ReadTimeout and ctx,
// unless this node's counts already deny the request.
func (l *Limiter) Allow(ctx context.Context, r Request) (d Decision) {
	l.engine.decide(ctx, l.engine.clock.Now(), &r, nil, &d)
	return d
}

// AllowAt is Allow at a time that the caller passes, at most Config.ClockSkewMax away from the clock. Times of one
// key may run backwards a little: the key's current cell stays current.
func (l *Limiter) AllowAt(ctx context.Context, now time.Time, r Request) (d Decision) {
	var at clock.Stamp
	if at, d.Err = l.engine.stamp(now); d.Err == nil {
		l.engine.decide(ctx, at, &r, nil, &d)
	}
	return d
}

// Peek returns the decision that Allow would make, with Remaining after the cost, but counts nothing: neither the cost,
// nor the decision in metrics, nor a denied key for TopKeys. Near a limit, Allow may wait for the origin's answer. Peek
// then decides from this node's counts instead.
func (l *Limiter) Peek(ctx context.Context, r Request) Decision {
	r.peek = true
	return l.Allow(ctx, r)
}
