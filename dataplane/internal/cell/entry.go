package cell

import (
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/shared/window"
)

// Entry is a node's whole state of one key: the current cell and the previous cell, in two slots (slot = sequence mod
// 2), so that a decision is one look-up. It is one cache line, and most decisions read nothing else. For a key that
// other regions use too, or that was denied, they also read behind. Data that only a fleet needs is in books, another
// 56 bytes next to behind: see Ledger.
//
// Who writes what, and which way it moves:
//
//	counter      its words: requests and batches (+cost); merges (+); claims (+cost, and - again when it
//	             is refused); refunds (-), of own cost that was not sent yet
//	             its sequence: rotate   grows, within a Horizon; an entry ahead of the clock is replaced: SetRight
//	others       merges (+); refunds (-) of cost that was sent
//	minLimits    requests (down); rotate (back to none)
//	refreshedAt  refresh, replay        grows
//	strictUntil  denials                grows; flagStrict is set before it is looked at
//	books        background and refunds, under mu: Ledger
type Entry struct {
	id          Identity // constant
	counter     counter
	flags       atomic.Uint32
	minLimits   minLimits    // lowest limits that were counted against
	refreshedAt atomic.Int64 // clock.Steady of the origin's last answer about the current cell; 0: never
	*behind                  // constant
}

// behind is the part of an entry that most decisions don't read. It is separate because then the lines that decisions
// read lie twice as close together: with many keys, a decision costs as much as its misses in the cache and in address
// translation.
type behind struct {
	// all other regions' cost in the cell, less credit: added to the count when judging; 0 without flagOthers
	others      [2]atomic.Int64
	strictUntil atomic.Int64 // clock.Steady; survives the sequence's rollover; 0 without flagStrict
	names       Names        // constant
	// the read in flight, or the last read if it failed; written under mu
	flight atomic.Pointer[Flight]
	mu     sync.Mutex // never held across I/O or a wait for anything but a batch's hold
}

// behindOfFleet is behind for an entry of a node with an origin: one piece of memory without a pointer in between, of
// 112 bytes, a size class of the allocator.
type behindOfFleet struct {
	behind // the first field: see Entry.keeps
	books  books
}

// newEntry makes an entry in a cell. An entry with histories can be judged by a precise window: see Histories.
func newEntry(id *Identity, names Names, sequence int64, fleet, histories bool) *Entry {
	e := &Entry{id: *id}
	switch {
	case fleet && histories:
		e.behind = &(&behindOfFleetAndPast{}).behind
		e.flags.Store(flagFleet | flagHistories | flagPrecise)
	case fleet:
		e.behind = &(&behindOfFleet{}).behind
		e.flags.Store(flagFleet)
	case histories:
		e.behind = &(&behindAndPast{}).behind
		e.flags.Store(flagHistories | flagPrecise)
	default:
		e.behind = &behind{}
	}
	e.names = names
	e.counter.advance(sequence)
	e.counter.put(slotOf(sequence), liveWord(sequence, 0))
	e.counter.put(slotOf(sequence-1), liveWord(sequence-1, 0)|sealed)
	e.minLimits.init()
	return e
}

// rotate moves the entry on to a later sequence. The cell before it is sealed
// first: a request that read its count before fails to swap it after. agedOut is own
// cost that was never sent and now never will be. ok is false if the entry is dead, or the cell is beyond the horizon.
func (e *Entry) rotate(h *Horizon, sequence int64) (agedOut int64, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rotateLocked(h, sequence)
}

func (e *Entry) rotateLocked(h *Horizon, sequence int64) (agedOut int64, ok bool) {
	if e.flags.Load()&flagDead != 0 {
		return 0, false
	}
	seq := e.counter.sequence()
	if seq >= sequence {
		return 0, true
	}
	if !h.shows(sequence, e.names.durationMs()) {
		return 0, false
	}
	e.counter.seal(slotOf(seq))
	if sequence == seq+1 {
		e.flags.Or(flagStale << slotOf(seq))
	} else {
		agedOut = e.resetLocked(slotOf(sequence-1), liveWord(sequence-1, 0)|sealed)
	}
	e.Reads().missLocked()
	agedOut += e.resetLocked(slotOf(sequence), liveWord(sequence, 0))
	e.counter.advance(sequence)
	return agedOut, true
}

// MoveOn moves the entry on to a cell, if that has begun by nowMs. An entry that was moved back because the clock was
// set back stays behind until the next request. agedOut is as in rotate.
func (e *Entry) MoveOn(h *Horizon, sequence, nowMs int64) (agedOut int64) {
	agedOut, _ = e.rotate(h, min(sequence, window.Sequence(nowMs, e.DurationMs())))
	return agedOut
}

// resetLocked gives a sealed slot to another cell.
func (e *Entry) resetLocked(slot int, word uint64) (agedOut int64) {
	agedOut = e.Ledger().resetLocked(slot)
	e.others[slot].Store(0)
	e.Histories().resetLocked(slot)
	e.flags.And(^uint32(flagsOfSlot << slot))
	e.minLimits.reset(slot)
	e.counter.put(slot, word)
	return agedOut
}

// OwnCost returns the sequence of the current cell, and the cost that was accepted in it and in the cell before, on a
// node without an origin.
func (e *Entry) OwnCost() (sequence, before, current int64) {
	sequence = e.counter.sequence()
	return sequence, e.counter.count(slotOf(sequence - 1)), e.counter.count(slotOf(sequence))
}

// slotLocked finds the slot of a cell, if the entry still holds that cell.
func (e *Entry) slotLocked(sequence int64) (slot int, ok bool) {
	if seq := e.counter.sequence(); sequence != seq && sequence != seq-1 {
		return 0, false
	}
	return slotOf(sequence), e.flags.Load()&flagDead == 0
}

// othersIn returns all other regions' cost in a cell, less credit.
func (e *Entry) othersIn(slot int) int64 { return e.others[slot].Load() }

// addOthers changes othersIn. It sets flagOthers first, with which decisions add them.
func (e *Entry) addOthers(slot int, n int64) {
	e.flags.Or(flagOthers << slot)
	e.others[slot].Add(n)
}

// countIn returns the cost of a cell in all regions, as far as this node has received it, less credit. Callers must
// treat a negative result as 0. It reads the word first: a move of cost from the word to the others adds before it
// takes away.
func (e *Entry) countIn(slot int) int64 { return e.counter.count(slot) + e.others[slot].Load() }

// raise moves v up to n, never down.
func raise(v *atomic.Int64, n int64) bool {
	for {
		was := v.Load()
		if n <= was {
			return false
		}
		if v.CompareAndSwap(was, n) {
			return true
		}
	}
}

// Cell returns a cell of the key, named as other nodes name it.
func (e *Entry) Cell(sequence int64) window.Cell {
	return e.names.cell(sequence)
}

// Names returns the fields of the entry's key.
func (e *Entry) Names() *Names { return &e.names }

// Identity returns the identity of the entry's key.
func (e *Entry) Identity() *Identity { return &e.id }

// DurationMs returns the length of the key's window.
func (e *Entry) DurationMs() int64 { return e.names.durationMs() }

// Expired reports whether no decision can depend on the entry's cells any more.
func (e *Entry) Expired(nowMs int64) bool {
	return expiredAt(e.counter.sequence(), e.names.durationMs(), nowMs)
}
