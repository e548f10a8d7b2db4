package cell

import "github.com/weirhq/weir/shared/window"

// A batch decides on all of its keys at one instant: it holds every key's word, judges,
// counts all or nothing, and lets go. A held word takes no count, so no request ever
// sees half a batch, and no send a cost that is not going to stay.
//
// Holds are taken in the order of identities, so that batches never wait in a circle,
// and only released by who took them, some hundred nanoseconds later: between the first
// and the last there is no I/O, no lock and no allocation.

// Hold takes the current word of the entry for a batch; alive is as Judge has it, and if it is false nothing is
// held. While it is held the entry stays in its cell.
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

// JudgeHeld is judge for who holds the entry; it counts nothing. What was claimed for its batch is no part of what
// others have spent.
func (e *Entry) JudgeHeld(v *Verdict, tMs, durationMs, limit, cost int64, own *Claimed) {
	v.Sequence = e.counter.sequence()
	start := window.Start(v.Sequence, durationMs)
	v.AtMs = max(tMs, start)
	slot := slotOf(v.Sequence)
	mine := own.In(v.Sequence)
	e.weigh(v, slot, e.counter.word(slot), limit, cost-mine, start+durationMs-v.AtMs, durationMs)
	v.Current = max(0, v.Current-mine)
}

// Release counts cost, as much of it as there is room for, and lets go, in one step.
func (e *Entry) Release(cost int64) { e.counter.release(cost) }
