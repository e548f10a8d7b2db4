package memstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// FeedOptions are all optional.
type FeedOptions struct {
	// Clock stamps rows and is FeedPage.Now; nil is time.Now.
	Clock func() time.Time

	// Settings returns FeedPage.Settings: the SettingsVersion of the Counts that belong to the feed. Nil is none.
	Settings func() int64
}

// Feed is a store.Feed in memory. Rows stay until they are pruned.
type Feed struct {
	// Faults make it fail; see there. With SlowCommits an Append holds its number back as an uncommitted transaction does:
	// reads can't see it, and other writers that append that number must wait.
	Faults Faults

	clock    func() time.Time
	settings func() int64

	mu      sync.Mutex
	streams map[store.Stream]*feedStream
	stats   FeedStats
}

var _ store.Feed = (*Feed)(nil)

// FeedStats count the rows of a Feed since it was made, and the appends, failed calls included.
type FeedStats struct {
	Appends                int64
	RowsStored, RowsPruned int64
	BytesStored            int64 // of payload
}

// NewFeed returns an empty Feed.
func NewFeed(o FeedOptions) *Feed {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Settings == nil {
		o.Settings = func() int64 { return 0 }
	}
	return &Feed{clock: o.Clock, settings: o.Settings, streams: make(map[store.Stream]*feedStream)}
}

// Append implements store.Feed.
func (n *Feed) Append(ctx context.Context, row store.FeedRow) error {
	n.mu.Lock()
	n.stats.Appends++
	n.mu.Unlock()
	return n.Faults.roundTrip(ctx, OpAppend, func(j journey) error {
		if err := row.Validate(); err != nil {
			return err
		}
		commit, _, err := n.begin(ctx, row)
		if err != nil || commit == nil {
			return err
		}
		err = j.wait(ctx, j.commit())
		commit() // also if its caller has gone
		return err
	})
}

// Hold begins to append the next row of a stream, and keeps the row uncommitted until the caller calls commit or
// rollback. Use it to test a writer that stalls, or is killed, in the middle of a transaction.
func (n *Feed) Hold(row store.FeedRow) (commit, rollback func(), err error) {
	commit, rollback, err = n.begin(context.Background(), row)
	if err == nil && commit == nil {
		return nil, nil, opError(OpAppend, fmt.Errorf("row %d of %v is stored already", row.Sequence, row.Stream))
	}
	return commit, rollback, err
}

// begin writes a row that is not visible yet. commit is nil if the very row is stored already. It waits for a row that
// is held.
func (n *Feed) begin(ctx context.Context, row store.FeedRow) (commit, rollback func(), err error) {
	for {
		n.mu.Lock()
		s := n.streamLocked(row.Stream)
		if s.held == nil {
			defer n.mu.Unlock()
			return n.holdLocked(s, row)
		}
		over := s.held.over
		n.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-over:
		}
	}
}

func (n *Feed) holdLocked(s *feedStream, row store.FeedRow) (commit, rollback func(), err error) {
	if at := s.find(row.Sequence); at >= 0 && sameRow(s.rows[at], row) {
		return nil, nil, nil
	}
	if next := s.last() + 1; row.Sequence != next {
		return nil, nil, fmt.Errorf("%w: number %d of %v, next is %d", store.ErrTaken, row.Sequence, row.Stream, next)
	}
	row.Payload, row.WrittenAt = append([]byte{}, row.Payload...), n.clock()
	held := &heldRow{row, make(chan struct{})}
	s.held = held
	end := func(stored bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if s.held != held { // ended before, or its stream was lost
			return
		}
		s.held = nil
		close(held.over)
		if stored {
			s.rows = append(s.rows, row)
			n.stats.RowsStored++
			n.stats.BytesStored += int64(len(row.Payload))
		}
	}
	return func() { end(true) }, func() { end(false) }, nil
}

// Own implements store.Feed.
func (n *Feed) Own(ctx context.Context, stream store.Stream, yield func(store.FeedRow)) error {
	var rows []store.FeedRow
	err := n.Faults.roundTrip(ctx, OpOwn, func(journey) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		s := n.streamLocked(stream)
		rows = copyRows(s.rows[s.wholeFrom():])
		return nil
	})
	if err != nil {
		return err
	}
	for _, row := range rows {
		yield(row)
	}
	return nil
}

// Prune implements store.Feed.
func (n *Feed) Prune(ctx context.Context, stream store.Stream, sequence int64, max int) (deleted int, err error) {
	err = n.Faults.roundTrip(ctx, OpPrune, func(journey) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		s := n.streamLocked(stream)
		for deleted < max && deleted < len(s.rows)-1 && s.rows[deleted].Sequence < sequence {
			deleted++
		}
		s.rows = slices.Clone(s.rows[deleted:])
		n.stats.RowsPruned += int64(deleted)
		return nil
	})
	return deleted, err
}

// Lose forgets a stream's rows from a number on, as a store does that is restored from a backup.
func (n *Feed) Lose(stream store.Stream, from int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.streamLocked(stream).lose(from)
}

// Wipe forgets all rows.
func (n *Feed) Wipe() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.streams {
		s.lose(0)
	}
}

// Rows lists a stream's committed rows.
func (n *Feed) Rows(stream store.Stream) []store.FeedRow {
	n.mu.Lock()
	defer n.mu.Unlock()
	return copyRows(n.streamLocked(stream).rows)
}

// Stats returns a snapshot of the counters.
func (n *Feed) Stats() FeedStats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

func (n *Feed) streamLocked(name store.Stream) *feedStream {
	s := n.streams[name]
	if s == nil {
		s = &feedStream{}
		n.streams[name] = s
	}
	return s
}
