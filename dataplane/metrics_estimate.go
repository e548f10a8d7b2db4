package dataplane

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/level"
)

// estimateMetrics are the estimate mode's; see metrics.
type estimateMetrics struct {
	unsynced  atomic.Int64 // cost below its floor that expired unsent
	drift     prometheus.Histogram
	staleness prometheus.Histogram
}

func (m *estimateMetrics) init() {
	m.drift = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "weir_estimate_drift_ratio",
		Help:    "How far a sync has moved a key's level, as a share of its limit.",
		Buckets: []float64{0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2},
	})
	m.staleness = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "weir_sync_staleness_seconds",
		Help:    "Time since a key's previous sync, at each sync.",
		Buckets: []float64{1, 2.5, 5, 7.5, 10, 15, 20, 30, 60, 120, 300},
	})
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

var (
	descEvals = desc("weir_eval_counts_total", "Requests decided in the estimate mode.", "result")
	descCache = desc("weir_cache_counts_total",
		"Keys of the estimate mode that requests found in memory, or did not, and syncs that they asked for.", "result")
	descSyncRefused = desc("weir_sync_refused_total",
		"Syncs that were refused because pending_max keys of the namespace were waiting.")
	descTierKeys  = desc("weir_sync_tier_keys", "Keys of the estimate mode, by pressure.", "tier")
	descTierMoves = desc("weir_tier_transitions_total", "Keys that went from one tier to another.", "from", "to")
	descUnsynced  = desc("weir_estimate_unsynced_cost_total",
		"Cost of the estimate mode that expired below its floor, and so was never sent.")
)

func (l *Limiter) collectEstimate(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, kind prometheus.ValueType, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, float64(v), labels...)
	}
	evals, misses := l.metrics.estimates()
	hits := -misses
	for out, n := range evals {
		hits += n
		result := outcome(out).String()
		if outcome(out) == outcomeDenied {
			result = "limited"
		}
		count(descEvals, prometheus.CounterValue, n, result)
	}
	count(descCache, prometheus.CounterValue, max(0, hits), "hit")
	count(descCache, prometheus.CounterValue, misses, "miss")
	count(descCache, prometheus.CounterValue, l.syncs.queued.Load(), "sync_queued")
	count(descSyncRefused, prometheus.CounterValue, l.syncs.refused.Load())
	count(descUnsynced, prometheus.CounterValue, l.metrics.unsynced.Load())
	for from := range level.Tiers {
		count(descTierKeys, prometheus.GaugeValue, l.table.Tiers.Keys[from].Load(), from.String())
		for to := range level.Tiers {
			if from != to {
				count(descTierMoves, prometheus.CounterValue, l.table.Tiers.Moves[from][to].Load(), from.String(), to.String())
			}
		}
	}
	l.metrics.drift.Collect(ch)
	l.metrics.staleness.Collect(ch)
}
