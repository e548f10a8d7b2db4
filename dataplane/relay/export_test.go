package relay

import (
	"context"
	"errors"

	"github.com/weirhq/weir/shared/window"
)

// Sizes is how many of each thing a relay holds.
func Sizes(r *Relay) (sizes struct{ Cells, Due, Unsent int }) {
	for _, s := range r.shards {
		s.book.mu.Lock()
		sizes.Cells += s.book.cells.n
		sizes.Due += len(s.book.due)
		sizes.Unsent += s.book.unsent.len()
		s.book.mu.Unlock()
	}
	return sizes
}

// Take has the first shard renew its lease and take changes, as its loops do.
func Take(ctx context.Context, r *Relay) error {
	s, now := r.shards[0], r.cfg.Clock()
	return errors.Join(s.lease.renew(ctx, now), s.take(ctx, now))
}

// Stored is what a relay knows to be stored for good of the own region's count of a cell.
func Stored(r *Relay, c window.Cell) int64 {
	b := &r.shardOf(&c.Key).book
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.cells.find(&c); known != nil && known.ownCount != nil {
		return known.stored
	}
	return 0
}

// Decode calls count for each count of a payload; a cell that is told by its number has no identifier.
func Decode(payload []byte, count func(c window.Cell, total int64)) error {
	_, err := decode(payload, func(c counted) { count(c.cell, c.total) })
	return err
}

// Encode makes a payload of a count of 1 of each cell, without numbers.
func Encode(cells ...window.Cell) []byte {
	var counts []counted
	for _, c := range cells {
		counts = append(counts, counted{c, 0, 1})
	}
	return encode(counts, 0)
}

// SetBounds lowers how many cells a relay's shards hold of each other region.
func SetBounds(r *Relay, regionCells int) {
	for _, s := range r.shards {
		s.book.partMax = regionCells
	}
}

// SetLeaves lowers how many leaves of names a relay holds of each other region.
func SetLeaves(r *Relay, most int) { r.reader.names.leavesMax = most }

// Leaves is how many leaves of names a relay holds of other regions.
func Leaves(r *Relay) (n int) {
	for _, group := range r.reader.names.groups {
		n += len(group)
	}
	return n
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

// EncodeName makes a payload of a count of 1 of a cell, with its name and its number.
func EncodeName(c window.Cell, number uint32) []byte {
	return encode([]counted{{c, number, 1}}, 0)
}

// EncodeNumber makes a payload of the total of a cell of a group, by its number.
func EncodeNumber(c window.Cell, number uint32, total int64) []byte {
	return encode([]counted{{groupOf(c), number, total}}, 0)
}

// Names is how many groups of names a relay keeps, of its own and of others.
func Names(r *Relay) (groups int) {
	for _, s := range r.shards {
		groups += len(s.own.numbers)
	}
	return groups + len(r.reader.names.groups)
}

// Lacking is how many streams a relay holds something of because it lacked their names, or reads their snapshots.
func Lacking(r *Relay) int { return len(r.reader.lacking) }

// cellsOf is how many cells another region has a part of.
func (b *book) cellsOf(name string) int {
	if of := b.regions[name]; of != nil {
		return of.cells
	}
	return 0
}

// SetStreams lowers how many streams a relay follows.
func SetStreams(r *Relay, most int) { r.reader.streamsMax = most }

// Streams is how many streams a relay follows.
func Streams(r *Relay) int { return len(r.reader.after) }

// SetRegions lowers of how many regions a relay's shards hold cells.
func SetRegions(r *Relay, most int) {
	for _, s := range r.shards {
		s.book.regionsMax = most
	}
}

// Owns is of how many cells a relay holds the own region's side.
func Owns(r *Relay) (n int) {
	for _, s := range r.shards {
		s.book.mu.Lock()
		n += s.book.cells.owns
		s.book.mu.Unlock()
	}
	return n
}

// Regions is of how many other regions a relay holds cells.
func Regions(r *Relay) (n int) {
	for _, s := range r.shards {
		s.book.mu.Lock()
		n += len(s.book.regions)
		s.book.mu.Unlock()
	}
	return n
}

// Parted is how many identifiers of rows that were merged a relay holds beside its cells.
func Parted(r *Relay) (n int) {
	for _, part := range r.reader.parts {
		for _, e := range part[:cap(part)] {
			if e.identifier != "" {
				n++
			}
		}
	}
	return n
}

// Known is all counts that a relay holds of each cell: of other regions by their names, and of the own region what the
// origin has, what is published, what peers have and what is stored for good.
func Known(r *Relay) map[window.Cell]map[string]int64 {
	known := make(map[window.Cell]map[string]int64)
	for _, s := range r.shards {
		s.book.mu.Lock()
		for c := range s.book.cells.all() {
			counts := make(map[string]int64)
			for p := range c.parts() {
				counts[p.of.name] = p.total
			}
			if c.ownCount != nil {
				counts["own total"], counts["own published"] = c.total, c.published
				counts["own seen"], counts["own handed over"] = c.seen, c.handed
				counts["own stored"] = c.stored
			}
			known[c.name()] = counts
		}
		s.book.mu.Unlock()
	}
	return known
}
