package dataplane

import (
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// A cell's count lives in one 64-bit word, the only word that the request path
// changes, so that one compare-and-swap is the whole of counting:
//
//	bit 63      sealed: no request may count here any more
//	bit 62      held: a batch is deciding, for some hundred nanoseconds; see hold.go
//	bits 55-61  the low bits of the cell's sequence
//	bits 0-54   the count: what this node knows its region to have accepted
//
// The tag makes a stale compare-and-swap fail although the slot has been reused
// and happens to hold the same count. (It would have to sleep for exactly 128
// windows, at least two minutes, to be fooled.)
const (
	countBits = 55
	countMax  = 1<<countBits - 1
	mergedMax = 1 << 54 // where merges, and whatever else no limit bounds, stop: a request, at most window.LimitMax, still fits on top
	creditMax = 1 << 53 // of a cell, see Reservation: a word is at most so much more than what a decision was judged by
	tagMask   = 0x7f
	sealed    = 1 << 63
	held      = 1 << 62
)

// plus adds n to the count in a word, up to most, and leaves the bits above it alone. Every
// writer that raises a count goes through it: a count that ran over would become a tag, and
// a request that waits for the cell's own tag would wait for ever.
func plus(word uint64, n, most int64) (sum uint64, added int64) {
	added = max(0, min(n, most-wordCount(word)))
	return word + uint64(added), added
}

func liveTag(sequence int64) uint64            { return uint64(sequence) & tagMask }
func liveWord(sequence, count int64) uint64    { return liveTag(sequence)<<countBits | uint64(count) }
func wordCount(w uint64) int64                 { return int64(w & countMax) }
func wordIsLive(w uint64, sequence int64) bool { return w>>countBits == liveTag(sequence) }
func slotOf(sequence int64) int                { return int(sequence & 1) }
func previousSlot(slot int) int                { return slot ^ 1 }
func expiredAt(sequence, durationMs, now int64) bool {
	return window.ExpiresAt(sequence, durationMs) <= now
}

// Flags of an entry. The ones of a slot stand for the cell in it and end with it.
const (
	flagDirty    = 1 << iota // in the dirty list: its counts changed since a collector last took it
	flagTouched              // a request came since the hand of the sweep last passed
	flagDead                 // evicted: whoever still holds it must look its key up again
	flagInReplay             // in the replay queue; under mu
	flagInFlush              // in the flush queue; under mu
	flagPressed              // slot 0: denied; see pressedLocked
	flagPressed1
	flagRefused // slot 0: the count store will not have its row
	flagRefused1
	flagStale // slot 0: closed, and the origin last spoke of it before its end
	flagStale1
	flagSending // slot 0: own cost is on its way to the origin; under mu
	flagSending1
	flagOffered // slot 0: the count store may hold more than flushed: a call's fate is open or unknown; under mu
	flagOffered1
	flagKicked // among those that are sent at once
	flagShared // asked about in a namespace that waits for its share
	flagNews   // slot 0: no decision has used yet what another region has told
	flagNews1
	flagCrossed // slot 0: an increment of this node took the region's count past a mark; under mu
	flagCrossed1
	flagForeign // slot 0: others is, or is about to be, more or less than nothing
	flagForeign1
	flagStrict   // strictUntil is set; ends with the entry
	flagInTell   // in the queue of what to tell of, which keeps no entry alive; under mu
	flagClaiming // slot 0: rare.claiming is more than nothing; changed under mu
	flagClaiming1

	flagsOfSlot = flagPressed | flagRefused | flagStale | flagSending | flagOffered | flagNews | flagCrossed | flagForeign | flagClaiming
)

// entry is all that a node knows about one key: the current cell and the one
// before it, in two slots (slot = sequence mod 2), so that a decision is one look-up.
// It is one cache line, and all that most decisions read: of a key that other regions use
// too, or that was denied, they read the line behind it as well. What only a fleet needs is
// in book, 48 bytes more.
//
// Who writes what, and which way it moves:
//
//	words        requests and batches (+cost); merges (+); claims (+cost, and - again when it
//	             is refused); refunds (-), of own cost that nobody else has been told of
//	others       import (+); refunds (-) of cost that others have been told of
//	seq          rotate                 grows
//	lows         requests (down); rotate (back to none)
//	heardAt      hydrate, replay        grows
//	strictUntil  whoever was denied     grows; flagStrict is set before it is looked at
//	book         background and refunds, under mu
//
// The slot of a cell is reset when the sequence moves two on; a late write to the
// old cell finds another sequence and does nothing.
type entry struct {
	id      identity // constant
	words   [2]atomic.Uint64
	seq     atomic.Int64 // sequence of the current cell
	flags   atomic.Uint32
	lows    lowLimits    // lowest limits that were counted against
	heardAt atomic.Int64 // steadyMs of the origin's last word on the current cell; 0: never
	*behind              // constant
}

// behind is the part of an entry that most decisions can do without. Apart from the rest,
// because lines that are read lie twice as close without it: with many keys, a decision costs
// what the misses of cache and address translation cost.
type behind struct {
	others      [2]atomic.Int64 // all other regions' cost in the cell, less credit: added to the count when judging; 0 without flagForeign
	strictUntil atomic.Int64    // steadyMs; survives the sequence's rollover; 0 without flagStrict
	names       names           // constant
	book        *book           // constant; nil on a node alone
	flight      *flight         // the read in flight, or the last one if it failed; under mu
	mu          sync.Mutex      // never held across I/O or a wait for anything but a batch's hold
}

func newEntry(id *identity, names names, sequence int64, fleet bool) *entry {
	e := &entry{id: *id, behind: &behind{names: names}}
	e.seq.Store(sequence)
	e.words[slotOf(sequence)].Store(liveWord(sequence, 0))
	e.words[slotOf(sequence-1)].Store(liveWord(sequence-1, 0) | sealed)
	e.lows.init()
	if fleet {
		e.book = &book{}
	}
	return e
}

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

// rotate moves the entry on to a later sequence. The cell before it is sealed
// first: whoever read its count before that fails to swap it after. agedOut is own
// cost that was never sent and now never will be.
func (e *entry) rotate(sequence int64) (agedOut int64, alive bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rotateLocked(sequence)
}

func (e *entry) rotateLocked(sequence int64) (agedOut int64, alive bool) {
	if e.flags.Load()&flagDead != 0 {
		return 0, false
	}
	seq := e.seq.Load()
	if seq >= sequence {
		return 0, true
	}
	e.sealLocked(slotOf(seq))
	if sequence == seq+1 {
		e.flags.Or(flagStale << slotOf(seq))
	} else {
		agedOut = e.resetLocked(slotOf(sequence-1), liveWord(sequence-1, 0)|sealed)
	}
	agedOut += e.resetLocked(slotOf(sequence), liveWord(sequence, 0))
	e.seq.Store(sequence)
	return agedOut, true
}

func (e *entry) sealLocked(slot int) {
	for {
		word := e.words[slot].Load()
		if word&held != 0 {
			e.awaitRelease(slot)
			continue
		}
		if word&sealed != 0 || e.words[slot].CompareAndSwap(word, word|sealed) {
			return
		}
	}
}

// resetLocked hands a sealed slot to another cell.
func (e *entry) resetLocked(slot int, word uint64) (agedOut int64) {
	if e.book != nil {
		agedOut = max(0, e.unsentLocked(slot))
		e.book.reset(slot)
	}
	e.others[slot].Store(0)
	e.flags.And(^uint32(flagsOfSlot << slot))
	e.lows.reset(slot)
	e.words[slot].Store(word)
	return agedOut
}

// slotLocked finds the slot of a cell, if the entry still holds that cell.
func (e *entry) slotLocked(sequence int64) (slot int, ok bool) {
	if seq := e.seq.Load(); sequence != seq && sequence != seq-1 {
		return 0, false
	}
	return slotOf(sequence), e.flags.Load()&flagDead == 0
}

// beStrict makes the key's decisions ask the origin first until then. An
// earlier moment never replaces a later one.
func (e *entry) beStrict(until clock.Steady) (entered bool) {
	if e.flags.Load()&flagStrict == 0 {
		e.flags.Or(flagStrict)
	}
	return raise(&e.strictUntil, int64(until))
}

func (e *entry) isStrict(now clock.Steady) bool {
	return e.flags.Load()&flagStrict != 0 && int64(now) < e.strictUntil.Load()
}

// foreign makes decisions look at others, before whoever calls it changes that.
func (e *entry) foreign(slot int) *atomic.Int64 {
	e.flags.Or(flagForeign << slot)
	return &e.others[slot]
}

// hear records that the origin has spoken about the current cell.
func (e *entry) hear(now clock.Steady) { raise(&e.heardAt, int64(now)) }

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

func (e *entry) cell(sequence int64) window.Cell {
	return e.names.cell(sequence)
}

// namesOf are the fields of the entry's key.
func (e *entry) namesOf() *names { return &e.names }

// identity is that of the entry's key.
func (e *entry) identity() *identity { return &e.id }

func (e *entry) durationMs() int64 { return e.names.durationMs() }

// expired is true when no decision can depend on the entry's cells any more.
func (e *entry) expired(nowMs int64) bool {
	return expiredAt(e.seq.Load(), e.names.durationMs(), nowMs)
}
