package relay

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// tellPeersWhenWoken tells peers what is new twice an interval, and as soon as another region is found to use a cell
// whose count was kept back, but no more than eight times an interval.
func (s *shard) tellPeersWhenWoken(ctx context.Context) {
	tell := s.watched("tell peers", s.tellPeers)
	for {
		began := time.Now()
		tell(ctx)
		interval := s.relay.interval()
		if !sleep(ctx, interval/8-time.Since(began), nil) || !sleep(ctx, interval/2-time.Since(began), s.book.nudge) {
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
