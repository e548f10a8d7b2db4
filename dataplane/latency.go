package dataplane

import (
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Decision latency. Timing a decision costs as much as making it, so one in sampleEvery is timed. Batches and
// handles are not: they have no part in what follows.
//
// A heartbeat carries the 99th percentile of the decisions of the last half to whole minute that needed no answer of
// the origin, once there are latencySamplesMin of them. A node that decides 900 such requests a second always has
// enough, one with fewer than 430 never; it reports none, and no guardrail on latency judges it.
const (
	latencySamplesMin = 100
	latencySpan       = 30 * time.Second
)

var latencyBounds = []float64{100e-9, 200e-9, 500e-9, 1e-6, 2e-6, 5e-6, 10e-6, 50e-6, 100e-6, 500e-6, 1e-3, 5e-3, 10e-3,
	50e-3, 100e-3}

// latency holds the times of sampled decisions: of those that were made from memory, and apart from them of those
// that wanted an answer of the origin, which take as long as a network does.
type latency struct {
	local, origin prometheus.Histogram

	mu           sync.Mutex
	older, newer latencyCounts // of local, half a minute apart
	turnedMs     int64         // when newer was taken
}

// latencyCounts are how many samples lie at or below each of latencyBounds, and after them all samples.
type latencyCounts []uint64

func (c *latency) init(nowMs int64) {
	of := func(source Source) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_decision_seconds",
			Help: "Time of one decision, from memory (local) or with a call to the origin (origin); one in 256 is " +
				"measured.",
			ConstLabels: prometheus.Labels{"source": source.String()},
			Buckets:     latencyBounds,
		})
	}
	c.local, c.origin = of(SourceLocal), of(SourceOrigin)
	c.older, c.newer, c.turnedMs = make(latencyCounts, len(latencyBounds)+1),
		make(latencyCounts, len(latencyBounds)+1), nowMs
}

// observe takes a sampled decision.
func (c *latency) observe(source Source, took time.Duration) {
	if source == SourceLocal {
		c.local.Observe(took.Seconds())
	} else {
		c.origin.Observe(took.Seconds())
	}
}

// turn lets samples become too old to be reported. It is called with every heartbeat.
func (c *latency) turn(nowMs int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := nowMs - c.turnedMs; since < 0 || since >= latencySpan.Milliseconds() {
		c.older, c.newer, c.turnedMs = c.newer, countsOf(c.local), nowMs
	}
}

// p99Us is the 99th percentile of what decisions from memory took lately, in µs; 0 of too few.
func (c *latency) p99Us() float64 {
	c.mu.Lock()
	older := c.older
	c.mu.Unlock()
	return countsOf(c.local).since(older).quantile(0.99) * 1e6
}

func countsOf(h prometheus.Histogram) latencyCounts {
	var m dto.Metric
	if h.Write(&m) != nil { // it has no exemplars to go wrong
		return make(latencyCounts, len(latencyBounds)+1)
	}
	counts := make(latencyCounts, 0, len(latencyBounds)+1)
	for _, b := range m.GetHistogram().GetBucket() {
		counts = append(counts, b.GetCumulativeCount())
	}
	return append(counts, m.GetHistogram().GetSampleCount())
}

func (n latencyCounts) since(older latencyCounts) latencyCounts {
	grown := make(latencyCounts, len(n))
	for i := range n {
		grown[i] = n[i] - older[i]
	}
	return grown
}

// quantile is the q-quantile in seconds, with the samples of a bucket evenly spread over it, as PromQL's
// histogram_quantile has it. Samples above the last bound count as the bound. It is 0 of fewer than latencySamplesMin.
func (n latencyCounts) quantile(q float64) float64 {
	all := n[len(n)-1]
	if all < latencySamplesMin {
		return 0
	}
	rank, below, from := math.Ceil(q*float64(all)), 0.0, 0.0
	for i, bound := range latencyBounds {
		if upTo := float64(n[i]); upTo >= rank {
			return from + (bound-from)*(rank-below)/(upTo-below)
		}
		below, from = float64(n[i]), bound
	}
	return from
}
