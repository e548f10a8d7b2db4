package dataplane

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/held"
	"github.com/weirhq/weir/dataplane/internal/leases"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/shared/window"
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

	slots  *slots.Table // of concurrency limits
	leases leases.Book  // of holders outside of this process

	startedAtMs int64
	shape       atomic.Pointer[shape]
	top         top
	full        fullLog
	loops       loop.Lifecycle
	calls       loop.Calls // to the origin, on behalf of decisions

	there held.There // reservations at the origin
	here  held.Here  // reservations of this process
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
		Trace: cfg.TraceBackground, EpochLost: func() { l.there.Lose() }})
	l.rules.Init(rules.Config{Source: cfg.Settings, Region: cfg.Region, NodeID: cfg.NodeID, RegionNodes: cfg.RegionNodes,
		Fleet: fleet, Clock: wall, Walk: l.table.Walk, Logger: cfg.Logger})
	l.engine.init(l)
	l.startedAtMs = l.nowMs()
	l.engine.stats.latency.Init(l.startedAtMs)
	l.holds()
	l.newSlots()
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

// call is a valid request with everything resolved: what the rest of the path
// works on. It lives on the caller's stack, and so do the things that it points to.
type call struct {
	id         *cell.Identity
	request    *Request // its names; everything else is here
	nowMs      int64
	durationMs int64
	limit      int64
	cost       int64
	mode       window.Mode
	ahead      int64 // in a batch: cost of the items before on the same key
	counts     *stripe
	until      time.Duration // since the clock's base: until when the decision may wait, once it has begun to
	known      bool          // nowMs is of the origin's clock, or there is no origin
	horizon    *cell.Horizon // keeps nowMs from moving entries past the clock
	cached     bool          // nowMs is the clock's cached time, and may be a little late
}

// counting is true of a call that leaves a trace if it is allowed.
func (c *call) counting() bool { return c.cost > 0 && !c.request.peek }

func (c *call) key() window.Key {
	k := c.request.key()
	k.Duration, k.Mode = milliseconds(c.durationMs), c.mode
	return k
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

func (g *engine) decideTimed(ctx context.Context, c *call, by *rules.Rule, held *Reservation, d *Decision) {
	began := g.clock.Elapsed()
	g.decideCall(ctx, c, by, g.table.Get(c.id), held, d)
	g.stats.latency.Observe(d.Source == SourceLocal, g.clock.Elapsed()-began)
}

// decideCall is the second half: entry → (refresh) → judge → answer, into d. e is the key's
// entry if the caller has it; the one that was used is returned if the table holds it.
// held, if there is one, takes what was counted.
func (g *engine) decideCall(ctx context.Context, c *call, by *rules.Rule, e *cell.Entry, held *Reservation,
	d *Decision) *cell.Entry {
	met := cell.Known
	for {
		if e == nil {
			if c.cost > c.limit && by.Estimate == nil {
				g.oversized(c, by, d)
				return nil
			}
			e, met = g.findOrAdd(ctx, c, by)
		} else if e.Before(c.nowMs, c.durationMs) && g.out.SetRight(e) {
			e = g.table.Get(c.id)
			continue
		}
		var v cell.Verdict
		source, alive := SourceLocal, false
		switch {
		case by.Estimate != nil:
			v.Now = g.steadyFor(c.cached)
			alive = e.Estimates().Judge(&v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.request.peek,
				&by.Estimate.Rules)
		case g.alone:
			alive = e.Judge(&v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.counting())
		default:
			source, alive = g.judgeInFleet(ctx, &v, e, met, c, by)
		}
		if v.AgedOut > 0 {
			g.out.ForgetUnsent(e, v.AgedOut)
		}
		if !alive { // evicted or moved to another cell, or the clock was set back: look up the key and the time again
			if met == cell.Untracked {
				g.table.UntrackedKeys.Release(c.id)
			}
			e, met = g.table.Get(c.id), cell.Known
			c.nowMs = c.horizon.Bound(c.nowMs)
			continue
		}
		switch {
		case !v.Allowed:
			setRetry(&v, c, by)
			if c.cached && v.Counted == 0 && !v.Refused && g.soon(&v, c) {
				continue
			}
		case by.Estimate == nil && c.counting():
			v.Counted = c.cost
		}
		if held != nil && v.Allowed && v.Counted > 0 {
			*held = Reservation{g, e, v.Sequence, c.limit, v.Counted, met == cell.Untracked, !c.known}
		}
		out := d.answer(&v, c, by, source)
		if met == cell.Untracked && !v.Claimed {
			g.out.Spill(e, v.Sequence, v.Counted)
		}
		g.mark(e, met, &v, c, by)
		if !c.known && g.clock.Known() {
			g.out.Place(e) // the cost came too late to be moved with the other entries
		}
		switch {
		case c.request.peek:
		case plain(&v, by):
			if n := c.counts.decided(source, out, 1); out != outcomeAllowed {
				g.tally(e, c, n)
			}
		default:
			g.count(e, met, &v, c, by, source, d, out)
		}
		return g.used(e, met, c, source)
	}
}

// plain is true of decisions that are counted by their source and outcome alone.
func plain(v *cell.Verdict, by *rules.Rule) bool {
	return !v.Refused && by.Estimate == nil && by.Candidate == 0
}

// count puts a decision into the metrics and among the keys that are denied.
func (g *engine) count(e *cell.Entry, met cell.Contact, v *cell.Verdict, c *call, by *rules.Rule, source Source,
	d *Decision, out outcome) {
	var n int64
	if by.Estimate != nil {
		n = c.counts.estimated(out, met)
	} else {
		n = c.counts.decided(source, out, 1)
	}
	switch {
	case v.Refused:
		c.counts.refused.Add(1)
	case !v.Allowed:
		g.tally(e, c, n)
	}
	if by.Candidate != 0 {
		c.counts.compared(d)
	}
}

// judgeInFleet judges and counts on a node with an origin, which it asks first about a
// key that is cold, stale or strict, and where a namespace waits for its share. What it
// could not ask is judged by the namespace's outage policy.
func (g *engine) judgeInFleet(ctx context.Context, v *cell.Verdict, e *cell.Entry, met cell.Contact, c *call,
	by *rules.Rule) (source Source, alive bool) {
	source, alive = SourceLocal, true
	if met == cell.Untracked {
		return g.judgeUntracked(ctx, v, e, c, by)
	}
	now, set := g.clock.Steady(), g.rules.InForce()
	if !c.known || e.Reads().WantsRefresh(now, set.FreshForMs) || g.asksFirst(e, c, now, set) ||
		by.Outage == rules.OutageClosed && g.out.Refuses(e) {
		if source, alive = g.refreshFor(ctx, e, c, by.Outage); source == SourceOrigin && g.settle(c) {
			alive = alive && !g.out.Renumber(e, c.horizon, c.nowMs)
		}
	}
	switch {
	case !alive:
		return source, false
	case by.Waits && !source.Degraded():
		return g.judgeByNodeShare(ctx, v, e, c, source, by)
	case source.Degraded() && source != SourceDegraded:
		return source, g.judgeOut(v, e, c, source)
	}
	return source, e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.counting())
}

