package relay

import (
	"context"
	"errors"

	"github.com/weirhq/weir/shared/window"
)

// Sizes returns the numbers of cells, of due cells and of unsent foreign totals.
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

// Take renews the lease of the first shard and takes its changes, as the loops do.
func Take(ctx context.Context, r *Relay) error {
	s, now := r.shards[0], r.cfg.Clock()
	return errors.Join(s.lease.renew(ctx, now), s.take(ctx, now))
}

// Stored returns the own region's count of a cell that is in the CountStore, as the relay has recorded it.
func Stored(r *Relay, c window.Cell) int64 {
	b := &r.shardOf(&c.Key).book
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.cells.find(&c); known != nil && known.ownCount != nil {
		return known.stored
	}
	return 0
}

// Decode calls count for each count of a payload. A count with a number instead of a name has no identifier.
func Decode(payload []byte, count func(c window.Cell, total int64)) error {
	_, err := decode(payload, func(c counted) { count(c.cell, c.total) })
	return err
}

// Encode makes a payload with a count of 1 for each cell, without numbers.
func Encode(cells ...window.Cell) []byte {
	var counts []counted
	for _, c := range cells {
		counts = append(counts, counted{c, 0, 1})
	}
	return encode(counts, 0)
}

// SetBounds lowers the number of cells that each shard may hold of each other region.
func SetBounds(r *Relay, regionCells int) {
	for _, s := range r.shards {
		s.book.partMax = regionCells
	}
}

// SetLeaves lowers the number of leaves that a relay may hold of each other region.
func SetLeaves(r *Relay, most int) { r.reader.names.leavesMax = most }

// Leaves returns the number of leaves that a relay holds of other regions.
func Leaves(r *Relay) (n int) {
	for _, group := range r.reader.names.groups {
		n += len(group)
	}
	return n
}

// Parts returns the number of cells with a component of the region.
func Parts(r *Relay, region string) (n int) {
	for _, s := range r.shards {
		s.book.mu.Lock()
		n += s.book.regions.cellsOf(region)
		s.book.mu.Unlock()
	}
	return n
}

// EncodeName makes a payload with a count of 1 of a cell, with the cell's name and number.
func EncodeName(c window.Cell, number uint32) []byte {
	return encode([]counted{{c, number, 1}}, 0)
}

// EncodeNumber makes a payload with the total of a cell, with the cell's number and without its name.
func EncodeNumber(c window.Cell, number uint32, total int64) []byte {
	return encode([]counted{{groupOf(c), number, total}}, 0)
}

// Names returns the number of groups with numbers that a relay keeps, of its own stream and of others.
func Names(r *Relay) (groups int) {
	for _, s := range r.shards {
		groups += len(s.own.numbers)
	}
	return groups + len(r.reader.names.groups)
}

// Lacking returns the number of streams that lack names or are in the middle of a snapshot.
func Lacking(r *Relay) int { return len(r.reader.lacking) }

// cellsOf returns the number of cells with a component of the region.
func (s *regionSet) cellsOf(name string) int {
	if of := s.byName[name]; of != nil {
		return of.cells
	}
	return 0
}

// SetStreams lowers the number of streams that a relay may follow.
func SetStreams(r *Relay, most int) { r.reader.streamsMax = most }

// Streams returns the number of streams that a relay follows.
func Streams(r *Relay) int { return len(r.reader.after) }

// SetRegions lowers the number of regions that the cells of a shard may have components of.
func SetRegions(r *Relay, most int) {
	for _, s := range r.shards {
		s.book.regions.max = most
	}
}

// Owns returns the number of cells with an ownCount.
func Owns(r *Relay) (n int) {
	for _, s := range r.shards {
		s.book.mu.Lock()
		n += s.book.cells.owns
		s.book.mu.Unlock()
	}
	return n
}

// Regions returns the number of other regions with components.
func Regions(r *Relay) (n int) {
	for _, s := range r.shards {
		s.book.mu.Lock()
		n += len(s.book.regions.byName)
		s.book.mu.Unlock()
	}
	return n
}

// Parted returns the number of identifiers that the reader's reused memory still refers to.
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

// Known returns all counts that a relay holds of each cell: other regions' components by their names, and the own
// region's total, published, handed and stored counts.
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
