package dataplane

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/shared/window"
)

// A cell's count lives in one 64-bit word, the only word that the request path
// changes, so that one compare-and-swap is the whole of counting:
//
//	bit 63      sealed: no request may count here any more
//	bits 55-62  the low bits of the cell's sequence
//	bits 0-54   the count: what this node knows its region to have accepted,
//	            plus batches' reservations in flight
//
// The tag makes a stale compare-and-swap fail although the slot has been reused
// and happens to hold the same count. (It would have to sleep for exactly 256
// windows, at least four minutes, to be fooled.)
const (
	countBits = 55
	countMax  = 1<<countBits - 1
	tagMask   = 0xff
	sealed    = 1 << 63
)

func liveTag(sequence int64) uint64            { return uint64(sequence) & tagMask }
func liveWord(sequence, count int64) uint64    { return liveTag(sequence)<<countBits | uint64(count) }
func wordCount(w uint64) int64                 { return int64(w & countMax) }
func wordIsLive(w uint64, sequence int64) bool { return w>>countBits == liveTag(sequence) }
func slotOf(sequence int64) int                { return int(sequence & 1) }
func previousSlot(slot int) int                { return slot ^ 1 }
func sequenceAt(t, durationMs int64) int64     { return window.Sequence(t, durationMs) }
func expiredAt(sequence, durationMs, now int64) bool {
	return window.ExpiresAt(sequence, durationMs) <= now
}

// Flags of an entry.
const (
	flagDirty   = 1 << iota // in the dirty list: its counts changed since a collector last took it
	flagTouched             // a request came since the sweep last looked
	flagDead                // evicted: whoever still holds it must look its key up again
)

// entry is all that a node knows about one key: the current cell and the one
// before it, in two slots (slot = sequence mod 2), so that a decision is one look-up.
//
// Who writes what, and which way it moves:
//
//	seq          rotate                 grows
//	words        requests (CAS, +cost); batches (+cost, roll back -cost);
//	             merges (+)             grows, but for a batch's roll-back
//	global       import                 grows
//	heardAt      hydrate, replay        grows
//	strictUntil  whoever was denied     grows
//	books        background and batches, under mu
//
// Invariants (C for a cell's word count, the rest from its book; under mu):
//
//	0 <= inFlight <= C - reserved - settled         own cost not yet confirmed
//	confirmed <= settled                            what the origin said is never forgotten
//	flushed <= C - reserved                         nothing is published that was not accepted
//
// The slot of a cell is reset when the sequence moves two on; a late write to the
// old cell finds another sequence and does nothing.
type entry struct {
	// The decision's cache line.
	seq         atomic.Int64 // sequence of the current cell
	words       [2]atomic.Uint64
	global      [2]atomic.Int64 // all other regions' cost in the cell; never published again
	heardAt     atomic.Int64    // Unix ms of the origin's last word on the current cell; 0: never
	strictUntil atomic.Int64    // Unix ms; survives the sequence's rollover
	flags       atomic.Uint32
	stripe      uint32 // which stripe of the counters of decisions it reports to; constant

	limitLow [2]atomic.Int64 // lowest limit that was counted against in the cell
	next     *entry          // dirty list; belongs to whoever owns flagDirty, then to the collector
	key      window.Key      // constant

	mu      sync.Mutex // never held across I/O or a wait
	books   [2]book
	flight  *flight // the read in flight, nil for none
	retryAt int64   // Unix ms before which no new read starts, after a failed one

	agedOut int64 // own cost that was still unsent when its cell's slot was handed on

	inReplay, inFlush bool // in the queue
}

// book is the background's part of a cell. Guarded by entry.mu.
type book struct {
	settled   int64 // part of the count that needs no sending: confirmed own cost and others' cost
	inFlight  int64 // own cost on its way to the origin
	confirmed int64 // largest total the origin itself has named
	reserved  int64 // batches not yet decided; part of the word, never replayed or flushed
	flushed   int64 // largest value known to be in the count store as this region's component
	refused   bool  // the count store will not have this row
	stale     bool  // previous cell: the origin's last word on it is older than its end
}

func newEntry(key window.Key, sequence int64, stripe uint32) *entry {
	e := &entry{key: key, stripe: stripe}
	e.seq.Store(sequence)
	e.words[slotOf(sequence)].Store(liveWord(sequence, 0))
	e.words[slotOf(sequence-1)].Store(liveWord(sequence-1, 0) | sealed)
	e.limitLow[0].Store(math.MaxInt64)
	e.limitLow[1].Store(math.MaxInt64)
	return e
}

