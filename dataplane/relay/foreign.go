package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/store"
)

const applyMax = 1_000 // cells of one call

// applyWhenWoken tells the origin what the reader brings, as soon as it does, and at every interval what could not be
// told.
func (s *shard) applyWhenWoken(ctx context.Context) {
	applyForeign := s.watched("apply foreign totals", s.applyForeign)
	last := time.Now()
	due := func() time.Time { return last.Add(s.relay.interval()) }
	for loop.Sleep(ctx, due, s.relay.cfg.TuningChanged, s.woken) {
		applyForeign(ctx)
		last = time.Now()
	}
}

// applyForeign raises the origin's foreign totals.
func (s *shard) applyForeign(ctx context.Context, now time.Time) error {
	t := &s.foreignChunk
	defer t.forget()
	for {
		if _, ok := s.lease.term(now); !ok {
			return nil
		}
		if s.book.toSend(t, now); len(t.cells) == 0 {
			return nil
		}
		raised, err := s.applyChunk(ctx, t.totals)
		if err != nil {
			s.book.requeue(t.cells)
			return err
		}
		s.book.setSent(t, raised > 0, now)
	}
}

func (s *shard) applyChunk(ctx context.Context, totals []store.Foreign) (raised int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	raised, err = s.relay.cfg.Origin.Apply(ctx, s.index, totals)
	if err != nil {
		return 0, fmt.Errorf("apply to shard %d the foreign totals of %d cells: %w", s.index, len(totals), err)
	}
	return raised, nil
}

// foreignChunk is what an origin is being told. A shard uses its memory for one call after the other.
type foreignChunk struct {
	cells  []*cell
	totals []store.Foreign // of cells
	again  bool            // they were all sent before, and the origin is expected to have them
	wiped  int             // the book's, when they were taken
}

func (t *foreignChunk) forget() {
	clear(t.cells)
	clear(t.totals)
}

// toSend takes cells off those whose foreign total the origin may lack, applyMax at most: those that it has
// acknowledged by themselves, so that it is seen whether it has lost any.
func (b *book) toSend(t *foreignChunk, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.cells, t.totals, t.wiped = t.cells[:0], t.totals[:0], b.wiped
	b.acked.takeDue(t, now, b.expired)
	if t.again = len(t.cells) > 0; t.again {
		return
	}
	n := min(applyMax, b.unsent.len())
	t.cells = append(t.cells, b.unsent.all()[:n]...)
	b.unsent.drop(n)
	for _, c := range t.cells {
		c.unsent = false
		t.totals = append(t.totals, store.Foreign{Cell: c.name(), Count: c.foreign()})
	}
}

// unsentLocked has a cell's foreign total sent.
func (b *book) unsentLocked(c *cell) {
	if !c.unsent {
		c.unsent = true
		b.unsent.push(c)
	}
}

// requeue has cells sent again that the origin may not have been told of.
func (b *book) requeue(cells []*cell) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range cells {
		if c.isForeign() && !b.expired(c.expiresMs()) {
			b.unsentLocked(c)
		}
	}
}

// setSent takes note of what the origin has, unless it may have lost it since. What it was sent again, and has lacked,
// a replica may lack that is promoted next.
func (b *book) setSent(t *foreignChunk, raised bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wiped != t.wiped {
		return
	}
	for i, c := range t.cells {
		if total := t.totals[i].Count; total > c.sent || total == c.sent && (raised || !t.again) {
			c.sent = total
			b.acked.push(c, total, now)
		}
	}
}

// sentTotal is a foreign total that the origin has acknowledged, and a replica of it may not have received.
type sentTotal struct {
	cell  *cell
	total int64
	at    time.Duration // since ackedTotals.from
}

// ackedTotals are the foreign totals that the origin has acknowledged, to be sent once more after store.KeepFor. The
// book's mutex guards them.
type ackedTotals struct {
	sent queue[sentTotal] // in the order in which they were sent
	from time.Time        // when the first total was sent
}

func (a *ackedTotals) push(c *cell, total int64, now time.Time) {
	if a.from.IsZero() {
		a.from = now
	}
	a.sent.push(sentTotal{c, total, now.Sub(a.from)})
}

// takeDue adds cells to t whose totals are to be sent once more, unless a larger total was sent since or is about to be
// sent, or the cell has expired.
func (a *ackedTotals) takeDue(t *foreignChunk, now time.Time, expired func(atMs int64) bool) {
	n, before := 0, now.Sub(a.from)-store.KeepFor
	for _, s := range a.sent.all() {
		if s.at > before || len(t.cells) == applyMax {
			break
		}
		if n++; s.cell.sent == s.total && !s.cell.unsent && !expired(s.cell.expiresMs()) {
			t.cells = append(t.cells, s.cell)
		}
	}
	a.sent.drop(n)
	for _, c := range t.cells {
		t.totals = append(t.totals, store.Foreign{Cell: c.name(), Count: c.sent})
	}
}
