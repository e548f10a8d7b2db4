package relay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// importedFor is how long what an import has brought for other shards than the one that began it may wait for their
// loads. What other regions store meanwhile comes with the news; what the own region's last relay stores, its origin
// has.
const importedFor = 5 * time.Second

// imported is the own region's counts that are stored for good, and are for a shard's next load.
type imported struct {
	mu     sync.Mutex
	at     time.Time // when the import began; zero: there is none
	counts []store.Count
}

func (i *imported) put(at time.Time, counts []store.Count) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.at, i.counts = at, counts
}

// take empties it; ok is false if there is nothing, or it is too old.
func (i *imported) take(now time.Time) (counts []store.Count, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	counts, ok = i.counts, !i.at.IsZero() && now.Sub(i.at) < importedFor
	i.at, i.counts = time.Time{}, nil
	return counts, ok
}

// drop empties it if it is too old.
func (i *imported) drop(now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now.Sub(i.at) >= importedFor {
		i.at, i.counts = time.Time{}, nil
	}
}

// importStored learns what is stored for good: of the own region, to heal the origin with, and of the others.
func (s *shard) importStored(ctx context.Context, now time.Time) error {
	counts, err := s.relay.importFor(ctx, s, now)
	if err != nil {
		return fmt.Errorf("import stored counts: %w", err)
	}
	left := leftOut{excess: s.book.recallStored(counts)}
	s.relay.noteLeftOut(&store.FeedRow{Stream: s.stream}, left, now)
	return nil
}

// recallStored takes note of what is stored of the own region's, and returns for how many cells there is no room.
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

// importFor is the own region's stored counts of a shard. An import reads all that is stored, so one at a time runs,
// and brings all other shards that are yet to load theirs.
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
	if err := r.importAll(ctx, s.book.clockMs(), own); err != nil {
		return nil, err
	}
	for other, counts := range own {
		if other != s {
			other.imported.put(now, counts)
		}
	}
	return own[s], nil
}

// importAll reads all that is stored, and adds the own region's counts to those of the shards that own has.
func (r *Relay) importAll(ctx context.Context, nowMs int64, own map[*shard][]store.Count) error {
	take := func(region string, n store.Count) {
		of := r.shardOf(&n.Cell.Key)
		counts, loads := own[of]
		switch {
		case !loads || isEarly(n.Cell.ExpiresAtMs(), n.Cell.Duration, nowMs):
		case region == r.cfg.Region:
			if len(counts) > of.book.partMax { // one too many is one that recallStored counts
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

// mergeStored raises another region's component to what is stored for good. It is false where there is no room for the
// cell.
func (b *book) mergeStored(region string, n store.Count) (fits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.regionLocked(region)
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

// clockMs is the origin's clock, when it last answered.
func (b *book) clockMs() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nowMs
}
