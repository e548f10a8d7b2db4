package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

const tellMax = 1_000 // cells of one call

// tellWhenWoken tells the origin what the reader brings, as soon as it does, and at every interval what could not be
// told.
func (s *shard) tellWhenWoken(ctx context.Context) {
	tell := s.watched("tell the origin", s.tell)
	for {
		timer := time.NewTimer(s.relay.interval())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.kick:
		case <-timer.C:
		}
		timer.Stop()
		tell(ctx)
	}
}

// tell raises the origin's foreign totals.
func (s *shard) tell(ctx context.Context, now time.Time) error {
	for {
		if _, ok := s.term(now); !ok {
			return nil
		}
		cells, totals, wiped := s.book.toSend(now)
		if len(cells) == 0 {
			return nil
		}
		if err := s.tellBatch(ctx, totals); err != nil {
			return err
		}
		s.book.setSent(cells, totals, wiped, now)
	}
}

func (s *shard) tellBatch(ctx context.Context, totals []store.Foreign) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := s.relay.cfg.Origin.Tell(ctx, s.index, totals); err != nil {
		return fmt.Errorf("tell shard %d of %d cells: %w", s.index, len(totals), err)
	}
	return nil
}

// toSend returns cells whose foreign total the origin may lack, tellMax at most.
func (b *book) toSend(now time.Time) (cells []*cell, totals []store.Foreign, wiped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.repeatLocked(now)
	for c := range b.unsent {
		cells, totals = append(cells, c), append(totals, store.Foreign{Cell: c.name, Count: c.foreign()})
		if len(cells) == tellMax {
			break
		}
	}
	return cells, totals, b.wiped
}

// setSent takes note of what the origin has, unless it may have lost it since.
func (b *book) setSent(cells []*cell, totals []store.Foreign, wiped int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wiped != wiped {
		return
	}
	for i, c := range cells {
		if totals[i].Count > c.sent {
			c.sent = totals[i].Count
			b.sent = append(b.sent, sentTotal{c, c.sent, now})
		}
		if c.sent >= c.foreign() {
			delete(b.unsent, c)
		}
	}
}

// sentTotal is a foreign total that the origin has acknowledged, and a replica of it may not have received.
type sentTotal struct {
	cell  *cell
	total int64
	at    time.Time
}

// repeatLocked has totals sent once more after store.KeepFor, unless a larger one was sent since.
func (b *book) repeatLocked(now time.Time) {
	n := 0
	for n < len(b.sent) && now.Sub(b.sent[n].at) >= store.KeepFor {
		if s := b.sent[n]; s.cell.sent == s.total {
			b.unsent[s.cell] = struct{}{}
		}
		n++
	}
	b.sent = b.sent[n:]
}
