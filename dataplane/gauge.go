package dataplane

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/shared/window"
)

// The estimate mode's half of the request path. It decides at once by what is known,
// whatever its age, and at most leaves a note that the key should hear from the origin:
// no request ever waits, reads or sends.

// meter is what a key has in the estimate mode on a node with an origin.
type meter struct {
	reading   atomic.Pointer[reading] // what the origin last told; nil: never
	wantSince atomic.Int64            // steadyMs since when a sync is wanted, 0 for not
	limit     atomic.Int64            // that the key was judged by when it wanted one
}

// want notes that a sync is wanted, and by which limit; first is false if one was already.
func (m *meter) want(q *question, now clock.Steady) (first bool) {
	if m.wantSince.Load() != 0 || !m.wantSince.CompareAndSwap(0, int64(now)) {
		return false
	}
	m.limit.Store(q.limit)
	return true
}

// reading is what a node knows of a key after a sync. Immutable.
type reading struct {
	sequence int64         // of the cell that was current
	atMs     int64         // Unix ms: what known was weighed at
	steady   clock.Steady  // the same moment: what has drained since
	known    level.Product // the level by two cells, * duration
	covered  [2]int64      // by slot: the part of each cell's count that is in known, or the others'
}

// at is the reading once a later cell has become current: it covers nothing of that.
func (r *reading) at(sequence int64) reading {
	next := *r
	next.sequence = sequence
	switch sequence - r.sequence {
	case 0:
	case 1:
		next.covered[slotOf(sequence)] = 0
	default:
		next.covered = [2]int64{}
	}
	return next
}

// cover keeps cost of others that a reply has brought between two readings apart from the
// local cost.
func (m *meter) cover(sequence int64, slot int, cost int64) {
	if r := m.reading.Load(); r != nil {
		next := r.at(sequence)
		next.covered[slot] += cost
		m.reading.Store(&next)
	}
}

// estimated is a verdict and the level that it was passed on.
type estimated struct {
	verdict
	level   level.Level // without the cost
	now     clock.Steady
	leaky   bool    // what level was found by
	unknown bool    // nothing is known of the key: it passes
	at      float64 // the level as answered
	counted int64   // of the cost: all or nothing of it, unless the counter is full
}

