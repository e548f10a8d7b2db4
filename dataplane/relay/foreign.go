package relay

import (
	"context"
	"fmt"
	"slices"
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
			s.book.sendAgain(cells)
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

// toSend takes cells off those whose foreign total the origin may lack, tellMax at most.
func (b *book) toSend(now time.Time) (cells []*cell, totals []store.Foreign, wiped int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.repeatLocked(now)
	n := min(tellMax, len(b.unsent))
	cells, totals = slices.Clone(b.unsent[:n]), make([]store.Foreign, n)
	if b.unsent = b.unsent[n:]; len(b.unsent) == 0 {
		b.unsent = nil
	}
	for i, c := range cells {
		c.unsent = false
		totals[i] = store.Foreign{Cell: c.name(), Count: c.foreign()}
	}
	return cells, totals, b.wiped
}

// unsentLocked has a cell's foreign total sent.
func (b *book) unsentLocked(c *cell) {
	if !c.unsent {
		c.unsent = true
		b.unsent = append(b.unsent, c)
	}
}

// sendAgain has cells sent again that the origin may not have been told of.
func (b *book) sendAgain(cells []*cell) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range cells {
		if c.isForeign() && !b.expired(c.expiresMs()) {
			b.unsentLocked(c)
		}
	}
}

// setSent takes note of what the origin has, unless it may have lost it since.
func (b *book) setSent(cells []*cell, totals []store.Foreign, wiped int, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wiped != wiped {
		return
	}
	sent := sentTotals{now, make([]sentTotal, 0, len(cells))}
	for i, c := range cells {
		if totals[i].Count > c.sent {
			c.sent = totals[i].Count
			sent.of = append(sent.of, sentTotal{c, c.sent})
		}
	}
	if len(sent.of) > 0 {
		b.sent = append(b.sent, sent)
	}
}

// sentTotals are foreign totals that the origin has acknowledged, and a replica of it may not have received.
type sentTotals struct {
	at time.Time
	of []sentTotal
}

type sentTotal struct {
	cell  *cell
	total int64
}

// repeatLocked has totals sent once more after store.KeepFor, unless a larger one was sent since.
func (b *book) repeatLocked(now time.Time) {
	for len(b.sent) > 0 && now.Sub(b.sent[0].at) >= store.KeepFor {
		for _, s := range b.sent[0].of {
			if s.cell.sent == s.total {
				b.unsentLocked(s.cell)
			}
		}
		b.sent = b.sent[1:]
	}
}
