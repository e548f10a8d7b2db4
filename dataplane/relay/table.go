package relay

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"strings"
)

// table has the cells of a group by their identifiers. Cells and identifiers lie in blocks, and what finds them has no
// pointers, as there are tens of millions: what a relay takes is for the most part fetching memory that it has not
// lately used, and following pointers to collect garbage.
type table struct {
	blocks [][]cell // the cell of a place never moves; see blockOf
	places int      // that are taken
	n      int      // cells that are there
	slots  []uint64 // a cell's hash, and its place and 1; 0 is free. A table of up to searchMax places has none

	texts strings.Builder // identifiers
}

const (
	// Blocks grow with their table to these sizes, so that a cell that is alone in its group takes little.
	blockBits  = 6
	blockBytes = 4 << 10

	// searchMax is how many cells are looked at one after the other.
	searchMax = 8
)

// tableSeed is random, so that no one who chooses identifiers knows which share a slot.
var tableSeed = maphash.MakeSeed()

func hashIdentifier(identifier string) uint32 { return uint32(maphash.String(tableSeed, identifier)) }

// find is nil where there is no such cell.
func (t *table) find(identifier string) *cell {
	return t.findHashed(identifier, hashIdentifier(identifier))
}

func (t *table) findHashed(identifier string, hash uint32) *cell {
	if t.slots == nil {
		for c := range t.all() {
			if c.identifier == identifier {
				return c
			}
		}
		return nil
	}
	mask := uint32(len(t.slots) - 1)
	for at := hash & mask; t.slots[at] != 0; at = (at + 1) & mask {
		if slot := t.slots[at]; uint32(slot>>32) == hash {
			if c := t.at(uint32(slot) - 1); c.identifier == identifier {
				return c
			}
		}
	}
	return nil
}

// findAll finds the cells of counts, whose hashes it sets: nil where there are none.
func (t *table) findAll(counts []entry, found []*cell) {
	for i := range counts {
		counts[i].hash = hashIdentifier(counts[i].identifier)
	}
	for i := range counts {
		found[i] = t.findHashed(counts[i].identifier, counts[i].hash)
	}
}

// add adds a cell that is not there.
func (t *table) add(identifier string, hash uint32) *cell {
	block, _ := blockOf(uint32(t.places))
	if block == len(t.blocks) {
		t.blocks = append(t.blocks, make([]cell, 0, blockSize(block)))
	}
	cells := append(t.blocks[block], cell{identifier: t.keep(identifier)})
	t.blocks[block] = cells
	t.places++
	t.n++
	t.enterLast(hash)
	return &cells[len(cells)-1]
}

// enterLast has the cell found that was added last.
func (t *table) enterLast(hash uint32) {
	switch {
	case t.places <= searchMax:
		return
	case t.slots == nil:
		t.index()
		return
	case 4*t.places > 3*len(t.slots):
		t.grow()
	}
	t.enter(hash, uint32(t.places-1))
}

// keep copies an identifier, so that it does not hold the row that it is of.
func (t *table) keep(identifier string) string {
	if t.texts.Cap()-t.texts.Len() < len(identifier) {
		size := min(blockBytes, 2*t.texts.Cap())
		t.texts = strings.Builder{}
		t.texts.Grow(max(size, len(identifier)))
	}
	from := t.texts.Len()
	t.texts.WriteString(identifier)
	return t.texts.String()[from:]
}

// blockOf is where the cell of a place is: blocks have room for 1, 1, 2, 4 … cells, then for 1<<blockBits each.
func blockOf(place uint32) (block int, at uint32) {
	if place >= 1<<blockBits {
		return blockBits + int(place>>blockBits), place % (1 << blockBits)
	}
	block = bits.Len32(place)
	return block, place &^ (1 << block >> 1)
}

func blockSize(block int) int { return 1 << min(max(0, block-1), blockBits) }

// at is nil where tidy has taken the whole block away.
func (t *table) at(place uint32) *cell {
	block, at := blockOf(place)
	if t.blocks[block] == nil {
		return nil
	}
	return &t.blocks[block][at]
}

// index makes the slots anew, for the cells that are there and as many again.
func (t *table) index() {
	t.slots = make([]uint64, 1<<bits.Len(uint(2*t.places)))
	for place := range uint32(t.places) {
		if c := t.at(place); c != nil && !c.dropped {
			t.enter(hashIdentifier(c.identifier), place)
		}
	}
}

// grow doubles the slots, without a look at a cell.
func (t *table) grow() {
	before := t.slots
	t.slots = make([]uint64, 2*len(before))
	for _, slot := range before {
		if slot != 0 {
			t.enter(uint32(slot>>32), uint32(slot)-1)
		}
	}
}

// enter fills a free slot.
func (t *table) enter(hash, place uint32) {
	mask := uint32(len(t.slots) - 1)
	at := hash & mask
	for t.slots[at] != 0 {
		at = (at + 1) & mask
	}
	t.slots[at] = uint64(hash)<<32 | uint64(place+1)
}

// all is all cells.
func (t *table) all() iter.Seq[*cell] {
	return func(yield func(*cell) bool) {
		for _, block := range t.blocks {
			for i := range block {
				if c := &block[i]; !c.dropped && !yield(c) {
					return
				}
			}
		}
	}
}

// tidy takes the cells off that are unused. Who still has one may go on to use it, and its block stays with it; blocks
// of which no cell is left are given back.
func (t *table) tidy(unused func(*cell) bool) {
	before := t.n
	for i, block := range t.blocks {
		left := 0
		for j := range block {
			switch c := &block[j]; {
			case c.dropped:
			case unused(c):
				c.dropped = true
				t.n--
			default:
				left++
			}
		}
		if left == 0 && i < len(t.blocks)-1 { // the last one has room
			t.blocks[i] = nil
		}
	}
	if t.n < before && t.slots != nil {
		t.index()
	}
}
