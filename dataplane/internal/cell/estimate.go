package cell

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/shared/window"
)

// TierCounts are how many keys are in each tier, and how they got there.
type TierCounts struct {
	Keys  [level.Tiers]atomic.Int64
	Moves [level.Tiers][level.Tiers]atomic.Int64
}

// Move counts a key that goes from one tier to another.
func (c *TierCounts) Move(from, to level.Tier) {
	c.Keys[from].Add(-1)
	c.Keys[to].Add(1)
	c.Moves[from][to].Add(1)
}

// Flags of an entry in the estimate mode, above all others.
const (
	flagEstimate = 1 << 28 // it has a meter
	flagAsked    = 1 << 29 // it waits for a sync, or is in one
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

// Tier is that of an entry of the estimate mode.
func (f Flags) Tier() level.Tier { return level.Tier(f >> tierShift) }

// MoveTier returns where the key was. One that was evicted stays where it was counted.
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

// meter is what a key has in the estimate mode on a node with an origin.
type meter struct {
	reading   atomic.Pointer[reading] // what the origin last told; nil: never
	wantSince atomic.Int64            // clock.Steady since when a sync is wanted, 0 for not
	limit     atomic.Int64            // that the key was judged by when it wanted one
}

// Want notes that a sync is wanted, and by which limit; first is false if one was already.
func (es Estimates) Want(limit int64, now clock.Steady) (first bool) {
	m := es.e.Ledger().meter()
	if m.wantSince.Load() != 0 || !m.wantSince.CompareAndSwap(0, int64(now)) {
		return false
	}
	m.limit.Store(limit)
	return true
}

// Judge is Entry.Judge in the estimate mode: it judges a cost, and counts it if it is
// allowed or if all that is offered counts, as one atomic step. alive is as Judge has it.
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

// gauge is the arithmetic of an estimate on the cell whose word was read. A sync that
// comes in between its reads can make the level too high, by what it brings, for this
// one decision.
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

// leak is the leaky level. Without any word from the origin it is all local cost, and
// says nothing about the region: unknown.
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

// Pending is local cost that no sync has covered, roughly: it takes no lock.
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

// UnsentIn is own cost in a cell that has not been sent, roughly: it takes no lock.
func (l Ledger) UnsentIn(sequence int64) int64 {
	slot := slotOf(sequence)
	return l.e.counter.count(slot) - l.cells[slot].settled.Load()
}

// begin gives a new entry what the estimate mode needs.
func (es Estimates) begin() {
	es.e.Ledger().beginMeter()
	es.e.flags.Or(flagEstimate)
}

// Rules are what a namespace sets for the judgement of estimates. Immutable.
type Rules struct {
	Leaky    bool  // the level drains by limit/duration between syncs, not by cells
	Offered  bool  // what was refused is counted too
	Below    bool  // the limit must not be reached, instead of not exceeded
	OutageMs int64 // how long a sync may be wanting before local cost is left out; 0 is one window
}

// OutageOf is outageMs of a window.
func (k *Rules) OutageOf(durationMs int64) int64 {
	if k.OutageMs == 0 {
		return durationMs
	}
	return k.OutageMs
}

// Explain is the leaky level of a verdict; leaks is false where the level is that by cells.
func (es Estimates) Explain(v *Verdict, limit, durationMs int64, k *Rules) (unknown, leaks bool) {
	if !k.Leaky || !es.e.Flags().Estimates() {
		return false, false
	}
	return es.leak(v, slotOf(v.Sequence), limit, durationMs, k), true
}
