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

// worthSaving reports whether to store a total in the CountStore: from the floor on, when it has grown by the tuning's
// steps, and when it reaches the limit. For an example see StoreFloor.
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

// save stores the own region's counts in the CountStore.
func (s *shard) save(ctx context.Context, now time.Time) error {
	if _, ok := s.lease.term(now); !ok {
		return nil
	}
	s.savedAt = now
	totals := s.book.toSave(s.relay.tuning())
	for len(totals) > 0 {
		n := min(len(totals), store.PublishRowsMax)
		if err := s.publish(ctx, totals[:n]); err != nil {
			s.book.saveAgain(totals)
			return err
		}
		totals = totals[n:]
	}
	return nil
}

// publish stores rows. If the store refuses some of them, publish finds these rows by halving, logs them, and does not
// try them again.
func (s *shard) publish(ctx context.Context, totals []cellTotal) error {
	counts := make([]store.Count, len(totals))
	for i, t := range totals {
		counts[i] = store.Count{Cell: t.cell.name(), Count: t.total}
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	err := s.relay.cfg.Counts.Publish(callCtx, s.relay.cfg.Region, counts)
	cancel()
	switch {
	case err == nil:
		s.book.setStored(totals)
		s.relay.metrics.saved.Add(int64(len(totals)))
		return nil
	case !errors.Is(err, store.ErrRefused):
		return fmt.Errorf("store %d counts of shard %d: %w", len(totals), s.index, err)
	case len(totals) == 1:
		s.book.setRefused(totals[0].cell)
		s.relay.metrics.refused.Add(1)
		s.relay.cfg.Logger.Error("count store refuses a row", "key", counts[0].Cell.Key.String(),
			"sequence", counts[0].Cell.Sequence, "count", counts[0].Count, "error", err)
		return nil
	}
	half := len(totals) / 2
	if err := s.publish(ctx, totals[:half]); err != nil {
		return err
	}
	return s.publish(ctx, totals[half:])
}

// toSave empties the list of grown cells, and returns the totals that are worth storing, in the order that Publish
// requires.
func (b *book) toSave(t Tuning) (totals []cellTotal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.unsaved {
		if !c.refused && worthSaving(c.total, c.stored, c.limit, t) {
			totals = append(totals, cellTotal{c, c.total})
		}
	}
	clear(b.unsaved)
	slices.SortFunc(totals, func(a, b cellTotal) int { return a.cell.compare(b.cell) })
	return totals
}

func (b *book) setRefused(c *cell) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.refused = true
}

func (b *book) saveAgain(totals []cellTotal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range totals {
		b.unsaved[t.cell] = struct{}{}
	}
}

func (b *book) setStored(totals []cellTotal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range totals {
		t.cell.stored = max(t.cell.stored, t.total)
	}
}