// verdict is what a decision saw, and what it decided. Counts are in cost.
type verdict struct {
	allowed  bool
	seq      int64
	tMs      int64 // the time judged by: the request's, or the start of the current cell if that is later
	current  int64 // regional + global in the cell, without the cost
	previous int64 // the same of the cell before
}

// judge decides whether cost fits at tMs, and with count set takes it, as one
// atomic step: the swap succeeds only if the word is the one that was judged.
// alive is false when the entry was evicted; then nothing was decided.
//
// A clock that has stepped back past the start of the current cell is taken to
// stand at that start: closed cells stay closed, and no budget comes back.
func (e *entry) judge(tMs, durationMs, limit, cost int64, count bool) (v verdict, alive bool) {
	wanted := sequenceAt(tMs, durationMs)
	for {
		seq := e.seq.Load()
		if wanted > seq {
			if !e.rotate(wanted) {
				return v, false
			}
			continue
		}
		v.seq, v.tMs = seq, tMs
		if wanted < seq {
			v.tMs = window.Start(seq, durationMs)
		}
		slot := slotOf(seq)
		word := e.words[slot].Load()
		if !wordIsLive(word, seq) {
			if !e.settle() {
				return v, false
			}
			continue
		}
		v.current = wordCount(word) + e.global[slot].Load()
		v.previous = wordCount(e.words[previousSlot(slot)].Load()) + e.global[previousSlot(slot)].Load()
		v.allowed = window.Fits(v.current, v.previous, cost, limit, window.Uncovered(v.tMs, durationMs), durationMs)
		switch {
		case v.allowed && count && cost > 0:
			if e.words[slot].CompareAndSwap(word, word+uint64(cost)) {
				return v, true
			}
		case wordIsLive(e.words[slot].Load(), seq): // no rotation came between the two reads
			return v, true
		}
	}
}

// settle waits for a rotation or an eviction that is under way, and reports
// whether the entry is still alive.
func (e *entry) settle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flags.Load()&flagDead == 0
}

// rotate moves the entry on to a later sequence. The cell before it is sealed
// first: whoever read its count before that fails to swap it after.
func (e *entry) rotate(sequence int64) (alive bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rotateLocked(sequence)
}

func (e *entry) rotateLocked(sequence int64) (alive bool) {
	if e.flags.Load()&flagDead != 0 {
		return false
	}
	seq := e.seq.Load()
	if seq >= sequence {
		return true
	}
	e.sealLocked(slotOf(seq))
	if sequence == seq+1 {
		e.books[slotOf(seq)].stale = true
	} else {
		e.resetLocked(slotOf(sequence-1), liveWord(sequence-1, 0)|sealed)
	}
	e.resetLocked(slotOf(sequence), liveWord(sequence, 0))
	e.seq.Store(sequence)
	return true
}

func (e *entry) sealLocked(slot int) {
	for {
		word := e.words[slot].Load()
		if word&sealed != 0 || e.words[slot].CompareAndSwap(word, word|sealed) {
			return
		}
	}
}

// resetLocked hands a slot to another cell. Only a sealed slot may be reset.
func (e *entry) resetLocked(slot int, word uint64) {
	e.agedOut += max(0, e.unsentLocked(slot))
	e.global[slot].Store(0)
	e.limitLow[slot].Store(math.MaxInt64)
	e.books[slot] = book{}
	e.words[slot].Store(word)
}

// slotLocked finds the slot of a cell, if the entry still holds that cell.
func (e *entry) slotLocked(sequence int64) (slot int, ok bool) {
	if seq := e.seq.Load(); sequence != seq && sequence != seq-1 {
		return 0, false
	}
	return slotOf(sequence), e.flags.Load()&flagDead == 0
}

// addLocked adds to a cell's count, sealed or not, and stops at the largest count.
func (e *entry) addLocked(slot int, n int64) (added int64) {
	for {
		word := e.words[slot].Load()
		added = min(n, countMax-wordCount(word))
		if e.words[slot].CompareAndSwap(word, word+uint64(added)) {
			return added
		}
	}
}

