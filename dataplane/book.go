package dataplane

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/clock"
)

// book is what a fleet needs beside the counts. Guarded by entry.mu.
type book struct {
	cells [2]cellBook
	next  *entry // dirty list; belongs to whoever owns flagDirty, then to the collector
	rare  *rare  // nil on nearly every key
}

// cellBook is the background's part of a cell. With C for the word's count, U for
// rare.unnamed, N for rare.netted and K for rare.claiming, all nearly always 0:
//
//	0 <= settled - U         what the origin has named, or is being told
//	settled <= C - N - K     own cost not yet on its way: never negative
//	0 <= flushed <= C - N - K    nothing is published that was not accepted
type cellBook struct {
	settled atomic.Int64 // part of the count that needs no sending: own cost confirmed or on its way, and others' cost
	flushed int64        // largest value known to be in the count store as this region's component
}

// rare is what few keys ever have: those that were refunded after others had been
// told, or raised by their region's own row, or are near their limits in a namespace
// that waits for its share, and those that several regions use. By slot. And all of the
// estimate mode.
type rare struct {
	unnamed [2]int64 // part of settled that the origin has not named: the region's own row has
	credit  [2]int64 // refunded here after others had been told; see Reservation
	netted  [2]int64 // own cost that credit has paid for: it stays in the word, and is told to nobody
	told    [2]int64 // largest count that a bulletin has told, or is about to
	news    [2]news  // of another region's cost, until a decision uses it

	metered  *meter       // of the estimate mode: constant, and keeps this rare for the entry's life
	inFlight [2]int64     // own cost on its way in a send; of keys with flagShared
	claiming [2]int64     // cost on its way in claims: in the count, though not accepted yet, and perhaps in the totals
	crowded  clock.Steady // since when a claim is refused for the room that others may need, while nothing of theirs was heard; 0: not
}

// meter may be asked for without a lock, of entries with flagEstimate.
func (b *book) meter() *meter { return b.rare.metered }

func (b *book) unnamed(slot int) int64 {
	if b.rare == nil {
		return 0
	}
	return b.rare.unnamed[slot]
}

func (b *book) credit(slot int) int64 {
	if b.rare == nil {
		return 0
	}
	return b.rare.credit[slot]
}

func (b *book) netted(slot int) int64 {
	if b.rare == nil {
		return 0
	}
	return b.rare.netted[slot]
}

func (b *book) inFlight(slot int) int64 {
	if b.rare == nil {
		return 0
	}
	return b.rare.inFlight[slot]
}

func (b *book) claiming(slot int) int64 {
	if b.rare == nil {
		return 0
	}
	return b.rare.claiming[slot]
}

func (b *book) told(slot int) int64 {
	if b.rare == nil {
		return 0
	}
	return b.rare.told[slot]
}

func (b *book) rarely() *rare {
	if b.rare == nil {
		b.rare = &rare{}
	}
	return b.rare
}

// reset forgets a cell, and rare with the last cell that needed it.
func (b *book) reset(slot int) {
	b.cells[slot].settled.Store(0)
	b.cells[slot].flushed = 0
	if r := b.rare; r != nil {
		r.unnamed[slot], r.credit[slot], r.netted[slot], r.inFlight[slot], r.claiming[slot] = 0, 0, 0, 0, 0
		r.told[slot], r.news[slot] = 0, news{}
		if *r == (rare{}) {
			b.rare = nil
		}
	}
}

// addLocked adds to a cell's count, sealed or held or not, and stops at mergedMax.
func (e *entry) addLocked(slot int, n int64) (added int64) {
	for {
		word := e.words[slot].Load()
		sum, added := plus(word, n, mergedMax)
		if e.words[slot].CompareAndSwap(word, sum) {
			return added
		}
	}
}

// takeLocked takes n away from a cell's count, which must hold as much: no borrow
// reaches the tag.
func (e *entry) takeLocked(slot int, n int64) { e.words[slot].Add(-uint64(n)) }

// acceptedLocked is what may be told to others.
func (e *entry) acceptedLocked(slot int) int64 {
	return wordCount(e.words[slot].Load()) - e.book.netted(slot) - e.book.claiming(slot)
}

// unsentLocked is this node's own accepted cost that the origin has not confirmed
// and that is not on its way.
func (e *entry) unsentLocked(slot int) int64 {
	return e.acceptedLocked(slot) - e.book.cells[slot].settled.Load()
}

// foreignLocked is what all other regions have reported for the cell.
func (e *entry) foreignLocked(slot int) int64 {
	return e.others[slot].Load() + e.book.credit(slot) + e.book.netted(slot)
}

// sendLocked puts n of the unsent cost on its way; returnLocked takes it back: the
// send has failed. If its reply was lost it may have been applied, and will then count
// twice: at most one tick's cost, on the safe side.
func (e *entry) sendLocked(slot int, n int64) {
	if e.flags.Or(flagSending<<slot)&flagShared != 0 {
		e.book.rarely().inFlight[slot] = n
	}
	e.book.cells[slot].settled.Add(n)
}

func (e *entry) returnLocked(slot int, n int64) {
	e.arriveLocked(slot)
	e.book.cells[slot].settled.Add(-n)
}

// arriveLocked ends a send.
func (e *entry) arriveLocked(slot int) {
	e.flags.And(^uint32(flagSending << slot))
	if e.book.rare != nil {
		e.book.rare.inFlight[slot] = 0
	}
}
