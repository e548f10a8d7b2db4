package dataplane

import (
	"time"

	"github.com/weirhq/weir/shared/window"
)

// verdict is what a decision saw, and what it decided. Counts are in cost.
type verdict struct {
	allowed  bool
	against  int64 // limit of the request, where a smaller one is judged by; 0: it is that
	seq      int64
	tMs      int64 // the time judged by: the request's, or the start of the current cell if that is later
	current  int64 // regional + global in the cell, without the cost
	previous int64 // the same of the cell before
	agedOut  int64 // own cost that was still unsent when its cell made way for this one

	passesAtMs int64 // of a denial: when the cost would pass if nothing else were counted; 0: never
	refused    bool  // the counts would allow it, the outage policy does not
	claimed    bool  // the origin has counted it
	crowded    bool  // the counts would allow it, the room that other nodes may need does not
}

// judge decides whether cost fits at tMs, into v, and with count set takes it, as one
// atomic step: the swap succeeds only if the word is the one that was judged.
// alive is false when the entry was evicted; then nothing was decided.
//
// A clock that has stepped back past the start of the current cell is taken to
// stand at that start: closed cells stay closed, and no budget comes back.
func (e *entry) judge(v *verdict, tMs, durationMs, limit, cost int64, count bool) (alive bool) {
	for {
		seq := e.seq.Load()
		v.seq, v.tMs = seq, tMs
		start := window.Start(seq, durationMs)
		switch elapsed := tMs - start; {
		case elapsed < 0:
			v.tMs = start
		case elapsed >= durationMs: // the only case that needs a division
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
		v.current, v.previous = wordCount(word), wordCount(e.words[previousSlot(slot)].Load())
		if e.flags.Load()&(flagForeign|flagForeign1) == 0 { // as weigh, without the call
			v.allowed = window.Fits(v.current, v.previous, cost, limit, start+durationMs-v.tMs, durationMs)
		} else {
			e.weigh(v, slot, word, limit, cost, start+durationMs-v.tMs, durationMs)
		}
		switch {
		case v.allowed && count && cost > 0:
			e.noteLow(slot, max(limit, v.against))
			if e.words[slot].CompareAndSwap(word, word+uint64(cost)) {
				return true
			}
		case wordIsLive(e.words[slot].Load(), seq): // no rotation came between the reads
			return true
		}
	}
}

// noteLow notes the limit of a cost before that is counted.
func (e *entry) noteLow(slot int, limit int64) {
	if limit < e.lows.get(slot) {
		e.lows.note(slot, limit)
	}
}

// noteLimit is noteLow by a cell's sequence.
func (e *entry) noteLimit(sequence, limit int64) { e.noteLow(slotOf(sequence), limit) }

// weigh is the arithmetic of a verdict on the cell whose word was read.
func (e *entry) weigh(v *verdict, slot int, word uint64, limit, cost, uncoveredMs, durationMs int64) {
	// Of each cell first the word, then the others: whoever moves cost from one to
	// the other adds before it takes away, so that none is overlooked.
	before := previousSlot(slot)
	v.current, v.previous = wordCount(word), wordCount(e.words[before].Load())
	if e.flags.Load()&(flagForeign|flagForeign1) != 0 {
		v.current = max(0, v.current+e.others[slot].Load())
		v.previous = max(0, v.previous+e.others[before].Load())
	}
	v.allowed = window.Fits(v.current, v.previous, cost, limit, uncoveredMs, durationMs)
}

// settle waits for a batch, a rotation or an eviction that is under way, and reports
// whether the entry is still alive.
func (e *entry) settle(slot int) bool {
	e.awaitRelease(slot)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flags.Load()&flagDead == 0
}

// carried is what the previous cell still weighs.
func (v *verdict) carried(durationMs int64) int64 {
	if v.previous == 0 {
		return 0
	}
	return window.Carried(v.previous, window.Start(v.seq+1, durationMs)-v.tMs, durationMs)
}

// crowd denies for as long as other nodes need to be heard.
func (v *verdict) crowd(nowMs, forMs int64) {
	v.allowed, v.crowded, v.passesAtMs = false, true, nowMs+forMs
}

// refuse denies what the counts would have allowed.
func (v *verdict) refuse(nowMs int64, wait time.Duration) {
	if v.allowed {
		v.allowed, v.refused, v.passesAtMs = false, true, nowMs+wait.Milliseconds()
	}
}
