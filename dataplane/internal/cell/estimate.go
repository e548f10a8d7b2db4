package cell

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/shared/window"
)

// TierCounts counts the keys in each tier, and their moves between tiers.
type TierCounts struct {
	Keys  [level.Tiers]atomic.Int64
	Moves [level.Tiers][level.Tiers]atomic.Int64
}

// Move counts a key that moves from a tier to another.
func (c *TierCounts) Move(from, to level.Tier) {
	c.Keys[from].Add(-1)
	c.Keys[to].Add(1)
	c.Moves[from][to].Add(1)
}

// Flags of an entry in the estimate mode, above all others.
const (
	flagEstimate = 1 << 28 // it has a meter
	flagAsked    = 1 << 29 // it waits for a sync, or is part of a running sync
	tierShift    = 30      // two bits
	flagsOfTier  = 3 << tierShift
)

// Estimates is the part of an entry that the estimate mode needs: it judges by estimates, and reads the key from the
// origin by syncs.
//
// It owns the meter, which an entry with flagEstimate has, and the flags of tiers and syncs. An entry without a meter,
// on a node alone, is judged by its two cells.
type Estimates struct{ e *Entry }

// Estimates returns the part of the entry that the estimate mode needs.
func (e *Entry) Estimates() Estimates { return Estimates{e} }

func (es Estimates) tier() level.Tier { return es.e.Flags().Tier() }

// Tier returns the tier of an entry of the estimate mode.
func (f Flags) Tier() level.Tier { return level.Tier(f >> tierShift) }

// MoveTier returns the key's tier before the call. An evicted key stays in the tier in which it was counted.
func (es Estimates) MoveTier(to level.Tier) (from level.Tier) {
	for {
		flags := es.e.flags.Load()
		if flags&flagDead != 0 {
			return to
		}
		if es.e.flags.CompareAndSwap(flags, flags&^uint32(flagsOfTier)|uint32(to)<<tierShift) {
			return level.Tier(flags >> tierShift)
		}
	}
}

// meter holds a key's data for the estimate mode on a node with an origin.
type meter struct {
	reading   atomic.Pointer[reading] // made from the origin's last answer; nil: no answer yet
	wantSince atomic.Int64            // clock.Steady since when a sync is wanted, 0 for not
	limit     atomic.Int64            // by which the key was judged when it wanted a sync
}

// Want records that a sync is wanted, and the limit. first is false if a sync was wanted already.
func (es Estimates) Want(limit int64, now clock.Steady) (first bool) {
	m := es.e.Ledger().meter()
	if m.wantSince.Load() != 0 || !m.wantSince.CompareAndSwap(0, int64(now)) {
		return false
	}
	m.limit.Store(limit)
	return true
}

// Judge is Entry.Judge in the estimate mode: it judges a cost, and counts it if it is allowed or if the rules count all
// offered cost, as one atomic step. alive is as in Entry.Judge.
func (es Estimates) Judge(v *Verdict, h *Horizon, tMs, durationMs, limit, cost int64, peek bool,
	k *Rules) (alive bool) {
	for {
		seq := es.e.counter.sequence()
		v.Sequence, v.AtMs = seq, tMs
		start := window.Start(seq, durationMs)
		switch elapsed := tMs - start; {
		case elapsed < 0:
			v.AtMs = start
		case elapsed >= durationMs:
			lost, alive := es.e.rotate(h, window.Sequence(tMs, durationMs))
			v.AgedOut += lost
			if !alive {
				return false
			}
			continue
		}
		slot := slotOf(seq)
		word := es.e.counter.word(slot)
		if !wordIsLive(word, seq) {
			if !es.e.awaitTurn(slot) {
				return false
			}
			continue
		}
		es.gauge(v, slot, word, limit, cost, durationMs, k)
		sum := word
		if v.Counted = 0; (v.Allowed || k.Offered) && !peek {
			sum, v.Counted = plus(word, cost, mergedMax)
			es.e.lowerMinLimit(slot, limit)
		}
		switch {
		case v.Counted > 0:
			if es.e.counter.swap(slot, word, sum) {
				return true
			}
		case wordIsLive(es.e.counter.word(slot), seq):
			return true
		}
	}
}

