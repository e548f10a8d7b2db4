package relay

import (
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Most of the time that merging takes goes into fetching cells that are in no processor cache. So counts are merged in
// blocks: short loops first look up all cells of a block, so that the processor can fetch many at once, and then the
// cells are changed.

// merge raises another region's components in the cells of a group, and sets known to the cells. known is nil for cells
// that have expired, and for cells that the region has no room for, which merge counts in excess.
func (b *book) merge(from string, of *window.Cell, counts []entry, known []*cell, now time.Time) (excess int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(known)
	if len(counts) == 0 || b.expired(of.ExpiresAtMs()) {
		return 0
	}
	r := b.regions.findOrAdd(from)
	if r == nil || r.cells >= b.partMax && b.cells.groups[*of] == nil {
		return len(counts)
	}
	g := b.cells.groupOf(of, b)
	g.cells.findAll(counts, known)
	for i := range counts {
		if known[i] == nil { // or the block has the cell twice, and it was just added
			known[i] = b.foreignInLocked(g, counts[i].identifier, counts[i].hash, r)
		}
		if known[i] == nil {
			excess++
			continue
		}
		b.raiseLocked(known[i], r, counts[i].total)
		b.shareLocked(known[i], now)
	}
	return excess
}

// raise raises another region's components in the cells of known that belong to the book, and skips nil cells. All
// cells must be of the same group.
func (b *book) raise(from string, of *window.Cell, counts []entry, known []*cell, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.expired(of.ExpiresAtMs()) {
		return
	}
	mine := 0
	for _, c := range known {
		if c != nil && c.group.book == b {
			mine++
		}
	}
	if mine == 0 {
		return
	}
	r := b.regions.findOrAdd(from)
	for i, c := range known {
		if r != nil && c != nil && c.group.book == b {
			b.raiseLocked(c, r, counts[i].total)
			b.shareLocked(c, now)
		}
	}
}

// foreignLocked returns a cell that another region has counted in, or nil if there is no room for another cell of the
// region.
func (b *book) foreignLocked(name *window.Cell, from *region) *cell {
	if from.cells >= b.partMax {
		return b.cells.find(name)
	}
	return b.cellLocked(name)
}

// foreignInLocked is foreignLocked for a cell of the given group.
func (b *book) foreignInLocked(g *group, identifier string, hash uint32, from *region) *cell {
	if from.cells >= b.partMax {
		return g.cells.findHashed(identifier, hash)
	}
	return b.cells.findOrAdd(g, identifier, hash)
}

func (b *book) raiseLocked(c *cell, from *region, total int64) {
	if c.merge(from, total) {
		b.unsentLocked(c)
	}
}
