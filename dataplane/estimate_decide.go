package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
)

// The estimate mode's half of the request path. It decides at once by what is known,
// whatever its age, and at most leaves a note that the key should hear from the origin:
// no request ever waits, reads or sends.

// decideEstimate is decideCall in the estimate mode. Its source is always local.
func (l *Limiter) decideEstimate(q *call, by *rule, e *cell.Entry, held *Reservation, d *Decision) *cell.Entry {
	met := cell.Known
	for {
		if e == nil {
			e, met = l.meet(q, by)
		}
		v := cell.Estimated{Now: l.steadyFor(q.cached)}
		alive := e.Estimate(&v, q.nowMs, q.durationMs, q.limit, q.cost, q.request.peek, &by.estimate.Rules)
		if v.AgedOut > 0 {
			l.forgot(e, v.AgedOut)
		}
		if !alive {
			e, met = l.table.Get(q.id), cell.Known
			continue
		}
		if !v.Allowed {
			tellRetryEstimated(&v, q, by.estimate)
			if v.Counted == 0 && q.cached && l.soon(&v.Verdict, q) {
				continue
			}
		}
		if held != nil && v.Allowed && v.Counted > 0 {
			*held = Reservation{l, e, v.Sequence, q.limit, v.Counted, met == cell.Untracked}
		}
		out := d.answerEstimate(&v, q, by)
		if !q.request.peek {
			l.countEstimate(e, met, q, by, d, out)
		}
		if met == cell.Untracked {
			l.spill(e, v.Sequence, v.Counted, q.nowMs)
			l.metrics.crowd.decided(SourceLocal)
			l.table.Guests.Leave(q.id)
			return nil
		}
		l.pressed(e, met, &v, q, by.estimate)
		return e
	}
}

// steadyFor is the steady time of a decision: as late as the decision's own, see soon.
func (l *Limiter) steadyFor(cached bool) clock.Steady {
	switch {
	case l.shards == nil:
		return 0 // nothing lasts for a while on a node without an origin
	case cached:
		return l.clock.Steady()
	}
	return l.clock.ReadSteady()
}

// countEstimate puts a decision into the metrics and among the keys that are denied.
func (l *Limiter) countEstimate(e *cell.Entry, met cell.Contact, q *call, by *rule, d *Decision, out outcome) {
	if n := q.counts.estimated(out, met); out != outcomeAllowed {
		l.tally(e, q, n)
	}
	if by.candidate != 0 {
		q.counts.compared(d)
	}
}

// pressed leaves on the entry what a decision means for those who come later: marks for
// the sweep and the flush, its tier, and whether it should hear from the origin.
func (l *Limiter) pressed(e *cell.Entry, met cell.Contact, v *cell.Estimated, q *call, k *estimateSettings) {
	flags := e.Flags()
	var marks uint32
	if met == cell.Known {
		marks = cell.Touched
	}
	if v.Counted > 0 && l.cfg.Counts != nil {
		marks |= cell.Dirty
		e.NoteLimit(v.Sequence, q.limit)
	}
	t := level.TierOf(v.At+float64(q.ahead+v.Counted), q.limit)
	if t >= level.Normal || !v.Allowed {
		marks |= cell.Pressed(v.Sequence)
	}
	if !flags.Have(marks) {
		l.dirty.Mark(e, marks)
	}
	if !flags.Estimates() {
		return
	}
	if was := flags.Tier(); was != t {
		if was = e.MoveTier(t); was != t {
			l.table.Tiers.Move(was, t)
		}
	}
	heardMs := int64(e.RefreshedAt())
	switch {
	case t.Overdue(int64(v.Now), heardMs, k.syncBaseMs) && (!t.Costly(heardMs) || e.Pending() >= level.EffectiveFloor(k.floor, q.limit)):
		if e.Want(q.limit, v.Now) {
			l.syncs.queued.Add(1)
		}
		if !flags.Asked() {
			l.askSync(e, k)
		}
	case !flags.Asked() && v.Counted > 0 && (t == level.Hot || level.PassesStep(v.Current+q.ahead, v.Counted, k.floor, q.limit)):
		l.askSync(e, k) // only to send it: the others' readings depend on it
	}
}

// estimate is judge's part for an item of the estimate mode.
func (it *item) estimate(first *item) {
	v := cell.Estimated{Now: it.steady}
	first.entry.EstimateHeld(&v, it.nowMs, it.durationMs, it.limit, it.ahead+it.cost, &it.rule.estimate.Rules)
	it.verdict, it.level, it.leaky, it.unknown = v.Verdict, v.Level, v.Leaky, v.Unknown
}

// answerEstimated words one item's verdict in the estimate mode.
func (l *Limiter) answerEstimated(it *item, kept bool, first *item, d *Decision) {
	v := cell.Estimated{Verdict: it.verdict, Now: it.steady, Level: it.level, Leaky: it.leaky, Unknown: it.unknown}
	if !v.Allowed {
		tellRetryEstimated(&v, &it.call, it.rule.estimate)
	}
	out := d.answerEstimate(&v, &it.call, it.rule)
	if !kept {
		d.Remaining = v.Level.Remaining(it.limit, it.durationMs, it.rule.estimate.Below)
	}
	switch {
	case it.rule.estimate.Offered, kept && it.verdict.Allowed:
		v.Counted = it.cost
	case !kept:
		it.ahead = 0 // was not counted either
	}
	l.countEstimate(first.entry, first.met, &it.call, it.rule, d, out)
	if first.met == cell.Untracked {
		return
	}
	l.pressed(first.entry, first.met, &v, &it.call, it.rule.estimate)
}
