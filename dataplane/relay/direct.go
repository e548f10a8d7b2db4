package relay

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/store"
)

// tellPeersWhenWoken tells peers what is new twice an interval, and as soon as another region is found to use a cell
// whose count was kept back, but no more than eight times an interval.
func (s *shard) tellPeersWhenWoken(ctx context.Context) {
	tell := s.watched("tell peers", s.tellPeers)
	began := time.Now()
	after := func(part time.Duration) func() time.Time {
		return func() time.Time { return began.Add(s.relay.interval() / part) }
	}
	changed := s.relay.cfg.TuningChanged
	for {
		began = time.Now()
		tell(ctx)
		if !loop.Sleep(ctx, after(8), changed, nil) || !loop.Sleep(ctx, after(2), changed, s.book.nudge) {
			return
		}
	}
}

// tellPeers hands what peers are to know to Config.Told. It needs the lease and the origin, and neither the news nor a
// shard that is loaded: a relay that takes over while MySQL is away exchanges with peers as its predecessor did. It
// takes nothing off the origin's changes.
func (s *shard) tellPeers(ctx context.Context, now time.Time) error {
	if _, ok := s.term(now); !ok {
		return nil
	}
	changes, err := s.peek(ctx, changesMax)
	if err != nil {
		return err
	}
	tuning := s.relay.tuning()
	s.see(changes.Cells, tuning.MinGlobalDuration)
	for range roundsMax {
		told, left := s.chooseDirect(tuning)
		if len(told) > 0 {
			s.relay.cfg.Told(store.NewsRow{Stream: s.stream, Payload: s.forPeers(told)})
		}
		if !left {
			break
		}
	}
	return nil
}

// see takes note of the origin's totals for peers.
func (s *shard) see(changes []store.Change, shortest time.Duration) {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	forWellFormed(changes, shortest, s.book.seeLocked)
}

// seeAll takes note of all that the origin holds, once in a term: while MySQL is away peers may need counts of cells
// that have not changed since a predecessor kept them back.
func (s *shard) seeAll(ctx context.Context) {
	if s.relay.cfg.Told == nil || s.seenTerm == s.own.term {
		return
	}
	all, err := s.scanAll(ctx)
	if err != nil {
		return // the next load scans again
	}
	s.seenTerm = s.own.term
	s.see(all, s.own.tuning.MinGlobalDuration)
}

// chooseDirect picks the tidings of a row for peers, and takes note that they have them.
func (s *shard) chooseDirect(t Tuning) (fit []tidings, left bool) {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	var all []tidings
	for c := range s.book.unhanded {
		if (standing{total: c.seen, told: c.handed, limit: c.limit, shared: c.shared}).isDue(t.Floor) {
			all = append(all, tidings{c, c.seen})
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
func (s *shard) forPeers(told []tidings) []byte {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	return encodeNamed(told, false)
}