// acceptedLocked is what may be told to others: the count without reservations.
func (e *entry) acceptedLocked(slot int) int64 {
	return wordCount(e.words[slot].Load()) - e.books[slot].reserved
}

// unsentLocked is this node's own accepted cost that the origin has not confirmed
// and that is not on its way.
func (e *entry) unsentLocked(slot int) int64 {
	b := &e.books[slot]
	return e.acceptedLocked(slot) - b.settled - b.inFlight
}

// absorbLocked merges the origin's total for a cell, in answer to a send of sent
// (0: a read). Whatever is in the total beyond what is settled or in flight was
// contributed by others. Plain max(count, total) would lose what this node accepted
// between sending and answer, and at hydration what it accepted before.
//
// grew is true when others had contributed. lost is true when the total is smaller
// than what the origin has named before and what was added since: it has lost data.
// (An answer that was overtaken by a later one can look the same; healing an origin
// that needs none changes nothing.)
func (e *entry) absorbLocked(slot int, total, sent int64) (grew, lost bool) {
	b := &e.books[slot]
	b.inFlight -= sent
	b.settled += sent
	if others := total - b.settled - b.inFlight; others > 0 {
		b.settled += e.addLocked(slot, others)
		grew = true
	}
	known := b.confirmed + sent
	b.confirmed = min(max(known, total), b.settled)
	return grew, total < known
}

// floorLocked raises the count to at least n: the region is known to have counted
// so much. It is no word of the origin's, and does not make an entry fresh.
func (e *entry) floorLocked(slot int, n int64) {
	if missing := n - e.acceptedLocked(slot); missing > 0 {
		e.books[slot].settled += e.addLocked(slot, missing)
	}
}

// reserve takes cost as judge does, but as a batch's reservation, which nobody
// else may publish. The two fields of a reservation are only read together under
// mu: read apart, count - reserved over-publishes in some interleavings, and a
// maximum-merge makes each of those permanent.
func (e *entry) reserve(tMs, durationMs, limit, cost int64) (v verdict, alive bool) {
	if !e.reach(tMs, durationMs) {
		return v, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flags.Load()&flagDead != 0 {
		return v, false
	}
	v, _ = e.judgeLocked(tMs, durationMs, limit, cost)
	if v.allowed {
		e.books[slotOf(v.seq)].reserved += cost
	}
	return v, true
}

// reach rotates the entry to the cell of tMs, if it lies ahead.
func (e *entry) reach(tMs, durationMs int64) (alive bool) {
	if wanted := sequenceAt(tMs, durationMs); wanted > e.seq.Load() {
		return e.rotate(wanted)
	}
	return true
}

// judgeLocked is judge for a holder of mu: nothing rotates or dies meanwhile.
func (e *entry) judgeLocked(tMs, durationMs, limit, cost int64) (verdict, bool) {
	return e.judge(min(tMs, window.Start(e.seq.Load()+1, durationMs)-1), durationMs, limit, cost, true)
}

// keep turns a reservation into accepted cost; undo takes it back. A cell that has
// aged out meanwhile needs neither.
func (e *entry) keep(sequence, cost int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.books[slot].reserved -= cost
	}
}

func (e *entry) undo(sequence, cost int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.words[slot].Add(^uint64(cost - 1)) // count >= reserved >= cost: no borrow from the tag
		e.books[slot].reserved -= cost
	}
}

// noteLimit keeps the lowest limit that was counted against, for the floor.
func (e *entry) noteLimit(sequence, limit int64) {
	low := &e.limitLow[slotOf(sequence)]
	for {
		was := low.Load()
		if limit >= was || low.CompareAndSwap(was, limit) {
			return
		}
	}
}

// beStrict makes the key's decisions ask the origin first until untilMs. An
// earlier moment never replaces a later one.
func (e *entry) beStrict(untilMs int64) (entered bool) {
	for {
		was := e.strictUntil.Load()
		if untilMs <= was {
			return false
		}
		if e.strictUntil.CompareAndSwap(was, untilMs) {
			return true
		}
	}
}

// hear records that the origin has spoken about the current cell.
func (e *entry) hear(nowMs int64) {
	for {
		was := e.heardAt.Load()
		if nowMs <= was || e.heardAt.CompareAndSwap(was, nowMs) {
			return
		}
	}
}

func (e *entry) cell(sequence int64) window.Cell { return window.Cell{Key: e.key, Sequence: sequence} }
