package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const saveEvery = 5 * time.Second

// worthSaving tells whether a total is to be stored for good: from a floor on, with each so many steps, and when it
// reaches the limit.
func worthSaving(total, stored, limit int64, t Tuning) bool {
	limit = min(limit, window.LimitMax)
	switch {
	case total <= stored || float64(total) < max(t.Floor, t.StoreFloor)*float64(limit):
		return false
	case stored == 0 || total >= limit && stored < limit:
		return true
	}
	return float64(total-stored) >= cmp.Or(t.StoreSteps, 1)*t.Step*float64(limit)
}

// save stores the own region's counts for good.
func (s *shard) save(ctx context.Context, now time.Time) error {
	if _, ok := s.lease.term(now); !ok {
		return nil
	}
	s.savedAt = now
	cells, counts := s.book.toSave(s.relay.tuning())
	for from := 0; from < len(cells); from += store.PublishRowsMax {
		until := min(from+store.PublishRowsMax, len(cells))
		if err := s.publish(ctx, cells[from:until], counts[from:until]); err != nil {
			s.book.saveAgain(cells[from:])
			return err
		}
	}
	return nil
}

// publish stores rows. It finds those that the store refuses by halving, and leaves them out from then on.
func (s *shard) publish(ctx context.Context, cells []*cell, counts []store.Count) error {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	err := s.relay.cfg.Counts.Publish(callCtx, s.relay.cfg.Region, counts)
	cancel()
	switch {
	case err == nil:
		s.book.setStored(cells, counts)
		s.relay.metrics.saved.Add(int64(len(counts)))
		return nil
	case !errors.Is(err, store.ErrRefused):
		return fmt.Errorf("store %d counts of shard %d: %w", len(counts), s.index, err)
	case len(counts) == 1:
		s.book.setRefused(cells[0])
		s.relay.metrics.refused.Add(1)
		s.relay.cfg.Logger.Error("count store refuses a row", "key", counts[0].Cell.Key.String(),
			"sequence", counts[0].Cell.Sequence, "count", counts[0].Count, "error", err)
		return nil
	}
	half := len(counts) / 2
	if err := s.publish(ctx, cells[:half], counts[:half]); err != nil {
		return err
	}
	return s.publish(ctx, cells[half:], counts[half:])
}

// toSave takes the cells that are worth storing off those that have grown, in the order that Publish demands.
func (b *book) toSave(t Tuning) (cells []*cell, counts []store.Count) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.unsaved {
		if !c.refused && worthSaving(c.total, c.stored, c.limit, t) {
			cells = append(cells, c)
		}
	}
	clear(b.unsaved)
	slices.SortFunc(cells, func(a, c *cell) int { return a.compare(c) })
	for _, c := range cells {
		counts = append(counts, store.Count{Cell: c.name(), Count: c.total})
	}
	return cells, counts
}

func (b *book) setRefused(c *cell) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.refused = true
}

func (b *book) saveAgain(cells []*cell) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range cells {
		b.unsaved[c] = struct{}{}
	}
}

func (b *book) setStored(cells []*cell, counts []store.Count) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, c := range cells {
		c.stored = max(c.stored, counts[i].Count)
	}
}