// soon is true when a denial by a cached time would end within clock.StaleMax and the clock has moved on; it sets c to
// the clock's time. A caller that returns after exactly the promised RetryAfter is let in.
func (g *engine) soon(v *cell.Verdict, c *call) bool {
	c.cached = false
	if v.PassesAtMs == 0 || v.PassesAtMs-c.nowMs > clock.StaleMax.Milliseconds() {
		return false
	}
	before := c.nowMs
	c.nowMs = max(before, g.clock.ReadMs())
	return c.nowMs > before
}

// oversized answers a cost above the limit on a key that is not held: denied
// whatever is known elsewhere, and nothing to remember.
func (g *engine) oversized(c *call, by *rules.Rule, d *Decision) {
	v := cell.Verdict{Sequence: window.Sequence(c.nowMs, c.durationMs), AtMs: c.nowMs}
	if out := d.answer(&v, c, by, SourceLocal); !c.request.peek {
		g.count(nil, cell.Known, &v, c, by, SourceLocal, d, out)
	}
}

// mark flags the entry for later requests: dirty if the decision counted, strict if it was a denial. A refusal by the
// outage policy sets no flag.
func (g *engine) mark(e *cell.Entry, met cell.Contact, v *cell.Verdict, c *call, by *rules.Rule) {
	switch {
	case v.Refused:
		return
	case by.Estimate != nil:
		g.estimated(e, met, v, c, by.Estimate)
		return
	case !v.Allowed:
		if c.ahead+c.cost <= c.limit && !c.request.peek { // else: denied on an empty key too, or leaves it as it is
			g.markStrict(e, v.Sequence, c)
		}
		return
	case v.Counted == 0 || met == cell.Untracked:
		return
	}
	marks := g.marks
	if met == cell.Created {
		marks &^= cell.Used // only a second contact tells a caller from a one-shot
	}
	flags := e.Flags()
	if !flags.Have(marks) {
		g.dirty.Mark(e, marks)
	}
	if shift := g.rules.InForce().NearShift; shift != 0 && v.Previous+v.Current+c.ahead+c.cost >= c.limit>>shift {
		g.flushOverHalf(e, v, c)
	}
}

// markStrict makes the key strict. A denial changes no count.
func (g *engine) markStrict(e *cell.Entry, sequence int64, c *call) {
	marks := cell.Used | cell.Denied(sequence)
	flags := e.Flags()
	if !flags.Have(marks) {
		g.dirty.Mark(e, marks)
	}
	if !g.table.Fleet {
		return // no origin to read
	}
	strictMs := g.rules.InForce().StrictForMs
	if strictMs == 0 {
		strictMs = c.durationMs
	}
	now := g.clock.Steady()
	wasStrict := e.Reads().IsStrict(now)
	if e.Reads().BeStrict(now+clock.Steady(strictMs)) && !wasStrict {
		g.stats.strictActivations.Add(1)
	}
}

// alone reports whether the limiter has no origin.
func (l *Limiter) alone() bool { return l.cfg.Origin == nil }

func (l *Limiter) nowMs() int64 {
	return l.clock.ReadMs()
}
