package collect

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Op is a kind of call to the origin.
type Op uint8

// Kinds of calls.
const (
	OpRead Op = iota
	OpSend
	OpClaim
	OpHold
	OpNote
	OpLease
	ops
)

func (o Op) String() string {
	return [...]string{"read", "send", "claim", "hold", "note", "lease"}[o]
}

// Tick is a loop that calls the origin.
type Tick uint8

// Loops that call the origin.
const (
	TickReplay Tick = iota
	TickSync
	ticks
)

func (t Tick) String() string { return [...]string{"replay", "sync"}[t] }

// Calls counts calls to the origin, and the rounds of the loops that make them. Call Init first;
// the other methods may then be called concurrently.
type Calls struct {
	errors, records [ops]atomic.Int64
	seconds, size   [ops]prometheus.Histogram
	tickSeconds     [ticks]prometheus.Histogram
}

// Init creates the histograms.
func (c *Calls) Init() {
	for op := range c.seconds {
		c.seconds[op] = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_origin_pipeline_seconds", Help: "Duration of a call to the origin, including failed calls.",
			ConstLabels: prometheus.Labels{"op": Op(op).String()},
			Buckets:     prometheus.ExponentialBuckets(100e-6, 2.5, 11),
		})
		c.size[op] = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_origin_pipeline_size", Help: "Cells in one call to the origin, including failed calls.",
			ConstLabels: prometheus.Labels{"op": Op(op).String()},
			Buckets:     prometheus.ExponentialBuckets(1, 4, 6),
		})
	}
	for t := range c.tickSeconds {
		c.tickSeconds[t] = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_origin_tick_seconds",
			Help: "Time of one round of a loop that had something to send, for one shard of the origin, all its calls " +
				"together.",
			ConstLabels: prometheus.Labels{"loop": Tick(t).String()},
			Buckets:     prometheus.ExponentialBuckets(100e-6, 2.5, 11),
		})
	}
}

// Called counts a call with its number of cells.
func (c *Calls) Called(op Op, cells int, took time.Duration, err error) {
	c.seconds[op].Observe(took.Seconds())
	c.size[op].Observe(float64(cells))
	c.records[op].Add(int64(cells))
	if err != nil {
		c.errors[op].Add(1)
	}
}

// Ticked counts a loop's round that had something to send.
func (c *Calls) Ticked(t Tick, began time.Time) {
	c.tickSeconds[t].Observe(time.Since(began).Seconds())
}

// Errors returns how many calls of a kind have failed.
func (c *Calls) Errors(op Op) int64 { return c.errors[op].Load() }

// Collect writes the metrics.
func (c *Calls) Collect(ch chan<- prometheus.Metric) {
	for op := range c.seconds {
		c.seconds[op].Collect(ch)
		c.size[op].Collect(ch)
		counter(ch, Records, c.records[op].Load(), Op(op).String())
		counter(ch, OriginErrors, c.errors[op].Load(), Op(op).String())
	}
	for t := range c.tickSeconds {
		c.tickSeconds[t].Collect(ch)
	}
}

// NewDrift returns the histogram of how far syncs move levels.
func NewDrift() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "weir_estimate_drift_ratio",
		Help:    "Change of a key's level by a sync, as a share of its limit.",
		Buckets: []float64{0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2},
	})
}

// NewStaleness returns the histogram of the time between two syncs of a key.
func NewStaleness() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "weir_sync_staleness_seconds",
		Help:    "Time since a key's previous sync, at each sync.",
		Buckets: []float64{1, 2.5, 5, 7.5, 10, 15, 20, 30, 60, 120, 300},
	})
}
