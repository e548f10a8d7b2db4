package relay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

const (
	snapshotRowsMax = 1_500 // a snapshot is due after so many rows, however short they are
	pruneMax        = 1_000 // most rows that a call deletes
)

// history decides when a stream's next snapshot is due. It is due when SnapshotEvery has passed and the rows since the
// last snapshot have as many bytes as that snapshot, so snapshots at most double the bytes that are written and read.
// It is due at once if the origin's clock was set back, and rows since the last snapshot have cells that the origin has
// forgotten: no relay should read these cells when their time has come.
type history struct {
	last      int64 // first row of the last complete snapshot; 0 if there is none
	lastBytes int   // of its parts
	since     int   // rows since then that are not parts of a snapshot
	sinceSize int   // their bytes
	begunAt   time.Time
	ahead     bool // rows since the last snapshot have cells whose windows have not begun: the origin's clock was ahead

	// These fields describe the snapshot that is being written.
	first      int64 // its first row; 0 if no snapshot is being written
	firstBytes int
	rest       []*cell // the cells for its next parts
}

// read records the next row of the stream. Rows are read from the last complete snapshot on.
func (h *history) read(row *store.FeedRow) {
	if isFirst := h.last == 0 && h.since == 0; isFirst && row.Snapshot == row.Sequence {
		h.last = row.Snapshot
	}
	if row.Snapshot == h.last && h.last != 0 {
		h.lastBytes += len(row.Payload)
		return
	}
	h.since++
	h.sinceSize += len(row.Payload)
}

func (h *history) due(now time.Time, every time.Duration) bool {
	return h.ahead || h.since >= snapshotRowsMax || h.since > 0 && h.sinceSize >= h.lastBytes &&
		now.Sub(h.begunAt) >= every
}

// stored records a row. When the row completes a snapshot, rows below prune are older than the last two snapshots and
// no longer needed.
func (h *history) stored(row *store.FeedRow, rest []*cell) (prune int64) {
	if row.Snapshot == 0 {
		h.since++
		h.sinceSize += len(row.Payload)
		return 0
	}
	h.first, h.rest = row.Snapshot, rest
	h.firstBytes += len(row.Payload)
	if !row.Last {
		return 0
	}
	prune = h.last
	*h = history{last: h.first, lastBytes: h.firstBytes, begunAt: h.begunAt}
	return prune
}

// snapshot appends the next part of a snapshot, if a snapshot is being written or is due. It appends a part in each
// interval.
func (s *shard) snapshot(ctx context.Context, now time.Time) error {
	h := &s.own.history
	if s.own.pending != nil || h.first == 0 && !h.due(now, s.own.tuning.SnapshotEvery) {
		return nil
	}
	if h.first == 0 {
		h.begunAt, h.rest = now, s.book.allPublished()
	}
	s.own.pending = s.part(h.rest)
	return s.settle(ctx)
}

// part makes the next row of a snapshot.
func (s *shard) part(cells []*cell) *pending {
	s.book.mu.Lock()
	var all []cellTotal
	for _, c := range cells {
		all = append(all, cellTotal{c, c.published})
	}
	s.book.mu.Unlock()
	fit, more := fitting(all, true)
	row := s.rowOf(encodeNamed(fit, true))
	row.Snapshot, row.Last = s.own.history.first, !more
	if row.Snapshot == 0 {
		row.Snapshot = row.Sequence
	}
	return &pending{row: row, rest: cells[len(fit):]}
}

// allPublished lists the cells with a published count.
func (b *book) allPublished() []*cell {
	return b.sortedOwn(func(c *cell) bool { return c.published > 0 })
}

// sortedOwn lists the cells with an ownCount that pass and have not expired, in an order that makes payloads small. It
// sorts without the lock, because the names of cells don't change.
func (b *book) sortedOwn(pass func(*cell) bool) (all []*cell) {
	b.mu.Lock()
	for c := range b.cells.allOwn() {
		if pass(c) && !b.expired(c.expiresMs()) {
			all = append(all, c)
		}
	}
	b.mu.Unlock()
	slices.SortFunc(all, func(a, c *cell) int { return a.compare(c) })
	return all
}

// prune deletes rows that are older than the last two snapshots, a batch at a time.
func (s *shard) prune(ctx context.Context, _ time.Time) error {
	below := s.prunes.Load()
	if below == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	deleted, err := s.relay.cfg.Feed.Prune(ctx, s.stream, below, pruneMax)
	if err != nil {
		return fmt.Errorf("prune %v below %d: %w", s.stream, below, err)
	}
	if deleted < pruneMax {
		s.prunes.CompareAndSwap(below, 0)
	}
	return nil
}
