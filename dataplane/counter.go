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
	flagPressed              // slot 0: counted to half its limit or more, or denied
	flagPressed1
	flagRefused // slot 0: the count store will not have its row
	flagRefused1
	flagStale // slot 0: closed, and the origin last spoke of it before its end
	flagStale1

	flagsOfSlot = flagPressed | flagRefused | flagStale
)

// entry is all that a node knows about one key: the current cell and the one
// before it, in two slots (slot = sequence mod 2), so that a decision is one look-up.
// It is 128 bytes long and so aligned; what a decision reads is the first line, and of
// a node with an origin the second. What only a fleet needs is in book.
//
// Who writes what, and which way it moves:
//
//	words        requests (CAS, +cost); batches (+cost, roll back -cost); merges (+);
//	             refunds (-), of own cost that nobody else has been told of
//	others       import (+); refunds (-) of cost that others have been told of
//	seq          rotate                 grows
//	heardAt      hydrate, replay        grows
//	strictUntil  whoever was denied     grows
//	book         background, batches and refunds, under mu
//
// The slot of a cell is reset when the sequence moves two on; a late write to the
// old cell finds another sequence and does nothing.
type entry struct {
	id     identity // constant
	words  [2]atomic.Uint64
	others [2]atomic.Int64 // all other regions' cost in the cell, less credit: added to the count when judging
	seq    atomic.Int64    // sequence of the current cell
	flags  atomic.Uint32

	heardAt     atomic.Int64 // Unix ms of the origin's last word on the current cell; 0: never
	strictUntil atomic.Int64 // Unix ms; survives the sequence's rollover
	names       names        // constant
	book        *book        // constant; nil on a node alone
	flight      *flight      // the read in flight, or the last one if it failed; under mu
	mu          sync.Mutex   // never held across I/O or a wait
}

// book is what a fleet needs beside the counts. Guarded by entry.mu, but for limitLow.
type book struct {
	cells    [2]cellBook
	limitLow [2]atomic.Int64 // lowest limit that was counted against in the cell
	next     *entry          // dirty list; belongs to whoever owns flagDirty, then to the collector
}

// cellBook is the background's part of a cell. With C for the word's count:
//
//	0 <= inFlight <= C - reserved - settled         own cost not yet confirmed
//	0 <= confirmed <= settled                       what the origin said is never forgotten
//	0 <= flushed <= C - reserved                    nothing is published that was not accepted
//	0 <= credit <= C                                nothing is refunded that was not accepted
type cellBook struct {
	settled   int64 // part of the count that needs no sending: confirmed own cost and others' cost
	inFlight  int64 // own cost on its way to the origin
	confirmed int64 // largest total the origin itself has named
	reserved  int64 // batches not yet decided; part of the word, never replayed or flushed
	flushed   int64 // largest value known to be in the count store as this region's component
	offered   int64 // largest value ever handed to the count store: it may be stored, whatever became of the call
	credit    int64 // refunded here after others had been told; see Reservation
	netted    int64 // own cost that credit has paid for: it stays in the word, and is told to nobody
}

func newEntry(id *identity, key *window.Key, sequence int64, fleet bool) *entry {
	e := &entry{id: *id, names: newNames(key)}
	e.seq.Store(sequence)
	e.words[slotOf(sequence)].Store(liveWord(sequence, 0))
	e.words[slotOf(sequence-1)].Store(liveWord(sequence-1, 0) | sealed)
	if fleet {
		e.book = &book{}
		e.book.limitLow[0].Store(math.MaxInt64)
		e.book.limitLow[1].Store(math.MaxInt64)
	}
	return e
}

// verdict is what a decision saw, and what it decided. Counts are in cost.
type verdict struct {
	allowed  bool
	seq      int64
	tMs      int64 // the time judged by: the request's, or the start of the current cell if that is later
	current  int64 // regional + global in the cell, without the cost
	previous int64 // the same of the cell before
	agedOut  int64 // own cost that was still unsent when its cell made way for this one
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
			if !e.settle() {
				return false
			}
			continue
		}
		// Of each cell first the word, then the others: whoever moves cost from one to
		// the other adds before it takes away, so that none is overlooked.
		before := previousSlot(slot)
		v.current = max(0, wordCount(word)+e.others[slot].Load())
		v.previous = max(0, wordCount(e.words[before].Load())+e.others[before].Load())
		v.allowed = window.Fits(v.current, v.previous, cost, limit, start+durationMs-v.tMs, durationMs)
		switch {
		case v.allowed && count && cost > 0:
			if e.words[slot].CompareAndSwap(word, word+uint64(cost)) {
				return true
			}
		case wordIsLive(e.words[slot].Load(), seq): // no rotation came between the reads
			return true
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
		if word&sealed != 0 || e.words[slot].CompareAndSwap(word, word|sealed) {
			return
		}
	}
}

