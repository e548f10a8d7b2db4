package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/level"
)

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
func (m *stats) estimates() (n [outcomes]int64, misses int64) {
	for i := range m.decisions {
		s := &m.decisions[i]
		misses += s.misses.Load()
		for out := range n {
			n[out] += s.estimates[out].Load()
		}
	}
	return n, misses
}

func (g *engine) collectEstimate(sink collect.Sink) {
	evals, misses := g.stats.estimates()
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
	for from := range level.Tiers {
		sink.Value(collect.TierKeys, g.table.Tiers.Keys[from].Load(), from.String())
		for to := range level.Tiers {
			if from != to {
				sink.Value(collect.TierMoves, g.table.Tiers.Moves[from][to].Load(), from.String(), to.String())
			}
		}
	}
}
