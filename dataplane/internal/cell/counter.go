package cell

import (
	"runtime"
	"sync/atomic"
)

// counter holds the words of an entry's two cells, and which cells they are. The slot of a cell is its sequence mod 2.
//
// All methods may be called concurrently, but seal, put and advance must be called under Entry.mu, because they give a
// slot to another cell. A slot is reset when the sequence moves two on. A late write to the old cell finds another tag
// in the word, and does nothing.
type counter struct {
	words [2]atomic.Uint64
	seq   atomic.Int64
}

// sequence returns the sequence of the current cell.
func (c *counter) sequence() int64 { return c.seq.Load() }

// advance sets the sequence of the current cell. Its slot and the slot of the previous cell must hold them already.
func (c *counter) advance(sequence int64) { c.seq.Store(sequence) }

func (c *counter) word(slot int) uint64 { return c.words[slot].Load() }

func (c *counter) count(slot int) int64 { return wordCount(c.words[slot].Load()) }

// put replaces a word unconditionally.
func (c *counter) put(slot int, word uint64) { c.words[slot].Store(word) }

func (c *counter) swap(slot int, was, word uint64) bool {
	return c.words[slot].CompareAndSwap(was, word)
}

// add adds to a cell's count, sealed or held or not, and stops at mergedMax.
func (c *counter) add(slot int, n int64) (added int64) {
	for {
		word := c.words[slot].Load()
		sum, added := plus(word, n, mergedMax)
		if c.words[slot].CompareAndSwap(word, sum) {
			return added
		}
	}
}

// take subtracts n from a cell's count. The count must be at least n, because a borrow would change the tag.
func (c *counter) take(slot int, n int64) { c.words[slot].Add(-uint64(n)) }

// seal closes a cell: no request counts in it any more.
func (c *counter) seal(slot int) {
	for {
		word := c.words[slot].Load()
		if word&held != 0 {
			c.awaitRelease(slot)
			continue
		}
		if word&sealed != 0 || c.words[slot].CompareAndSwap(word, word|sealed) {
			return
		}
	}
}

// release counts cost in the current cell, up to its room, and ends the batch's hold, in one step.
func (c *counter) release(cost int64) {
	slot := slotOf(c.seq.Load())
	for {
		word := c.words[slot].Load() // a merge may come in between
		sum, _ := plus(word, cost, mergedMax)
		if c.words[slot].CompareAndSwap(word, sum-held) {
			return
		}
	}
}

// awaitRelease waits while a batch holds the word. It spins a few times, and then yields the processor each time. It
// never sleeps: its caller can hold Entry.mu, and a mutex that is held across a sleep stops the clock of synctest.
func (c *counter) awaitRelease(slot int) {
	const spins = 64
	for n := 0; c.words[slot].Load()&held != 0; n++ {
		if n >= spins {
			runtime.Gosched()
		}
	}
}
