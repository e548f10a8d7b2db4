package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// importedFor is how long the result of an import may wait for the loads of other shards than the shard that began it.
// The change feed has all that other regions store meanwhile, and the origin has all that the own region's last relay
// stores.
const importedFor = 5 * time.Second

// imported holds the own region's counts from the CountStore for a shard's next load.
type imported struct {
	mu     sync.Mutex
	at     time.Time // when the import began; zero if there is no result
	counts []store.Count
}

func (i *imported) put(at time.Time, counts []store.Count) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at, i.counts = at, counts
}

// take returns the counts and removes them. ok is false if there are none, or if they are too old.
func (i *imported) take(now time.Time) (counts []store.Count, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	counts, ok = i.counts, !i.at.IsZero() && now.Sub(i.at) < importedFor
	i.at, i.counts = time.Time{}, nil
	return counts, ok
}

// drop removes the counts if they are too old.
func (i *imported) drop(now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now.Sub(i.at) >= importedFor {
		i.at, i.counts = time.Time{}, nil
	}
}

// importStored reads the counts in the CountStore. The own region's counts serve to heal the origin; other regions'
// counts are merged.
func (s *shard) importStored(ctx context.Context, now time.Time) error {
	counts, err := s.relay.importFor(ctx, s, now)
	if err != nil {
		return fmt.Errorf("import stored counts: %w", err)
	}
	left := leftOut{excess: s.book.recallStored(counts)}
	s.relay.noteLeftOut(&store.FeedRow{Stream: s.stream}, left, now)
	return nil
}

// recallStored records the own region's stored counts, and returns the number of cells that there is no room for.
func (b *book) recallStored(counts []store.Count) (excess int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range counts {
		if c := b.storedLocked(&counts[i].Cell); c != nil {
			c.stored = max(c.stored, counts[i].Count)
		} else {
			excess++
		}
	}
	return excess
}

// importFor returns the own region's stored counts of a shard. An import reads the whole CountStore, so imports run in
// turn, and each also serves all other shards that have not loaded yet.
func (r *Relay) importFor(ctx context.Context, s *shard, now time.Time) ([]store.Count, error) {
	select {
	case r.importing <- struct{}{}:
		defer func() { <-r.importing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if counts, ok := s.imported.take(now); ok {
		return counts, nil
	}
	own := make(map[*shard][]store.Count)
	for _, other := range r.shards {
		if other == s || other.unloaded.Load() {
			own[other] = nil
		}
	}
	if err := r.importAll(ctx, s.book.clock.ms(), own); err != nil {
		return nil, err
	}
	for other, counts := range own {
		if other != s {
			other.imported.put(now, counts)
		}
	}
	return own[s], nil
}

// importAll reads the whole CountStore. It adds the own region's counts to own, for the shards that are keys of own,
// and merges the counts of other regions.
func (r *Relay) importAll(ctx context.Context, nowMs int64, own map[*shard][]store.Count) error {
	take := func(region string, n store.Count) {
		of := r.shardOf(&n.Cell.Key)
		counts, loads := own[of]
		switch {
		case !loads || isEarly(n.Cell.ExpiresAtMs(), n.Cell.Duration, nowMs):
		case region == r.cfg.Region:
			if len(counts) > of.book.partMax { // recallStored counts the extra cell as left out
				return
			}
			own[of] = append(counts, n)
		case !of.book.mergeStored(region, n):
			r.metrics.excess.Add(1)
		}
	}
	return unlessStalled(ctx, func(ctx context.Context, progressed func()) error {
		return r.cfg.Counts.Import(ctx, nowMs, func(region string, n store.Count) {
			progressed()
			take(region, n)
		})
	})
}

// mergeStored raises another region's component to its stored count. It returns false if there is no room for the cell.
func (b *book) mergeStored(region string, n store.Count) (fits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.regions.findOrAdd(region)
	if r == nil {
		return false
	}
	c := b.foreignLocked(&n.Cell, r)
	if c == nil {
		return false
	}
	b.raiseLocked(c, r, n.Count)
	c.shared = true
	return true
}
