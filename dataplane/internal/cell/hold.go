package cell

import (
	"runtime"
	"time"

	"github.com/weirhq/weir/shared/window"
)

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
		seq := e.seq.Load()
		if tMs-window.Start(seq, durationMs) >= durationMs {
			lost, alive := e.rotate(h, window.Sequence(tMs, durationMs))
			agedOut += lost
			if !alive {
				return agedOut, false
			}
			continue
		}
		slot := slotOf(seq)
		word := e.words[slot].Load()
		if wordIsLive(word, seq) {
			if e.words[slot].CompareAndSwap(word, word|held) {
				return agedOut, true
			}
			continue
		}
		if word&held != 0 { // by another batch
			e.awaitRelease(slot)
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
	v.Sequence = e.seq.Load()
	start := window.Start(v.Sequence, durationMs)
	v.AtMs = max(tMs, start)
	slot := slotOf(v.Sequence)
	mine := own.In(v.Sequence)
	e.weigh(v, slot, e.words[slot].Load(), limit, cost-mine, start+durationMs-v.AtMs, durationMs)
	v.Current = max(0, v.Current-mine)
}

// Release counts cost, as much of it as there is room for, and lets go, in one step.
func (e *Entry) Release(cost int64) {
	slot := slotOf(e.seq.Load())
	for {
		word := e.words[slot].Load() // a merge may come in between
		sum, _ := plus(word, cost, mergedMax)
		if e.words[slot].CompareAndSwap(word, sum-held) {
			return
		}
	}
}

// awaitRelease waits while a batch holds the word. It takes some turns at once, and
// then leaves the processor to others; only a holder that its operating system has put
// aside is slept for.
func (e *Entry) awaitRelease(slot int) {
	const spins, yields = 64, 64
	for n := 0; e.words[slot].Load()&held != 0; n++ {
		switch {
		case n < spins:
		case n < spins+yields:
			runtime.Gosched()
		default:
			time.Sleep(20 * time.Microsecond)
		}
	}
}
