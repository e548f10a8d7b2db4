package dataplane

import (
	"context"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// decide is the first half of the request path: validate → override → identity.
func (g *engine) decide(ctx context.Context, at clock.Stamp, r *Request, held *Allowance, d *Decision) {
	if !r.valid() {
		d.Err = r.Validate()
		return
	}
	limit, duration := r.Limit, r.Duration
	by := g.rules.InForce().Resolve(r.Workspace, r.Namespace, r.Identifier, &limit, &duration)
	var c call // set field by field: a literal would be made elsewhere and copied
	c.mode = by.Mode()
	id := g.table.IdentityOf(r.Workspace, r.Namespace, r.Identifier, duration, c.mode)
	if by.Reset != nil {
		id.Renew(by.Reset)
	}
	c.id, c.request, c.nowMs, c.cached, c.known = &id, r, at.Ms, at.Cached, at.Known
	c.horizon = g.table.Horizon(at.Given)
	c.durationMs, c.limit, c.own, c.cost = duration.Milliseconds(), limit, r.Limit, r.cost()
	if c.counts = g.stats.stripe(&c); c.counts.samples() {
		g.decideTimed(ctx, &c, by, held, d)
		return
	}
	g.decideCall(ctx, &c, by, g.table.Get(&id), held, d)
}

func (g *engine) decideTimed(ctx context.Context, c *call, by *rules.Rule, held *Allowance, d *Decision) {
	began := g.clock.Elapsed()
	g.decideCall(ctx, c, by, g.table.Get(c.id), held, d)
	g.stats.latency.Observe(d.Source == SourceLocal, g.clock.Elapsed()-began)
}

// decideCall is the second half: entry → (refresh) → judge → answer, into d. e is the key's entry if the caller has
// it. decideCall returns the entry that it used, if the table holds it. held, if not nil, receives the counted cost.
func (g *engine) decideCall(ctx context.Context, c *call, by *rules.Rule, e *cell.Entry, held *Allowance,
	d *Decision) *cell.Entry {
	met, counting := cell.Known, c.counting()
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
		if by.Precise || e.Flags().Precise() { // else the entry has the namespace's window
			if !e.Flags().HaveWindow(by.Precise) && g.setWindow(e, by.Precise) {
				e, met = g.table.Get(c.id), cell.Known
				continue
			}
		}
		var v cell.Verdict
		source, alive := SourceLocal, false
		switch {
		case by.Estimate != nil:
			v.Now = g.steadyFor(c.cached)
			alive = e.Estimates().Judge(&v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.request.peek,
				&by.Estimate.Rules)
		case g.alone:
			alive = e.Judge(&v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, counting)
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
			setRetry(e, &v, c, by)
			if c.cached && v.Counted == 0 && !v.Refused && g.soon(&v, c) {
				continue
			}
		case by.Estimate == nil && counting:
			v.Counted = c.cost
		}
		if held != nil && v.Allowed && v.Counted > 0 {
			*held = Allowance{g, e, v.Sequence, c.limit, v.Counted, met == cell.Untracked, !c.known}
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

// setWindow switches an entry between a precise window and cells. It reports whether the caller must look the key up
// again.
func (g *engine) setWindow(e *cell.Entry, precise bool) (replaced bool) {
	replaced = g.table.SetWindow(e, precise)
	if e = g.table.Get(e.Identity()); replaced && e != nil && g.table.Fleet {
		g.dirty.Mark(e, cell.Dirty) // it may have the unsent cost of the entry that it replaces
	}
	return replaced
}

// plain reports whether a decision is counted by its source and outcome alone.
func plain(v *cell.Verdict, by *rules.Rule) bool {
	return !v.Refused && !by.Special
}

// count adds a decision to the metrics, and to the sample of denied keys.
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
	if by.Trial != nil {
		g.compare(e, v, c, by, source)
	}
}

// judgeInFleet judges and counts on a node with an origin. It reads the origin first if the key is cold, stale or
// strict, and where a namespace waits for its share. If the origin does not answer, the namespace's outage policy
// decides.
func (g *engine) judgeInFleet(ctx context.Context, v *cell.Verdict, e *cell.Entry, met cell.Contact, c *call,
	by *rules.Rule) (source Source, alive bool) {
	source, alive = SourceLocal, true
	if met == cell.Untracked {
		return g.judgeUntracked(ctx, v, e, c, by)
	}
	now, set, fresh := g.clock.Steady(), g.rules.InForce(), true
	if !c.known || e.Reads().WantsRefresh(now, set.FreshForMs) || g.asksFirst(e, c, now, set) ||
		by.Outage == rules.OutageClosed && g.out.Refuses(e) {
		if g.waitsAnyway(e, c, by, now) {
			fresh = false
		} else if source, alive = g.refreshFor(ctx, e, c, by.Outage); source == SourceOrigin && g.settle(c) {
			alive = alive && !g.out.Renumber(e, c.horizon, c.nowMs)
		}
	}
	switch {
	case !alive:
		return source, false
	case by.Waits && !source.Degraded():
		return g.judgeByNodeShare(ctx, v, e, c, source, by, fresh)
	case source.Degraded() && source != SourceDegraded:
		return source, g.judgeOut(v, e, c, source)
	}
	return source, e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.counting())
}

// soon reports whether a denial by a cached time would end within clock.StaleMax and the clock has moved on. If so,
// it sets c to the clock's time. So a caller that returns after exactly the promised RetryAfter is allowed.
func (g *engine) soon(v *cell.Verdict, c *call) bool {
	c.cached = false
	if v.PassesAtMs == 0 || v.PassesAtMs-c.nowMs > clock.StaleMax.Milliseconds() {
		return false
	}
	before := c.nowMs
	c.nowMs = max(before, g.clock.ReadMs())
	return c.nowMs > before
}

// oversized answers a cost above the limit on a key without an entry. It is denied whatever other nodes have counted,
// and leaves nothing to store.
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
		if c.ahead+c.cost <= c.limit && !c.request.peek { // else an empty key denies it too, or it is a peek
			g.markStrict(e, v.Sequence, c)
		}
		return
	case v.Counted == 0 || met == cell.Untracked:
		return
	}
	marks := g.marks
	if met == cell.Created {
		marks &^= cell.Used // a single request marks nothing: only a second request marks the key as used
	}
	flags := e.Flags()
	if !flags.Have(marks) {
		g.dirty.Mark(e, marks)
	}
	if flags.Precise() {
		e.Histories().Note(v.Sequence, v.AtMs)
	}
	if shift := g.rules.InForce().NearShift; shift != 0 && v.Previous+v.Current+c.ahead+c.cost >= c.limit>>shift {
		g.flushOverHalf(e, v, c)
	}
}

// markStrict makes the key strict, so that it is read from the origin first. A denial changes no count.
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