// askEstimate is ask in the estimate mode. Its source is always local.
func (l *Limiter) askEstimate(q *question, by *rule, e *entry, held *Reservation, d *Decision) *entry {
	met := known
	for {
		if e == nil {
			e, met = l.meet(q, by)
		}
		v := estimated{now: l.steadyFor(q.told)}
		alive := e.estimate(&v, q, by.estimate)
		if v.agedOut > 0 {
			l.forgot(e, v.agedOut)
		}
		if !alive {
			e, met = l.table.get(q.id), known
			continue
		}
		if !v.allowed {
			v.tellRetry(q, by.estimate)
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

// estimate is judge in the estimate mode: it judges q, and counts its cost if it is
// allowed or if all that is offered counts, as one atomic step. alive is false when the
// entry was evicted; then nothing was decided.
func (e *entry) estimate(v *estimated, q *question, k *knobs) (alive bool) {
	for {
		seq := e.seq.Load()
		v.seq, v.tMs = seq, q.nowMs
		start := window.Start(seq, q.durationMs)
		switch elapsed := q.nowMs - start; {
		case elapsed < 0:
			v.tMs = start
		case elapsed >= q.durationMs:
			lost, alive := e.rotate(window.Sequence(q.nowMs, q.durationMs))
			v.agedOut += lost
			if !alive {
				return false
			}
			continue
		}
		slot := slotOf(seq)
		word := e.words[slot].Load()
		if !wordIsLive(word, seq) {
			if !e.settle(slot) {
				return false
			}
			continue
		}
		e.gauge(v, slot, word, q.limit, q.cost, q.durationMs, k)
		sum := word
		if v.counted = 0; (v.allowed || k.offered) && !q.request.peek {
			sum, v.counted = plus(word, q.cost, mergedMax)
			e.noteLow(slot, q.limit)
		}
		switch {
		case v.counted > 0:
			if e.words[slot].CompareAndSwap(word, sum) {
				return true
			}
		case wordIsLive(e.words[slot].Load(), seq):
			return true
		}
	}
}

// estimateHeld is estimate for a batch that holds the entry; it counts nothing.
func (e *entry) estimateHeld(v *estimated, tMs, durationMs, limit, cost int64, k *knobs) {
	v.seq = e.seq.Load()
	v.tMs = max(tMs, window.Start(v.seq, durationMs))
	slot := slotOf(v.seq)
	e.gauge(v, slot, e.words[slot].Load(), limit, cost, durationMs, k)
}

// gauge is the arithmetic of an estimate on the cell whose word was read. A sync that
// comes in between its reads can make the level too high, by what it brings, for this
// one decision.
func (e *entry) gauge(v *estimated, slot int, word uint64, limit, cost, durationMs int64, k *knobs) {
	before := previousSlot(slot)
	v.current = max(0, wordCount(word)+e.others[slot].Load())
	v.previous = max(0, wordCount(e.words[before].Load())+e.others[before].Load())
	metered := e.flags.Load()&flagEstimate != 0
	if metered && k.leaky {
		v.leaky = true
		v.unknown = e.leak(v, slot, limit, durationMs, k)
	} else {
		v.level = level.OfCells(v.current, v.previous, window.Start(v.seq+1, durationMs)-v.tMs, durationMs)
		v.unknown = metered && v.current == 0 && v.previous == 0 && e.heardAt.Load() == 0
	}
	v.allowed = v.unknown && limit > 0 || v.level.Fits(cost, limit, durationMs, k.below)
}

// leak is the leaky level. Without any word from the origin it is all local cost, and
// says nothing about the region: unknown.
func (e *entry) leak(v *estimated, slot int, limit, durationMs int64, k *knobs) (unknown bool) {
	m := e.book.meter()
	r := m.reading.Load()
	if r == nil {
		v.level = level.Local(v.current + v.previous)
		return true
	}
	covered := r.at(v.seq).covered
	pending := v.current + v.previous - covered[0] - covered[1]
	if since := m.wantSince.Load(); since != 0 && int64(v.now)-since >= k.outageOf(durationMs) {
		pending = 0 // nobody has drained it: it would cut off an innocent key for the whole outage
	}
	v.level = level.Leaky(r.known, int64(v.now-r.steady), max(0, pending), limit)
	return false
}

func (k *knobs) outageOf(durationMs int64) int64 {
	if k.outageMs == 0 {
		return durationMs
	}
	return k.outageMs
}

// pressed leaves on the entry what a decision means for those who come later: marks for
// the sweep and the flush, its tier, and whether it should hear from the origin.
func (l *Limiter) pressed(e *entry, met contact, v *estimated, q *question, k *knobs) {
	flags := e.flags.Load()
	var marks uint32
	if met == known {
		marks = flagTouched
	}
	if v.counted > 0 && l.cfg.Counts != nil {
		marks |= flagDirty
		e.noteLow(slotOf(v.seq), q.limit)
	}
	t := level.TierOf(v.at+float64(q.ahead+v.counted), q.limit)
	if t >= level.Normal || !v.allowed {
		marks |= flagPressed << slotOf(v.seq)
	}
	if flags&marks != marks {
		l.mark(e, marks)
	}
	if flags&flagEstimate == 0 {
		return
	}
	if was := level.Tier(flags >> tierShift); was != t {
		if was = e.moveTier(t); was != t {
			l.table.tiers.move(was, t)
		}
	}
	heardMs := e.heardAt.Load()
	switch {
	case t.Overdue(int64(v.now), heardMs, k.syncBaseMs) && (!t.Costly(heardMs) || e.pending() >= level.EffectiveFloor(k.floor, q.limit)):
		if e.book.meter().want(q, v.now) {
			l.syncs.queued.Add(1)
		}
		if flags&flagAsked == 0 {
			l.askSync(e, k)
		}
	case flags&flagAsked == 0 && v.counted > 0 && (t == level.Hot || level.PassesStep(v.current+q.ahead, v.counted, k.floor, q.limit)):
		l.askSync(e, k) // only to send it: the others' readings depend on it
	}
}

// pending is local cost that no sync has covered, roughly: it takes no lock.
func (e *entry) pending() int64 {
	seq := e.seq.Load()
	slot := slotOf(seq)
	r := e.book.meter().reading.Load()
	pending := wordCount(e.words[slot].Load()) + e.others[slot].Load() +
		wordCount(e.words[previousSlot(slot)].Load()) + e.others[previousSlot(slot)].Load()
	if r != nil {
		covered := r.at(seq).covered
		pending -= covered[0] + covered[1]
	}
	return pending
}

// estimate is judge's part for an item of the estimate mode.
func (it *item) estimate(first *item) {
	v := estimated{now: it.steady}
	first.entry.estimateHeld(&v, it.nowMs, it.durationMs, it.limit, it.ahead+it.cost, it.rule.estimate)
	it.verdict, it.level, it.leaky, it.unknown = v.verdict, v.level, v.leaky, v.unknown
}

// answerEstimated words one item's verdict in the estimate mode.
func (l *Limiter) answerEstimated(it *item, kept bool, first *item, d *Decision) {
	v := estimated{verdict: it.verdict, now: it.steady, level: it.level, leaky: it.leaky, unknown: it.unknown}
	if !v.allowed {
		v.tellRetry(&it.question, it.rule.estimate)
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
