package relay

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"strings"
)

// table finds the cells of a group by their identifiers. A relay may hold tens of millions of cells, and most of its
// time goes into memory that is in no cache, and into pointers that the garbage collector follows. So cells and
// identifiers lie in blocks, and the index has no pointers.
type table struct {
	blocks [][]cell // a cell never moves; see blockOf
	places int      // places taken in blocks
	n      int      // cells not dropped
	slots  []uint64 // hash of a cell and its place plus 1; 0 is free; nil up to searchMax places

	texts strings.Builder // identifiers
}

const (
	// Blocks grow with their table up to these sizes, so that a cell that is alone in its group takes little memory.
	blockBits  = 6
	blockBytes = 4 << 10

	// searchMax is the most places that are searched without an index.
	searchMax = 8
)

// tableSeed is random, so that callers who choose identifiers cannot make them share slots, for example to slow the
// table down.
var tableSeed = maphash.MakeSeed()

func hashIdentifier(identifier string) uint32 { return uint32(maphash.String(tableSeed, identifier)) }

// find returns the cell, or nil if the table has no such cell.
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

// findAll sets the hashes of counts, and found to their cells, or nil where the table has none.
func (t *table) findAll(counts []entry, found []*cell) {
	for i := range counts {
		counts[i].hash = hashIdentifier(counts[i].identifier)
	}
	for i := range counts {
		found[i] = t.findHashed(counts[i].identifier, counts[i].hash)
	}
}

// add adds a cell that the table does not have.
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

// enterLast adds the newest cell to the index.
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

// keep copies an identifier, so that it does not keep its row in memory.
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

// blockOf returns the block and the index of a place. Blocks have room for 1, 1, 2, 4 … cells, then for 1<<blockBits
// each. For example, place 5 is the second cell of block 3.
func blockOf(place uint32) (block int, at uint32) {
	if place >= 1<<blockBits {
		return blockBits + int(place>>blockBits), place % (1 << blockBits)
	}
	block = bits.Len32(place)
	return block, place &^ (1 << block >> 1)
}

func blockSize(block int) int { return 1 << min(max(0, block-1), blockBits) }

// at returns the cell of a place, or nil if tidy has freed its block.
func (t *table) at(place uint32) *cell {
	block, at := blockOf(place)
	if t.blocks[block] == nil {
		return nil
	}
	return &t.blocks[block][at]
}

// index makes new slots for the cells in the table, with room for as many again.
func (t *table) index() {
	t.slots = make([]uint64, 1<<bits.Len(uint(2*t.places)))
	for place := range uint32(t.places) {
		if c := t.at(place); c != nil && !c.dropped {
			t.enter(hashIdentifier(c.identifier), place)
		}
	}
}

// grow doubles the slots without reading the cells.
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

// all yields the cells that were not dropped.
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

// tidy drops the unused cells. A caller that still refers to a dropped cell may go on to use it, which keeps the cell's
// block in memory. Otherwise, tidy frees blocks without cells.
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
		if left == 0 && i < len(t.blocks)-1 { // the last block has room for new cells
			t.blocks[i] = nil
		}
	}
	if t.n < before && t.slots != nil {
		t.index()
	}
}
