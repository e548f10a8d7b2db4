package dataplane

import (
	"iter"
	"math"

	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/evidence"
	"github.com/weirhq/weir/dataplane/internal/histogram"
	"github.com/weirhq/weir/dataplane/internal/level"
)

// MetricKind describes how a Metric changes.
type MetricKind uint8

// Kinds of metrics.
const (
	KindCounter   = MetricKind(collect.Counter)   // only grows, from 0
	KindGauge     = MetricKind(collect.Gauge)     // may fall
	KindHistogram = MetricKind(collect.Histogram) // counts values by their size
)

// Metric is a series of a limiter's metrics at one moment. Series of the same Name have the same Help, Kind and names
// of labels.
type Metric struct {
	Name, Help string
	Kind       MetricKind
	Labels     []MetricLabel

	Value float64 // of a counter or a gauge

	// Of a histogram: for each bound, the number of values up to the bound, and the sum of all values. The last bound is
	// +Inf.
	Buckets []MetricBucket
	Sum     float64
}

// MetricLabel is a label of a Metric.
type MetricLabel struct{ Name, Value string }

// MetricBucket has the number of values that are at most UpTo.
type MetricBucket struct {
	UpTo  float64
	Count uint64
}

// Metrics iterates over the limiter's metrics, whose names all begin with weir_. Every series exists from the start,
// at 0. Metrics reads counters and queues, and decisions do not wait for it. Use package metrics for Prometheus, and
// Metrics for any other monitoring system.
func (l *Limiter) Metrics() iter.Seq[Metric] {
	return func(yield func(Metric) bool) {
		more := true
		l.reports.eachSeries(func(d *collect.Desc, value float64, counted *histogram.Snapshot, labels ...string) {
			if more {
				more = yield(metricOf(d, value, counted, labels))
			}
		})
	}
}

func metricOf(d *collect.Desc, value float64, counted *histogram.Snapshot, labels []string) Metric {
	m := Metric{Name: d.Name, Help: d.Help, Kind: MetricKind(d.Kind), Value: value}
	for i, name := range d.Labels {
		m.Labels = append(m.Labels, MetricLabel{name, labels[i]})
	}
	if counted == nil {
		return m
	}
	m.Sum = counted.Sum
	for i, n := range counted.Counts {
		upTo := math.Inf(1)
		if i < len(counted.Bounds) {
			upTo = counted.Bounds[i]
		}
		m.Buckets = append(m.Buckets, MetricBucket{upTo, n})
	}
	return m
}

func (r *reports) eachSeries(to collect.Sink) {
	g, m := r.engine, r.engine.stats
	m.eachDecision(func(source Source, out outcome, n int64) {
		to.Value(collect.Decisions, n, source.String(), out.String())
	})
	for _, out := range []outcome{outcomeAllowed, outcomeDenied} {
		to.Value(collect.Candidates, m.comparedAll(out), out.String())
	}
	for out := range evidence.Outcomes {
		to.Value(collect.TrialDecisions, m.comparedByTrials(out), out.String())
	}
	to.Histogram(collect.Latency, m.latency.Local, "local")
	to.Histogram(collect.Latency, m.latency.Origin, "origin")
	to.Value(collect.Entries, int64(g.table.Len()))
	to.Value(collect.Cap, int64(r.cfg.EntriesMax))
	set := g.rules.InForce()
	to.Value(collect.Nodes, set.Nodes)
	to.Value(collect.Evictions, g.table.Evicted.Expired.Load(), "expired")
	to.Value(collect.Evictions, g.table.Evicted.Idle.Load(), "idle")
	to.Value(collect.Evictions, g.table.Evicted.Share.Load(), "share")
	to.Value(collect.Full, g.table.Full.Load())
	to.Value(collect.Untracked, m.untracked.byOrigin.Load(), "origin")
	to.Value(collect.Untracked, m.untracked.byOverflow.Load(), "overflow")
	to.Value(collect.Windows, g.table.Created.Load())
	to.Value(collect.Strict, m.strictActivations.Load())
	g.out.Collect(to)
	to(collect.ReplayedAt, float64(g.wallMs(g.out.ReplayedAt()))/1000, nil)
	heldBack, _, _ := g.table.NewKeys.HeldBack()
	to.Value(collect.HeldBack, heldBack)

	to.Value(collect.Tuning, set.Version)
	to.Value(collect.Trial, set.TrialNumber)
	to.Value(collect.SettingsErrors, g.rules.Errors())
	g.collectEstimate(to)

	collect.Node(to, r.cfg.Region, r.cfg.NodeID, r.cfg.Build)
	r.permits.Collect(to)
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