// JudgeHeld is Judge for a batch that holds the entry; it counts nothing. Before the current cell and after it
// the key is judged as at its start and its end.
func (es Estimates) JudgeHeld(v *Verdict, tMs, durationMs, limit, cost int64, k *Rules) {
	v.Sequence = es.e.counter.sequence()
	v.AtMs = min(max(tMs, window.Start(v.Sequence, durationMs)), window.Start(v.Sequence+1, durationMs))
	slot := slotOf(v.Sequence)
	es.gauge(v, slot, es.e.counter.word(slot), limit, cost, durationMs, k)
}

// gauge computes an estimate for the cell whose word was read. A sync between its reads can make the level too high for
// this decision, by the cost that the sync adds.
func (es Estimates) gauge(v *Verdict, slot int, word uint64, limit, cost, durationMs int64, k *Rules) {
	before := previousSlot(slot)
	v.Current = max(0, wordCount(word)+es.e.othersIn(slot))
	v.Previous = max(0, es.e.countIn(before))
	metered := es.e.flags.Load()&flagEstimate != 0
	if v.Leaky = metered && k.Leaky; v.Leaky {
		v.Unknown = es.leak(v, slot, limit, durationMs, k)
	} else {
		v.Level = level.OfCells(v.Current, v.Previous, window.Start(v.Sequence+1, durationMs)-v.AtMs, durationMs)
		v.Unknown = metered && v.Current == 0 && v.Previous == 0 && es.e.Reads().RefreshedAt() == 0
	}
	v.Allowed = v.Unknown && limit > 0 || v.Level.Fits(cost, limit, durationMs, k.Below)
}

// leak sets the leaky level. Before the first answer from the origin the level is all local cost, which does not show
// the region's cost, so unknown is true.
func (es Estimates) leak(v *Verdict, slot int, limit, durationMs int64, k *Rules) (unknown bool) {
	m := es.e.Ledger().meter()
	r := m.reading.Load()
	if r == nil {
		v.Level = level.Local(v.Current + v.Previous)
		return true
	}
	covered := r.at(v.Sequence).covered
	pending := v.Current + v.Previous - covered[0] - covered[1]
	if since := m.wantSince.Load(); since != 0 && int64(v.Now)-since >= k.OutageOf(durationMs) {
		pending = 0 // no sync has drained it: it would cut off an innocent key for the whole outage
	}
	v.Level = level.Leaky(r.known, int64(v.Now-r.steady), max(0, pending), limit)
	return false
}

// Pending returns local cost that no sync has covered, roughly, because it takes no lock.
func (es Estimates) Pending() int64 {
	seq := es.e.counter.sequence()
	slot := slotOf(seq)
	r := es.e.Ledger().meter().reading.Load()
	pending := es.e.countIn(slot) + es.e.countIn(previousSlot(slot))
	if r != nil {
		covered := r.at(seq).covered
		pending -= covered[0] + covered[1]
	}
	return pending
}

// UnsentIn returns own cost in a cell that has not been sent, roughly, because it takes no lock.
func (l Ledger) UnsentIn(sequence int64) int64 {
	slot := slotOf(sequence)
	return l.e.counter.count(slot) - l.cells[slot].settled.Load()
}

// begin gives a new entry the data for the estimate mode.
func (es Estimates) begin() {
	es.e.Ledger().beginMeter()
	es.e.flags.Or(flagEstimate)
}

// Rules are a namespace's settings for the judgement of estimates. Immutable.
type Rules struct {
	Leaky    bool  // the level drains by limit/duration between syncs, not by cells
	Offered  bool  // refused cost is counted too
	Below    bool  // the limit must not be reached, instead of not exceeded
	OutageMs int64 // how long a sync may be wanting before local cost is left out; 0: a window
}

// OutageOf returns OutageMs, or the duration of the window if OutageMs is 0.
func (k *Rules) OutageOf(durationMs int64) int64 {
	if k.OutageMs == 0 {
		return durationMs
	}
	return k.OutageMs
}

// Explain sets the leaky level of a verdict. leaks is false if the level is computed by cells.
func (es Estimates) Explain(v *Verdict, limit, durationMs int64, k *Rules) (unknown, leaks bool) {
	if !k.Leaky || !es.e.Flags().Estimates() {
		return false, false
	}
	return es.leak(v, slotOf(v.Sequence), limit, durationMs, k), true
}
