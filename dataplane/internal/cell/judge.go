package cell

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/shared/window"
)

// Verdict holds a decision, and the counts that it was based on. Counts are in cost.
type Verdict struct {
	Sequence int64
	AtMs     int64 // the time judged by: the request's, or the start of the current cell if that is later
	Current  int64 // regional + foreign in the cell, without the cost
	Previous int64 // the same of the previous cell; by a precise window, without cost that has left the window
	Against  int64 // limit of the request, if it was judged by a smaller limit; otherwise 0
	AgedOut  int64 // own cost that was still unsent when its cell made way for this cell
	Counted  int64 // of the cost: all or nothing of it, unless the counter is full

	Level      level.Level  // that the cost was added to; in the exact mode once it is answered
	At         float64      // the level as answered
	Now        clock.Steady // of the estimate mode: when it was judged
	PassesAtMs int64        // of a denial: when the cost would pass if nothing else were counted; 0: never

	Allowed   bool
	Refused   bool // the counts would allow it, the outage policy does not
	Claimed   bool // the origin has counted it
	OverShare bool // the counts would allow it, the room that other nodes may need does not
	Precise   bool // judged by a precise window: Previous counts in full
	Leaky     bool // Level is a leaky level
	Unknown   bool // the node has no data about the key: it passes
}

// Judge decides whether cost fits at tMs and stores the verdict in v. If count is set and the cost
// fits, it also counts the cost, in the same atomic step. alive is false if the entry was evicted
// or replaced, or if tMs is beyond the horizon. Then nothing was decided, and the caller must look
// up the key and bound its time again.
//
// A time before the current cell counts as the start of that cell, so closed cells stay closed and
// no budget returns. If the clock was set back, the entry is replaced first: see Table.SetRight.
func (e *Entry) Judge(v *Verdict, h *Horizon, tMs, durationMs, limit, cost int64, count bool) (alive bool) {
	for {
		seq := e.counter.sequence()
		v.Sequence, v.AtMs = seq, tMs
		start := window.Start(seq, durationMs)
		switch elapsed := tMs - start; {
		case elapsed < 0:
			v.AtMs = start
		case elapsed >= durationMs: // the only case that needs a division
			lost, alive := e.rotate(h, window.Sequence(tMs, durationMs))
			v.AgedOut += lost
			if !alive {
				return false
			}
			continue
		}
		slot := slotOf(seq)
		word := e.counter.word(slot)
		if !wordIsLive(word, seq) {
			if !e.awaitTurn(slot) {
				return false
			}
			continue
		}
		flags := e.flags.Load()
		if flags&(flagOthers|flagOthers1|flagPrecise) == 0 { // as weigh, without the call
			v.Current, v.Previous = wordCount(word), e.counter.count(previousSlot(slot))
			v.Allowed = window.Fits(v.Current, v.Previous, cost, limit, start+durationMs-v.AtMs, durationMs)
		} else {
			e.weigh(v, slot, word, limit, cost, start+durationMs-v.AtMs, durationMs)
		}
		switch {
		case v.Allowed && count && cost > 0:
			// As lowerMinLimit, without the call: nearly always there is nothing to lower.
			if against := max(limit, v.Against); against < e.minLimits.get(slot) {
				e.minLimits.lower(slot, against)
			}
			if flags&flagPrecise != 0 {
				e.Histories().begin(slot, v, durationMs, max(limit, v.Against))
			}
			if e.counter.swap(slot, word, word+uint64(cost)) {
				return true
			}
		case wordIsLive(e.counter.word(slot), seq): // no rotation came between the reads
			return true
		}
	}
}

// lowerMinLimit records the limit of a cost. It must be called before the cost is counted.
func (e *Entry) lowerMinLimit(slot int, limit int64) {
	if limit < e.minLimits.get(slot) {
		e.minLimits.lower(slot, limit)
	}
}

// LowerMinLimit is lowerMinLimit by a cell's sequence.
func (e *Entry) LowerMinLimit(sequence, limit int64) { e.lowerMinLimit(slotOf(sequence), limit) }

// weigh computes a verdict for the cell whose word was read.
func (e *Entry) weigh(v *Verdict, slot int, word uint64, limit, cost, uncoveredMs, durationMs int64) {
	if e.flags.Load()&flagPrecise != 0 {
		e.Histories().weigh(v, slot, word, limit, cost, uncoveredMs, durationMs)
		return
	}
	// Read the word of each cell first, then the others: a move of cost from the word to the others adds before it takes
	// away, so that no cost is overlooked.
	before := previousSlot(slot)
	v.Precise, v.Current, v.Previous = false, wordCount(word), e.counter.count(before)
	if e.flags.Load()&(flagOthers|flagOthers1) != 0 {
		v.Current = max(0, v.Current+e.othersIn(slot))
		v.Previous = max(0, v.Previous+e.othersIn(before))
	}
	v.Allowed = window.Fits(v.Current, v.Previous, cost, limit, uncoveredMs, durationMs)
}

// awaitTurn waits for a batch, a rotation or an eviction that is under way, and reports
// whether the entry is still alive.
func (e *Entry) awaitTurn(slot int) bool {
	e.counter.awaitRelease(slot)
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flags.Load()&flagDead == 0
}

// carried returns the cost that the previous cell still contributes.
func (v *Verdict) carried(durationMs int64) int64 {
	if v.Previous == 0 {
		return 0
	}
	return window.Carried(v.Previous, v.UncoveredMs(durationMs), durationMs)
}

// UncoveredMs returns the part of a duration, 0 to all of it, for which Previous counts.
func (v *Verdict) UncoveredMs(durationMs int64) int64 {
	if v.Precise {
		return durationMs
	}
	return window.Start(v.Sequence+1, durationMs) - v.AtMs
}

// DenyOverShare denies for the time in which other nodes' cost has to arrive.
func (v *Verdict) DenyOverShare(nowMs, forMs int64) {
	v.Allowed, v.OverShare, v.PassesAtMs = false, true, nowMs+forMs
}

// Refuse denies a cost that the counts would have allowed.
func (v *Verdict) Refuse(nowMs int64, wait time.Duration) {
	if v.Allowed {
		v.Allowed, v.Refused, v.PassesAtMs = false, true, nowMs+wait.Milliseconds()
	}
}
