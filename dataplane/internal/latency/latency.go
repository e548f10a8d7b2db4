// Package latency has the histograms of decisions' times, and the 99th percentile of recent decisions.
package latency

import (
	"math"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/internal/histogram"
)

// Timing a decision costs as much as making it, so only a few are timed. Batches and handles are never timed.
//
// A heartbeat carries the 99th percentile of the decisions of the last half to whole minute that needed no answer of
// the origin, once there are SamplesMin of them. A node that decides 900 such requests a second always has enough. A
// node with fewer than 430 never has: it reports none, and no guardrail on latency judges it.
const (
	// SamplesMin is how many samples a percentile is made of, at least.
	SamplesMin = 100

	span = 30 * time.Second
)

var bounds = []float64{100e-9, 200e-9, 500e-9, 1e-6, 2e-6, 5e-6, 10e-6, 50e-6, 100e-6, 500e-6, 1e-3, 5e-3, 10e-3,
	50e-3, 100e-3}

// Latency holds the times of sampled decisions. It has a histogram of decisions that were made from memory, and another
// of decisions that needed an answer of the origin, which take as long as a network does.
type Latency struct {
	Local, Origin *histogram.Histogram

	mu           sync.Mutex
	older, newer counts // of Local, half a minute apart
	turnedMs     int64  // when newer was taken
}

// counts are how many samples lie at or below each of bounds, and after them all samples.
type counts []uint64

// Init makes the histograms.
func (c *Latency) Init(nowMs int64) {
	c.Local, c.Origin = histogram.New(bounds...), histogram.New(bounds...)
	c.older, c.newer, c.turnedMs = make(counts, len(bounds)+1),
		make(counts, len(bounds)+1), nowMs
}

// Observe takes a sampled decision.
func (c *Latency) Observe(local bool, took time.Duration) {
	if local {
		c.Local.Observe(took.Seconds())
	} else {
		c.Origin.Observe(took.Seconds())
	}
}

// Turn lets samples become too old to be reported. It is called with every heartbeat.
func (c *Latency) Turn(nowMs int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := nowMs - c.turnedMs; since < 0 || since >= span.Milliseconds() {
		c.older, c.newer, c.turnedMs = c.newer, countsOf(c.Local), nowMs
	}
}

// P99Us returns the 99th percentile of the times of recent decisions from memory, in µs, or 0 if there are too few.
func (c *Latency) P99Us() float64 {
	c.mu.Lock()
	older := c.older
	c.mu.Unlock()
	return countsOf(c.Local).since(older).quantile(0.99) * 1e6
}

func countsOf(h *histogram.Histogram) counts { return h.Snapshot().Counts }

func (n counts) since(older counts) counts {
	grown := make(counts, len(n))
	for i := range n {
		grown[i] = n[i] - older[i]
	}
	return grown
}

// quantile returns the q-quantile in seconds, with the samples of a bucket evenly spread over it, as PromQL's
// histogram_quantile has it. Samples above the last bound count as the bound. It is 0 of fewer than SamplesMin.
func (n counts) quantile(q float64) float64 {
	all := n[len(n)-1]
	if all < SamplesMin {
		return 0
	}
	rank, below, from := math.Ceil(q*float64(all)), 0.0, 0.0
	for i, bound := range bounds {
		if upTo := float64(n[i]); upTo >= rank {
			return from + (bound-from)*(rank-below)/(upTo-below)
		}
		below, from = float64(n[i]), bound
	}
	return from
}