// resetLocked hands a sealed slot to another cell.
func (e *entry) resetLocked(slot int, word uint64) (agedOut int64) {
	e.others[slot].Store(0)
	e.flags.And(^uint32(flagsOfSlot << slot))
	if e.book != nil {
		agedOut = max(0, e.unsentLocked(slot))
		e.book.limitLow[slot].Store(math.MaxInt64)
		e.book.cells[slot] = cellBook{}
	}
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

// takeLocked takes n away from a cell's count, which must hold as much: no borrow
// reaches the tag.
func (e *entry) takeLocked(slot int, n int64) { e.words[slot].Add(-uint64(n)) }

// acceptedLocked is what may be told to others: the count without reservations.
func (e *entry) acceptedLocked(slot int) int64 {
	c := &e.book.cells[slot]
	return wordCount(e.words[slot].Load()) - c.reserved - c.netted
}

// unsentLocked is this node's own accepted cost that the origin has not confirmed
// and that is not on its way.
func (e *entry) unsentLocked(slot int) int64 {
	c := &e.book.cells[slot]
	return e.acceptedLocked(slot) - c.settled - c.inFlight
}

// foreignLocked is what all other regions have reported for the cell.
func (e *entry) foreignLocked(slot int) int64 {
	c := &e.book.cells[slot]
	return e.others[slot].Load() + c.credit + c.netted
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
	c := &e.book.cells[slot]
	c.inFlight -= sent
	c.settled += sent
	if others := total - c.settled - c.inFlight; others > 0 {
		c.settled += e.addLocked(slot, others)
		grew = true
	}
	known := c.confirmed + sent
	c.confirmed = min(max(known, total), c.settled)
	return grew, total < known
}

// floorLocked raises the count to at least n: the region is known to have counted
// so much. It is no word of the origin's, and does not make an entry fresh.
func (e *entry) floorLocked(slot int, n int64) {
	if missing := n - e.acceptedLocked(slot); missing > 0 {
		e.book.cells[slot].settled += e.addLocked(slot, missing)
	}
}

// reserve takes cost as judge does, but as a batch's reservation, which nobody
// else may publish. The two fields of a reservation are only read together under
// mu: read apart, count - reserved over-publishes in some interleavings, and a
// maximum-merge makes each of those permanent.
func (e *entry) reserve(tMs, durationMs, limit, cost int64) (v verdict, alive bool) {
	if e.book == nil { // nobody publishes
		alive = e.judge(&v, tMs, durationMs, limit, cost, true)
		return v, alive
	}
	var agedOut int64
	if wanted := window.Sequence(tMs, durationMs); wanted > e.seq.Load() {
		if agedOut, alive = e.rotate(wanted); !alive {
			return v, false
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flags.Load()&flagDead != 0 {
		return v, false
	}
	// Nothing rotates or dies while mu is held, and judge must not try to.
	tMs = min(tMs, window.Start(e.seq.Load()+1, durationMs)-1)
	e.judge(&v, tMs, durationMs, limit, cost, true)
	v.agedOut = agedOut
	if v.allowed {
		e.book.cells[slotOf(v.seq)].reserved += cost
	}
	return v, true
}

// keep turns a reservation into accepted cost; undo takes it back. A cell that has
// aged out meanwhile needs neither.
func (e *entry) keep(sequence, cost int64) {
	if e.book == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.book.cells[slot].reserved -= cost
	}
}

func (e *entry) undo(sequence, cost int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return
	}
	e.takeLocked(slot, cost) // before reserved: what is told of the cell is never more than accepted
	if e.book != nil {
		e.book.cells[slot].reserved -= cost
	}
}

// beStrict makes the key's decisions ask the origin first until untilMs. An
// earlier moment never replaces a later one.
func (e *entry) beStrict(untilMs int64) (entered bool) { return raise(&e.strictUntil, untilMs) }

// hear records that the origin has spoken about the current cell.
func (e *entry) hear(nowMs int64) { raise(&e.heardAt, nowMs) }

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

// noteLimit keeps the lowest limit that was counted against, for the floor.
func (b *book) noteLimit(sequence, limit int64) {
	low := &b.limitLow[slotOf(sequence)]
	for {
		was := low.Load()
		if limit >= was || low.CompareAndSwap(was, limit) {
			return
		}
	}
}

func (e *entry) cell(sequence int64) window.Cell {
	return window.Cell{Key: e.names.key(), Sequence: sequence}
}
