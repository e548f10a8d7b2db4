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
	raiseMax = 1_000 // cells of one call
	scanMax  = 1_000
)

var errEmptiedMeanwhile = errors.New("the origin has lost its counts meanwhile")

// loadPause is how long a shard waits after the n-th load that failed in a row, as each reads all that is stored.
func loadPause(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	return min(loadPauseMax, time.Second<<(n-2))
}

const loadPauseMax = 8 * time.Second

// failedLoads is how often in a row, and how, a shard's load has failed.
type failedLoads struct {
	n     int
	again time.Time // when it is tried again
	err   error     // the last one
}

// begin loads, unless that has failed too lately.
func (s *shard) begin(ctx context.Context, now time.Time) error {
	f := &s.failed
	if now.Before(f.again) {
		return f.err
	}
	err := s.load(ctx, now)
	// then another relay writes, and the lease says which of the two goes on
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

// load makes the relay the writer of its stream, and learns what it has to know for that. The order matters: from the
// first row of its own on, other relays of the shard can store nothing, and so take no change off the origin; what they
// took off before, Scan finds in its cell.
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

// readOwn learns from the stream what has been told. It holds a row at a time.
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

// recallRow takes note of what a row has told.
func (s *shard) recallRow(named *names, row *store.FeedRow, now time.Time) {
	var left leftOut
	var err error
	_, left.malformed, err = decodeBlocks(row.Payload, func(of *window.Cell, counts []entry) {
		left.excess += named.recall(&s.book, row, of, counts)
	})
	if err != nil {
		s.relay.unreadable(row, err)
	}
	s.relay.noteLeftOut(row, left, now)
}

// recall enters a group's counts in an own row into the book, unless they have expired. A count that has a number whose
// name was not read comes again in a later part of a snapshot, with its name. recall returns the number of cells that
// there is no room for.
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

// recallLocked returns false where there is no room for the cell.
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

// scan learns the totals that the origin holds.
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

// scanAll returns all that the origin holds in an epoch. It fails if the origin loses its counts meanwhile: otherwise
// the totals may be of an epoch that is not healed yet, and the relay would heal it with its own counts.
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

// heal gives an origin that has lost its counts what the relay knows of the own region's: what it has told, or stored,
// or read from the origin in an earlier epoch. It comes before anything of the new epoch is told: so no number that the
// relay knows has in it what the origin would then count a second time. A replica that was promoted may have lost the
// mark alone, and then is only marked anew.
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

// raise raises the origin to what is known, and marks it as healed.
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

// known lists the own region's counts of epochs before the given one. It returns none if that epoch was healed before:
// then the counts may be of that epoch.
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
