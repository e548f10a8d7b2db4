package dataplane

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
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
	cfg   Config
	clock *clock.Clock
	table *cell.Table

	engine engine         // decides
	rules  *rules.Rules   // the settings in force, of the engine
	out    *outbox.Outbox // to the origin

	permits permits.Permits // reservations, and leases of concurrency limits

	reports reports

	loops loops
	calls loop.Calls // to the origin, on behalf of decisions
}

// New makes a limiter. It does no I/O: a node starts whether or not the layers
// above are there. Errors name the field of Config at fault.
func New(cfg Config) (*Limiter, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	fleet := cfg.Origin != nil
	wall := clock.New(cfg.Clock)
	l := &Limiter{cfg: cfg, clock: wall,
		table: cell.NewTable(cfg.EntriesMax, cfg.ClockSkewMax.Milliseconds(), wall, fleet)}
	if fleet {
		wall.WillFollow()
		l.table.NewKeys.Bound(int64(cfg.NewKeysMax))
	}
	l.rules = &l.engine.rules
	l.out = outbox.New(outbox.Config{Origin: cfg.Origin, Breaker: breaker.Config(cfg.Breaker), Rules: l.rules,
		ReadTimeout: cfg.ReadTimeout, Table: l.table, Dirty: &l.engine.dirty, Clock: wall, Calls: &l.calls,
		Trace: cfg.TraceBackground, EpochLost: func() { l.permits.Reservations.Lose() }})
	l.rules.Init(rules.Config{Source: cfg.Settings, Region: cfg.Region, NodeID: cfg.NodeID, RegionNodes: cfg.RegionNodes,
		Fleet: fleet, Clock: wall, Walk: l.table.Walk, Logger: cfg.Logger})
	l.engine.init(l)
	l.loops.rules, l.loops.logger, l.loops.trace = l.rules, cfg.Logger, cfg.TraceBackground
	l.reports.init(l)
	l.engine.stats.latency.Init(l.reports.startedAtMs)
	l.permits.Init(permits.Config{Origin: cfg.Origin, EntriesMax: cfg.EntriesMax, ReadTimeout: cfg.ReadTimeout,
		Clock: wall, Rules: l.rules, Out: l.out, Calls: &l.calls, Engine: &l.engine})
	return l, nil
}

// Allow decides r at the clock's time, and counts its cost if it is allowed.
//
// On a key that this node knows and has heard of lately, that is a look-up, a few
// loads and one compare-and-swap: no lock, no I/O, no allocation. A cold, stale or
// strict key asks the origin first, under Config.ReadTimeout and ctx, unless what
// is known already denies.
func (l *Limiter) Allow(ctx context.Context, r Request) (d Decision) {
	l.decide(ctx, l.clock.Now(), &r, nil, &d)
	return d
}

// AllowAt is Allow at a time of the caller's, at most Config.ClockSkewMax away from
// the clock's. Times of one key may run backwards a little: the key's cell that is
// current stays current.
func (l *Limiter) AllowAt(ctx context.Context, now time.Time, r Request) (d Decision) {
	var at clock.Stamp
	if at, d.Err = l.stamp(now); d.Err == nil {
		l.decide(ctx, at, &r, nil, &d)
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

// stamp converts a time that the caller passed. It returns an error if the time is too far from the
// clock.
func (l *Limiter) stamp(now time.Time) (clock.Stamp, error) {
	at, skew, ok := l.clock.At(now, l.cfg.ClockSkewMax)
	if !ok {
		return at, fmt.Errorf("%w: now is %v away from this node's clock (at most %v)", ErrInvalid, skew,
			l.cfg.ClockSkewMax)
	}
	return at, nil
}

// decide is the first half of the request path: validate → override → identity. It
// changes r if an override says so.
func (l *Limiter) decide(ctx context.Context, at clock.Stamp, r *Request, held *Reservation, d *Decision) {
	if !r.valid() {
		d.Err = r.Validate()
		return
	}
	by := r.resolve(l.engine.rules.InForce())
	var c call // set field by field: a literal would be made elsewhere and copied
	c.mode = by.Mode()
	id := l.table.IdentityOf(r.Workspace, r.Namespace, r.Identifier, r.Duration, c.mode)
	if by.Reset != nil {
		id.Renew(by.Reset)
	}
	c.id, c.request, c.nowMs, c.cached, c.known = &id, r, at.Ms, at.Cached, at.Known
	c.horizon = l.table.Horizon(at.Given)
	c.durationMs, c.limit, c.cost = r.Duration.Milliseconds(), r.Limit, r.cost()
	if c.counts = l.engine.stats.stripe(&c); c.counts.samples() {
		l.engine.decideTimed(ctx, &c, by, held, d)
		return
	}
	l.engine.decideCall(ctx, &c, by, l.table.Get(&id), held, d)
}

// alone reports whether the limiter has no origin.
func (l *Limiter) alone() bool { return l.cfg.Origin == nil }

func (l *Limiter) nowMs() int64 {
	return l.clock.ReadMs()
}
