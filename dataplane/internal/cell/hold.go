package cell

import "github.com/weirhq/weir/shared/window"

// A batch decides on all of its keys at one instant: it holds every key's word, judges, counts all or nothing, and
// releases the words. A held word takes no count, so no request ever sees half a batch, and no send contains a cost
// that is not going to stay.
//
// Batches take holds in the order of identities, so that they never wait in a circle. Only the batch that took a hold
// can release it, some hundred nanoseconds later. Between the first hold and the last release there must be no I/O, no
// lock and no allocation.

// Hold holds the current word of the entry for a batch. alive is as in Judge; if it is false, nothing is held. A held
// entry stays in its cell.
func (e *Entry) Hold(h *Horizon, tMs, durationMs int64) (agedOut int64, alive bool) {
	for {
		seq := e.counter.sequence()
		if tMs-window.Start(seq, durationMs) >= durationMs {
			lost, alive := e.rotate(h, window.Sequence(tMs, durationMs))
			agedOut += lost
			if !alive {
				return agedOut, false
			}
			continue
		}
		slot := slotOf(seq)
		word := e.counter.word(slot)
		if wordIsLive(word, seq) {
			if e.counter.swap(slot, word, word|held) {
				return agedOut, true
			}
			continue
		}
		if word&held != 0 { // by another batch
			e.counter.awaitRelease(slot)
			continue
		}
		if !e.awaitTurn(slot) {
			return agedOut, false
		}
	}
}

// JudgeHeld is Judge for the batch that holds the entry, and counts nothing. Cost that was claimed for this batch does
// not count as spent by others.
func (e *Entry) JudgeHeld(v *Verdict, tMs, durationMs, limit, cost int64, own *Claimed) {
	v.Sequence = e.counter.sequence()
	start := window.Start(v.Sequence, durationMs)
	v.AtMs = max(tMs, start)
	slot := slotOf(v.Sequence)
	mine := own.In(v.Sequence)
	e.weigh(v, slot, e.counter.word(slot), limit, cost-mine, start+durationMs-v.AtMs, durationMs)
	v.Current = max(0, v.Current-mine)
	if v.Precise && v.Allowed && cost > 0 {
		e.Histories().begin(slot, v, durationMs, limit)
	}
}

// Release counts cost, up to the cell's room, and ends the hold, in one step.
func (e *Entry) Release(cost int64) { e.counter.release(cost) }
