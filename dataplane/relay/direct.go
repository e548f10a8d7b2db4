package relay

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/store"
)

// publishToPeersWhenWoken publishes new counts to peers twice an interval, and as soon as another region turns out to
// use a cell whose count was kept back, but at most eight times an interval.
func (s *shard) publishToPeersWhenWoken(ctx context.Context) {
	publish := s.watched("publish to peers", s.publishToPeers)
	began := time.Now()
	after := func(part time.Duration) func() time.Time {
		return func() time.Time { return began.Add(s.relay.interval() / part) }
	}
	changed := s.relay.cfg.TuningChanged
	for {
		began = time.Now()
		publish(ctx)
		if !loop.Sleep(ctx, after(8), changed, nil) || !loop.Sleep(ctx, after(2), changed, s.book.nudge) {
			return
		}
	}
}

// publishToPeers calls Config.Publish with the counts that peers lack. It needs the lease and the origin, but neither
// the change feed nor a loaded shard. So a relay that takes over while MySQL is down still exchanges counts with peers,
// as its predecessor did. It acknowledges no changes.
func (s *shard) publishToPeers(ctx context.Context, now time.Time) error {
	if _, ok := s.lease.term(now); !ok {
		return nil
	}
	healed := s.book.lastHealed()
	changes, err := s.peek(ctx, changesMax)
	if err != nil {
		return err
	}
	tuning := s.relay.tuning()
	s.see(&changes, healed, tuning.MinGlobalDuration, now)
	for range roundsMax {
		totals, left := s.chooseDirect(tuning)
		if len(totals) > 0 {
			payload := encodeNamed(totals, false) // because a peer may have read no row
			s.relay.cfg.Publish(store.FeedRow{Stream: s.stream, Payload: payload})
		}
		if !left {
			break
		}
	}
	return nil
}

// see records the origin's totals for peers. If the origin is healed, see also raises the cells' totals, which heal an
// origin that is emptied later. So peers never keep a count that their origin has lost. For example, take may wait for
// MySQL while peers receive a count that take has not read.
//
// healed is the book's epoch from before the relay read the changes. If the epoch has changed, the answer may be older
// than the last heal, and raises nothing.
func (s *shard) see(changes *store.Changes, healed store.Epoch, shortest time.Duration, now time.Time) {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	note := s.book.seeLocked
	if changes.Healed && (s.book.healed == healed || s.book.healed == changes.Epoch) {
		s.book.healed = changes.Epoch
		note = func(ch *store.Change) { s.book.growLocked(ch, now) }
	}
	forWellFormed(changes.Cells, shortest, note)
}

// seeAll records all totals that the origin holds, once a term. While MySQL is down, peers may need counts of cells
// that have not changed since a predecessor kept them back.
func (s *shard) seeAll(ctx context.Context, now time.Time) {
	if s.relay.cfg.Publish == nil || s.seenTerm == s.own.term {
		return
	}
	healed := s.book.lastHealed()
	changes, err := s.peek(ctx, 1)
	if err == nil {
		changes.Cells, err = s.scanAll(ctx, changes.Epoch)
	}
	if err != nil {
		return // the next load scans again
	}
	s.seenTerm = s.own.term
	s.see(&changes, healed, s.own.tuning.MinGlobalDuration, now)
}

// chooseDirect picks the totals of a row for peers, and records them as sent.
func (s *shard) chooseDirect(t Tuning) (fit []cellTotal, left bool) {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	var all []cellTotal
	for c := range s.book.unhanded {
		if (standing{total: c.seen, published: c.handed, limit: c.limit, shared: c.shared}).isDue(t.Floor) {
			all = append(all, cellTotal{c, c.seen})
		} else {
			delete(s.book.unhanded, c)
		}
	}
	fit, left = pick(all, true)
	for _, t := range fit {
		t.cell.handed = max(t.cell.handed, t.total)
	}
	return fit, left
}

// Handed returns rows that repeat all counts that peers or Feed received before, of the shards that the relay leads.
// Use it for a peer whose relay may lack them, for example because that relay has just taken over: rows that are
// published later have only counts that have grown. Handed makes each row when the caller asks for it, and names all
// its cells, so a caller may take as long as it needs for each row. Handed may be called at any time, concurrently.
func (r *Relay) Handed() iter.Seq[store.FeedRow] {
	return func(yield func(store.FeedRow) bool) {
		for _, s := range r.shards {
			for left := s.book.allHanded(); len(left) > 0; {
				if _, ok := s.lease.term(r.cfg.Clock()); !ok {
					break
				}
				payload, n := s.book.handedPayload(left)
				if left = left[n:]; len(payload) > 0 && !yield(store.FeedRow{Stream: s.stream, Payload: payload}) {
					return
				}
			}
		}
	}
}

// handedPayload encodes the counts of the first n cells as a row's payload. The payload is empty if peers were sent
// none of them.
func (b *book) handedPayload(cells []*cell) (payload []byte, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]cellTotal, 0, min(len(cells), changesMax))
	for ; n < len(cells) && n < changesMax; n++ {
		if c := cells[n]; c.handedTotal() > 0 {
			all = append(all, cellTotal{c, c.handedTotal()})
		}
	}
	if fit, more := fitting(all, true); more { // the next row begins with the first cell that did not fit
		n, all = slices.Index(cells, all[len(fit)].cell), fit
	}
	if len(all) > 0 {
		payload = encodeNamed(all, false)
	}
	return payload, n
}

// handedTotal returns the largest total that peers may have received, from the relay or through Feed.
func (c *cell) handedTotal() int64 {
	if c.ownCount == nil {
		return 0
	}
	return max(c.handed, c.published)
}

// allHanded lists the cells whose totals peers may have received.
func (b *book) allHanded() []*cell {
	return b.sortedOwn(func(c *cell) bool { return c.handedTotal() > 0 })
}
