package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
)

// The estimate mode's half of the request path. It decides at once by what is known,
// whatever its age, and at most leaves a note that the key should hear from the origin:
// no request ever waits, reads or sends.

// askEstimate is ask in the estimate mode. Its source is always local.
func (l *Limiter) askEstimate(q *question, by *rule, e *entry, held *Reservation, d *Decision) *entry {
	met := known
	for {
		if e == nil {
			e, met = l.meet(q, by)
		}
		v := estimated{now: l.steadyFor(q.told)}
		alive := e.estimate(&v, q.nowMs, q.durationMs, q.limit, q.cost, q.request.peek, &by.estimate.rules)
		if v.agedOut > 0 {
			l.forgot(e, v.agedOut)
		}
		if !alive {
			e, met = l.table.get(q.id), known
			continue
		}
		if !v.allowed {
			tellRetryEstimated(&v, q, by.estimate)
			if v.counted == 0 && q.told && l.soon(&v.verdict, q) {
				continue
			}
		}
		if held != nil && v.allowed && v.counted > 0 {
			*held = Reservation{l, e, v.seq, q.limit, v.counted, met == untracked}
		}
		out := d.answerEstimate(&v, q, by)
		if !q.request.peek {
			l.countEstimate(e, met, q, by, d, out)
		}
		if met == untracked {
			l.spill(e, v.seq, v.counted, q.nowMs)
			l.metrics.crowd.decided(SourceLocal)
			l.table.guests.leave(q.id)
			return nil
		}
		l.pressed(e, met, &v, q, by.estimate)
		return e
	}
}

// steadyFor is the steady time of a decision: as late as the decision's own, see soon.
func (l *Limiter) steadyFor(told bool) clock.Steady {
	switch {
	case l.shards == nil:
		return 0 // nothing lasts for a while on a node without an origin
	case told:
		return l.clock.Steady()
	}
	return l.clock.ReadSteady()
}

// countEstimate puts a decision into the metrics and among the keys that are denied.
func (l *Limiter) countEstimate(e *entry, met contact, q *question, by *rule, d *Decision, out outcome) {
	if n := q.counts.estimated(out, met); out != outcomeAllowed {
		l.tally(e, q, n)
	}
	if by.candidate != 0 {
		q.counts.compared(d)
	}
}

// pressed leaves on the entry what a decision means for those who come later: marks for
// the sweep and the flush, its tier, and whether it should hear from the origin.
func (l *Limiter) pressed(e *entry, met contact, v *estimated, q *question, k *knobs) {
	flags := e.marks()
	var marks uint32
	if met == known {
		marks = flagTouched
	}
	if v.counted > 0 && l.cfg.Counts != nil {
		marks |= flagDirty
		e.noteLimit(v.seq, q.limit)
	}
	t := level.TierOf(v.at+float64(q.ahead+v.counted), q.limit)
	if t >= level.Normal || !v.allowed {
		marks |= pressedMark(v.seq)
	}
	if !flags.have(marks) {
		l.dirty.mark(e, marks)
	}
	if !flags.estimates() {
		return
	}
	if was := flags.tier(); was != t {
		if was = e.moveTier(t); was != t {
			l.table.tiers.move(was, t)
		}
	}
	heardMs := int64(e.refreshed())
	switch {
	case t.Overdue(int64(v.now), heardMs, k.syncBaseMs) && (!t.Costly(heardMs) || e.pending() >= level.EffectiveFloor(k.floor, q.limit)):
		if e.want(q.limit, v.now) {
			l.syncs.queued.Add(1)
		}
		if !flags.asked() {
			l.askSync(e, k)
		}
	case !flags.asked() && v.counted > 0 && (t == level.Hot || level.PassesStep(v.current+q.ahead, v.counted, k.floor, q.limit)):
		l.askSync(e, k) // only to send it: the others' readings depend on it
	}
}

// estimate is judge's part for an item of the estimate mode.
func (it *item) estimate(first *item) {
	v := estimated{now: it.steady}
	first.entry.estimateHeld(&v, it.nowMs, it.durationMs, it.limit, it.ahead+it.cost, &it.rule.estimate.rules)
	it.verdict, it.level, it.leaky, it.unknown = v.verdict, v.level, v.leaky, v.unknown
}

// answerEstimated words one item's verdict in the estimate mode.
func (l *Limiter) answerEstimated(it *item, kept bool, first *item, d *Decision) {
	v := estimated{verdict: it.verdict, now: it.steady, level: it.level, leaky: it.leaky, unknown: it.unknown}
	if !v.allowed {
		tellRetryEstimated(&v, &it.question, it.rule.estimate)
	}
	out := d.answerEstimate(&v, &it.question, it.rule)
	if !kept {
		d.Remaining = v.level.Remaining(it.limit, it.durationMs, it.rule.estimate.below)
	}
	switch {
	case it.rule.estimate.offered, kept && it.verdict.allowed:
		v.counted = it.cost
	case !kept:
		it.ahead = 0 // was not counted either
	}
	l.countEstimate(first.entry, first.met, &it.question, it.rule, d, out)
	if first.met == untracked {
		return
	}
	l.pressed(first.entry, first.met, &v, &it.question, it.rule.estimate)
}
