package relay

import "github.com/weirhq/weir/shared/window"

// Sizes is how many of each thing a relay holds.
func Sizes(r *Relay) (sizes struct{ Cells, Waiting, Due, Unsent, Hashes int }) {
	for _, s := range r.shards {
		s.book.mu.Lock()
		sizes.Cells += s.book.n
		sizes.Waiting += len(s.book.waiting)
		sizes.Due += len(s.book.due)
		sizes.Unsent += len(s.book.unsent)
		s.book.mu.Unlock()
	}
	for _, set := range r.reader.users.sets {
		sizes.Hashes += len(set)
	}
	return sizes
}

// Stored is what a relay knows to be stored for good of the own region's count of a cell.
func Stored(r *Relay, c window.Cell) int64 {
	b := &r.shardOf(&c.Key).book
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.findLocked(&c); known != nil && known.ownCount != nil {
		return known.stored
	}
	return 0
}

// Decode calls count for each count of a payload.
func Decode(payload []byte, count func(window.Cell)) error {
	return decode(payload, func(hashed) {}, func(c counted) { count(c.cell) })
}

// Encode makes a payload of hashes with these expiries, and of a count of 1 of each cell, numbered from 1 on.
func Encode(expiriesMs []int64, cells ...window.Cell) []byte {
	var hashes []hashed
	for i, ms := range expiriesMs {
		hashes = append(hashes, hashed{ms, uint32(i)})
	}
	var counts []counted
	for i, c := range cells {
		counts = append(counts, counted{c, uint32(i + 1), 1})
	}
	return encode(hashes, counts, 0)
}

// SetBounds lowers how many cells a relay's shards hold of each other region, and how many hashes.
func SetBounds(r *Relay, regionCells, users int) {
	for _, s := range r.shards {
		s.book.partMax = regionCells
	}
	r.reader.users.costMax = users
}

// Parts is how many cells a relay counts of a region.
func Parts(r *Relay, region string) (n int) {
	for _, s := range r.shards {
		s.book.mu.Lock()
		n += s.book.cellsOf(region)
		s.book.mu.Unlock()
	}
	return n
}

// EncodeNumber makes a payload of the total of a cell of a group, by its number.
func EncodeNumber(c window.Cell, number uint32, total int64) []byte {
	return encode(nil, []counted{{groupOf(c), number, total}}, 0)
}

// Names is how many groups of names a relay keeps, of its own and of others.
func Names(r *Relay) (groups int) {
	for _, s := range r.shards {
		groups += len(s.own.numbers)
	}
	return groups + len(r.reader.names.groups)
}
