package relay

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/store"
)

const applyMax = 1_000 // cells of a call

// applyWhenWoken applies foreign totals to the origin as soon as the reader has read new counts. At every interval it
// retries the totals that could not be applied, for example because the origin was down.
func (s *shard) applyWhenWoken(ctx context.Context) {
	applyForeign := s.watched("apply foreign totals", s.applyForeign)
	last := time.Now()
	due := func() time.Time { return last.Add(s.relay.interval()) }
	for loop.Sleep(ctx, due, s.relay.cfg.TuningChanged, s.woken) {
		applyForeign(ctx)
		last = time.Now()
	}
}

// applyForeign raises the origin's foreign totals to the sums in the book.
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

// foreignChunk is the foreign totals that a call applies to the origin. A shard reuses its memory for each call.
type foreignChunk struct {
	cells  []*cell
	totals []store.Foreign // of cells
	again  bool            // all were sent before, and the origin should have them
	wiped  int             // the book's wiped when the chunk was filled
}

func (t *foreignChunk) forget() {
	clear(t.cells)
	clear(t.totals)
}

// toSend fills t with at most applyMax cells whose foreign totals the origin may lack. Totals that the origin
// acknowledged store.KeepFor ago go into chunks of their own, so that the answer shows whether the origin has lost any.
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

// unsentLocked queues a cell's foreign total for the origin.
func (b *book) unsentLocked(c *cell) {
	if !c.unsent {
		c.unsent = true
		b.unsent.push(c)
	}
}

// requeue queues cells again, because the origin may not have received their totals.
func (b *book) requeue(cells []*cell) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range cells {
		if c.isForeign() && !b.expired(c.expiresMs()) {
			b.unsentLocked(c)
		}
	}
}

// setSent records the totals that the origin has acknowledged, unless the book has forgotten its foreign totals since.
// If the origin lacked a total that was sent again, the total is queued to be sent once more, because the next replica
// that is promoted may lack it too.
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

// sentTotal is a foreign total that the origin has acknowledged. A replica of the origin may not have received it.
type sentTotal struct {
	cell  *cell
	total int64
	at    time.Duration // since ackedTotals.from
}

// ackedTotals are the foreign totals that the origin has acknowledged, and that must be sent once more after
// store.KeepFor. The book's mutex guards them.
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

// takeDue adds the cells to t whose totals must be sent once more. It skips cells that have expired, and cells with a
// larger total that was sent since or is queued.
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
