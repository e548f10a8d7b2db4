package dataplane

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/shared/window"
)

// tierCounts are how many keys are in each tier, and how they got there.
type tierCounts struct {
	keys  [level.Tiers]atomic.Int64
	moves [level.Tiers][level.Tiers]atomic.Int64
}

func (c *tierCounts) move(from, to level.Tier) {
	c.keys[from].Add(-1)
	c.keys[to].Add(1)
	c.moves[from][to].Add(1)
}

// Flags of an entry in the estimate mode, above all others.
const (
	flagEstimate = 1 << 28 // it has a meter
	flagAsked    = 1 << 29 // it waits for a sync, or is in one
	tierShift    = 30      // two bits
	flagsOfTier  = 3 << tierShift
)

func (e *entry) tier() level.Tier { return e.marks().tier() }

func (f flagSet) tier() level.Tier { return level.Tier(f >> tierShift) }

// moveTier returns where the key was. One that was evicted stays where it was counted.
func (e *entry) moveTier(to level.Tier) (from level.Tier) {
	for {
		flags := e.flags.Load()
		if flags&flagDead != 0 {
			return to
		}
		if e.flags.CompareAndSwap(flags, flags&^uint32(flagsOfTier)|uint32(to)<<tierShift) {
			return level.Tier(flags >> tierShift)
		}
	}
}

// meter is what a key has in the estimate mode on a node with an origin.
type meter struct {
	reading   atomic.Pointer[reading] // what the origin last told; nil: never
	wantSince atomic.Int64            // steadyMs since when a sync is wanted, 0 for not
	limit     atomic.Int64            // that the key was judged by when it wanted one
}

// want notes that a sync is wanted, and by which limit; first is false if one was already.
func (e *entry) want(limit int64, now clock.Steady) (first bool) {
	m := e.book.meter()
	if m.wantSince.Load() != 0 || !m.wantSince.CompareAndSwap(0, int64(now)) {
		return false
	}
	m.limit.Store(limit)
	return true
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

// estimate is judge in the estimate mode: it judges a cost, and counts it if it is
// allowed or if all that is offered counts, as one atomic step. alive is false when the
// entry was evicted; then nothing was decided.
func (e *entry) estimate(v *estimated, tMs, durationMs, limit, cost int64, peek bool, k *rules) (alive bool) {
	for {
		seq := e.seq.Load()
		v.seq, v.tMs = seq, tMs
		start := window.Start(seq, durationMs)
		switch elapsed := tMs - start; {
		case elapsed < 0:
			v.tMs = start
		case elapsed >= durationMs:
			lost, alive := e.rotate(window.Sequence(tMs, durationMs))
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
		e.gauge(v, slot, word, limit, cost, durationMs, k)
		sum := word
		if v.counted = 0; (v.allowed || k.offered) && !peek {
			sum, v.counted = plus(word, cost, mergedMax)
			e.noteLow(slot, limit)
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
func (e *entry) estimateHeld(v *estimated, tMs, durationMs, limit, cost int64, k *rules) {
	v.seq = e.seq.Load()
	v.tMs = max(tMs, window.Start(v.seq, durationMs))
	slot := slotOf(v.seq)
	e.gauge(v, slot, e.words[slot].Load(), limit, cost, durationMs, k)
}

// gauge is the arithmetic of an estimate on the cell whose word was read. A sync that
// comes in between its reads can make the level too high, by what it brings, for this
// one decision.
func (e *entry) gauge(v *estimated, slot int, word uint64, limit, cost, durationMs int64, k *rules) {
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
func (e *entry) leak(v *estimated, slot int, limit, durationMs int64, k *rules) (unknown bool) {
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

// beEstimate gives a new entry what the estimate mode needs, in one piece of memory.
func (e *entry) beEstimate() {
	whole := &struct {
		book  book
		rare  rare
		meter meter
	}{}
	whole.rare.metered = &whole.meter
	whole.book.rare = &whole.rare
	e.book = &whole.book
	e.flags.Or(flagEstimate)
}

// rules are what a namespace sets for the judgement of estimates. Immutable.
type rules struct {
	leaky    bool  // the level drains by limit/duration between syncs, not by cells
	offered  bool  // what was refused is counted too
	below    bool  // the limit must not be reached, instead of not exceeded
	outageMs int64 // how long a sync may be wanting before local cost is left out; 0 is one window
}

// outageOf is outageMs of a window.
func (k *rules) outageOf(durationMs int64) int64 {
	if k.outageMs == 0 {
		return durationMs
	}
	return k.outageMs
}

// explainLeak is the leaky level of a verdict; leaks is false where the level is that by cells.
func (e *entry) explainLeak(v *estimated, limit, durationMs int64, k *rules) (unknown, leaks bool) {
	if !k.leaky || !e.marks().estimates() {
		return false, false
	}
	return e.leak(v, slotOf(v.seq), limit, durationMs, k), true
}
