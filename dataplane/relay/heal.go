package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	raiseMax = 1_000 // cells of a call
	scanMax  = 1_000
)

var errEmptiedMeanwhile = errors.New("the origin has lost its counts meanwhile")

// loadPause returns the pause after the n-th failed load in a row. Pauses grow, because each load reads all stored
// rows.
func loadPause(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	return min(loadPauseMax, time.Second<<(n-2))
}

const loadPauseMax = 8 * time.Second

// failedLoads describes a shard's loads that have failed in a row.
type failedLoads struct {
	n     int
	again time.Time // when the next try is due
	err   error     // of the last load
}

// begin loads the shard, or returns the last error if the pause after a failed load is not over.
func (s *shard) begin(ctx context.Context, now time.Time) error {
	f := &s.failed
	if now.Before(f.again) {
		return f.err
	}
	err := s.load(ctx, now)
	// after ErrTaken another relay writes, and the lease decides which of the two goes on
	if err == nil || errors.Is(err, store.ErrTaken) {
		*f = failedLoads{}
		return err
	}
	s.forget() // another relay may have the lease before the next try
	f.n++
	f.again, f.err = now.Add(loadPause(f.n)), err
	s.seeAll(ctx, now)
	return err
}

// load makes the relay the writer of its stream, and reads all that a writer needs. The order matters. Once the relay
// has appended its first row, other relays of the shard can store nothing, so they acknowledge no changes. Changes that
// they acknowledged before are in the cells that Scan reads afterwards.
func (s *shard) load(ctx context.Context, now time.Time) error {
	s.forget()
	s.own.writer, s.own.madeAt = rand.Uint64(), now
	if _, err := s.peek(ctx, 1); err != nil { // for the origin's clock
		return err
	}
	if err := s.readOwn(ctx, now); err != nil {
		return err
	}
	if err := s.append(ctx, s.row(nil, 0)); err != nil {
		return err
	}
	if err := s.importStored(ctx, now); err != nil {
		return err
	}
	if err := s.scan(ctx, now); err != nil {
		return err
	}
	s.own.ready = true
	s.unloaded.Store(false)
	return nil
}

// readOwn reads the published counts from the relay's own stream, row by row.
func (s *shard) readOwn(ctx context.Context, now time.Time) error {
	s.own.next = 1
	s.own.history = history{begunAt: now}
	named := newNames()
	err := unlessStalled(ctx, func(ctx context.Context, progressed func()) error {
		return s.relay.cfg.Feed.Own(ctx, s.stream, func(row store.FeedRow) {
			progressed()
			s.own.next = row.Sequence + 1
			s.own.history.read(&row)
			s.recallRow(&named, &row, now)
		})
	})
	if err != nil {
		return fmt.Errorf("read the own stream %v: %w", s.stream, err)
	}
	return nil
}

// recallRow records the counts that a row published. It leaves out counts that were published while the origin's clock
// was ahead.
func (s *shard) recallRow(named *names, row *store.FeedRow, now time.Time) {
	var left leftOut
	var err error
	nowMs := s.book.clock.ms()
	_, left.malformed, err = decodeBlocks(row.Payload, func(of *window.Cell, counts []entry) {
		if store.Ahead(of, nowMs) {
			s.own.history.ahead = true
			return
		}
		left.excess += named.recall(&s.book, row, of, counts)
	})
	if err != nil {
		s.relay.unreadable(row, err)
	}
	s.relay.noteLeftOut(row, left, now)
}

// recall records the counts of a group in an own row as published, unless the group has expired. A count with a number
// whose name was not read is left out: a later part of the snapshot has it with its name. recall returns the number of
// cells that there is no room for.
func (n *names) recall(b *book, row *store.FeedRow, of *window.Cell, counts []entry) (excess int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.expired(of.ExpiresAtMs()) {
		return 0
	}
	for i := range counts {
		name := *of
		name.Identifier = counts[i].identifier
		if !n.recallLocked(b, row, &name, &counts[i]) {
			excess++
		}
	}
	return excess
}

// recallLocked reports whether there is room for the cell.
func (n *names) recallLocked(b *book, row *store.FeedRow, name *window.Cell, e *entry) (fits bool) {
	if name.Identifier == "" {
		if known := n.findLocked(row, name, e.number); known != nil {
			known.setPublished(e.total)
		}
		return true
	}
	known := b.storedLocked(name)
	if known == nil {
		return false
	}
	known.setPublished(e.total)
	return e.number == 0 || n.setLocked(row, e.number, known)
}

// scan reads the totals that the origin holds.
func (s *shard) scan(ctx context.Context, now time.Time) error {
	if _, err := s.changes(ctx, 1); err != nil {
		return err
	}
	all, err := s.scanAll(ctx, s.own.epoch)
	if err != nil {
		return fmt.Errorf("scan shard %d: %w", s.index, err)
	}
	s.grow(all, now)
	return nil
}

// scanAll returns all totals that the origin holds in an epoch. It fails if the origin loses its counts meanwhile:
// otherwise the totals may belong to an epoch that is not healed yet, and the relay would heal that epoch with the
// epoch's own counts.
func (s *shard) scanAll(ctx context.Context, epoch store.Epoch) (all []store.Change, err error) {
	err = unlessStalled(ctx, func(ctx context.Context, progressed func()) error {
		for cursor := uint64(0); ; progressed() {
			cells, next, err := s.relay.cfg.Origin.Scan(ctx, s.index, cursor, scanMax)
			if err != nil {
				return err
			}
			all = append(all, cells...)
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
	if err != nil {
		return nil, err
	}
	after, err := s.peek(ctx, 1)
	if err == nil && after.Epoch != epoch {
		err = errEmptiedMeanwhile
	}
	return all, err
}

// heal raises an origin that has lost its counts to the own region's counts: those that the relay has published,
// stored, or read from the origin in an earlier epoch. heal must come before the relay publishes anything of the new
// epoch. Then no count that it raises the origin to includes cost that the origin would count a second time. If a
// replica that was promoted has lost only the mark, heal just marks it as healed.
func (s *shard) heal(ctx context.Context, epoch store.Epoch) error {
	known := s.book.known(epoch)
	err := unlessStalled(ctx, func(ctx context.Context, progressed func()) error {
		return s.raise(ctx, epoch, known, progressed)
	})
	if err == nil {
		s.relay.metrics.healed.Add(1)
	}
	return err
}

// raise raises the origin to the known counts, and marks it as healed.
func (s *shard) raise(ctx context.Context, epoch store.Epoch, known []store.Change, progressed func()) error {
	for batch := range slices.Chunk(known, raiseMax) {
		if err := s.relay.cfg.Origin.Raise(ctx, s.index, epoch, batch); err != nil {
			return fmt.Errorf("raise %d cells of shard %d: %w", len(batch), s.index, err)
		}
		progressed()
	}
	if err := s.relay.cfg.Origin.Healed(ctx, s.index, epoch); err != nil {
		return fmt.Errorf("mark shard %d as healed: %w", s.index, err)
	}
	return nil
}

// known lists the own region's counts of epochs before the given epoch. It returns none if the given epoch was healed
// before, because then the counts may belong to it.
func (b *book) known(epoch store.Epoch) (all []store.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch == b.healed {
		return nil
	}
	for c := range b.cells.allOwn() {
		if total := max(c.total, c.published, c.stored); total > 0 && !b.expired(c.expiresMs()) {
			all = append(all, store.Change{Cell: c.name(), Total: total, Limit: c.limit})
		}
	}
	return all
}
