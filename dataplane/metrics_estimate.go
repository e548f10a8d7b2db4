package dataplane

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/histogram"
	"github.com/weirhq/weir/dataplane/internal/level"
)

// estimateMetrics are the estimate mode's; see metrics.
type estimateMetrics struct {
	unsynced  atomic.Int64 // cost below its floor that expired unsent
	drift     *histogram.Histogram
	staleness *histogram.Histogram
}

func (m *estimateMetrics) init() {
	m.drift, m.staleness = collect.NewDrift(), collect.NewStaleness()
}

// estimated counts a decision of the estimate mode, and returns how many there have been
// of its kind.
func (s *stripe) estimated(out outcome, met cell.Contact) (total int64) {
	total = s.estimates[out].Add(1)
	if uint64(total)%sampleEvery == 0 {
		s.timeNext.Store(true)
	}
	if met != cell.Known {
		s.misses.Add(1)
	}
	return total
}

// estimates are the estimate mode's decisions so far, and how many met their key for the
// first time.
func (m *metrics) estimates() (n [outcomes]int64, misses int64) {
	for i := range m.decisions {
		s := &m.decisions[i]
		misses += s.misses.Load()
		for out := range n {
			n[out] += s.estimates[out].Load()
		}
	}
	return n, misses
}

func (l *Limiter) collectEstimate(sink collect.Sink) {
	evals, misses := l.metrics.estimates()
	hits := -misses
	for out, n := range evals {
		hits += n
		result := outcome(out).String()
		if outcome(out) == outcomeDenied {
			result = "limited"
		}
		sink.Value(collect.Evals, n, result)
	}
	sink.Value(collect.Cache, max(0, hits), "hit")
	sink.Value(collect.Cache, misses, "miss")
	sink.Value(collect.Cache, l.syncs.queued.Load(), "sync_queued")
	sink.Value(collect.SyncRefused, l.syncs.refused.Load())
	sink.Value(collect.Unsynced, l.metrics.unsynced.Load())
	for from := range level.Tiers {
		sink.Value(collect.TierKeys, l.table.Tiers.Keys[from].Load(), from.String())
		for to := range level.Tiers {
			if from != to {
				sink.Value(collect.TierMoves, l.table.Tiers.Moves[from][to].Load(), from.String(), to.String())
			}
		}
	}
	sink.Histogram(collect.Drift, l.metrics.drift)
	sink.Histogram(collect.Staleness, l.metrics.staleness)
}
