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
)

// Limiter decides whether requests may pass. All methods may be called concurrently. Make one with
// New: the zero value panics. A Limiter decides as soon as New returns. Start runs the loops that
// exchange counts with other nodes; Stop sends the remaining counts and ends the loops.
//
// A Limiter never fails a request because Redis or MySQL is down: it decides from the counts that
// it has, and Decision.Source shows that it did. Decision.Err is only ever about the request
// itself.
type Limiter struct {
	cfg Config

	engine  engine          // decides
	permits permits.Permits // what callers hold
	reports reports         // for operators
	loops   loops           // run in the background
	calls   loop.Calls      // to the origin, on behalf of decisions
}

// New makes a limiter. It does no I/O: a node starts whether or not the layers
// above are there. Errors name the field of Config at fault.
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
		Trace: cfg.TraceBackground, EpochLost: func() { l.permits.Reservations.Lose() }})
	g.rules.Init(rules.Config{Source: cfg.Settings, Region: cfg.Region, NodeID: cfg.NodeID, RegionNodes: cfg.RegionNodes,
		Fleet: !g.alone, Clock: g.clock, Walk: g.table.Walk, Logger: cfg.Logger})
	granter, _ := cfg.Origin.(permits.Origin)
	l.permits.Init(permits.Config{Origin: granter, EntriesMax: cfg.EntriesMax, ReadTimeout: cfg.ReadTimeout,
		Clock: g.clock, Rules: &g.rules, Out: g.out, Calls: &l.calls, Engine: g})
	l.loops.rules, l.loops.logger, l.loops.trace = &g.rules, cfg.Logger, cfg.TraceBackground
	l.reports.init(&l.cfg, g, &l.permits)
	return l, nil
}

// Allow decides r at the clock's time, and counts its cost if it is allowed.
//
// On a key that this node knows and has heard of lately, that is a look-up, a few
// loads and one compare-and-swap: no lock, no I/O, no allocation. A cold, stale or
// strict key asks the origin first, under Config.ReadTimeout and ctx, unless what
// is known already denies.
func (l *Limiter) Allow(ctx context.Context, r Request) (d Decision) {
	l.engine.decide(ctx, l.engine.clock.Now(), &r, nil, &d)
	return d
}

// AllowAt is Allow at a time of the caller's, at most Config.ClockSkewMax away from
// the clock's. Times of one key may run backwards a little: the key's cell that is
// current stays current.
func (l *Limiter) AllowAt(ctx context.Context, now time.Time, r Request) (d Decision) {
	var at clock.Stamp
	if at, d.Err = l.engine.stamp(now); d.Err == nil {
		l.engine.decide(ctx, at, &r, nil, &d)
	}
	return d
}

// Peek answers what Allow would, Remaining after the cost included, and counts nothing: no
// cost, no decision, no denied key. Where a namespace waits for its share, Allow decides at the origin
// and Peek by what this node knows.
func (l *Limiter) Peek(ctx context.Context, r Request) Decision {
	r.peek = true
	return l.Allow(ctx, r)
}
