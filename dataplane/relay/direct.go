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

// tellPeers hands what peers are to know to Config.Told, and waits for no store of news. It takes nothing off the
// origin's changes, and nothing from an origin whose counts take has not seen or not healed.
func (s *shard) tellPeers(ctx context.Context, now time.Time) error {
	if _, ok := s.term(now); !ok {
		return nil
	}
	changes, err := s.peek(ctx, changesMax)
	if err != nil {
		return err
	}
	tuning := s.relay.tuning()
	if !s.book.growDirect(&changes, tuning.MinGlobalDuration, now) {
		return nil
	}
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

// growDirect is grow unless the changes are of an epoch that take does not work in.
func (b *book) growDirect(changes *store.Changes, shortest time.Duration, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.epoch == 0 || changes.Epoch != b.epoch || !changes.Healed {
		return false
	}
	b.growAllLocked(changes.Cells, shortest, now)
	return true
}

// chooseDirect picks the tidings of a row for peers, and takes note that they have them.
func (s *shard) chooseDirect(t Tuning) (fit []tidings, left bool) {
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	var all []tidings
	for c := range s.book.unhanded {
		if c.standing(c.handed).isDue(t.Floor) {
			all = append(all, tidings{c, c.total})
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
