package relay

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/store"
)

// publishToPeersWhenWoken tells peers what is new twice an interval, and as soon as another region is found to use a
// cell whose count was kept back, but no more than eight times an interval.
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

// publishToPeers hands what peers are to know to Config.Publish. It needs the lease and the origin, and neither
// the news nor a shard that is loaded: a relay that takes over while MySQL is away exchanges with peers as its
// predecessor did. It takes nothing off the origin's changes.
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
			s.relay.cfg.Publish(store.FeedRow{Stream: s.stream, Payload: s.book.forPeers(totals)})
		}
		if !left {
			break
		}
	}
	return nil
}

// see records the origin's totals for peers. If the origin is healed, an origin that is emptied later is raised to the
// same totals, so peers never keep a count that their origin has lost. For example, take may wait for MySQL while peers
// receive a count that it has not read.
//
// healed is the book's epoch from before the origin was asked. If it has changed, the answer may be older than the last
// heal, and raises nothing.
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

// seeAll takes note of all that the origin holds, once in a term: while MySQL is away peers may need counts of cells
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

// chooseDirect picks the totals of a row for peers, and takes note that they have them.
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

// forPeers makes a payload that names all cells, and has no numbers: a peer may have read no row.
func (b *book) forPeers(totals []cellTotal) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return encodeNamed(totals, false)
}

// Handed returns rows that repeat all counts that peers or Feed received before, of the shards that the relay leads. It
// is for a peer whose relay may have received none of them, for example because it has just taken over: a count that
// grows afterwards says nothing about the other cells. The rows name all cells, and are made one at a time, so a caller
// may take as long as it needs for each. Handed may be called at any time, concurrently.
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

// handedPayload makes a row's payload of the first n cells. It is empty if peers were sent none of them.
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

// handedTotal is the largest total that peers may have received, from the relay or through Feed.
func (c *cell) handedTotal() int64 {
	if c.ownCount == nil {
		return 0
	}
	return max(c.handed, c.published)
}

// allHanded lists the cells whose total peers have.
func (b *book) allHanded() []*cell {
	return b.sortedOwn(func(c *cell) bool { return c.handedTotal() > 0 })
}
