package collect

import (
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/histogram"
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
	seconds, size   [ops]*histogram.Histogram
	tickSeconds     [ticks]*histogram.Histogram
}

// Init creates the histograms.
func (c *Calls) Init() {
	for op := range c.seconds {
		c.seconds[op] = histogram.New(histogram.Exponential(100e-6, 2.5, 11)...)
		c.size[op] = histogram.New(histogram.Exponential(1, 4, 6)...)
	}
	for t := range c.tickSeconds {
		c.tickSeconds[t] = histogram.New(histogram.Exponential(100e-6, 2.5, 11)...)
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
func (c *Calls) Collect(to Sink) {
	for op := range c.seconds {
		name := Op(op).String()
		to.Histogram(descCallSeconds, c.seconds[op], name)
		to.Histogram(descCallSize, c.size[op], name)
		to.Value(descRecords, c.records[op].Load(), name)
		to.Value(descCallErrors, c.errors[op].Load(), name)
	}
	for t := range c.tickSeconds {
		to.Histogram(descTickSeconds, c.tickSeconds[t], Tick(t).String())
	}
}

var (
	descCallSeconds = counts("weir_origin_pipeline_seconds",
		"Duration of a call to the origin, including failed calls.", "op")
	descCallSize    = counts("weir_origin_pipeline_size", "Cells in one call to the origin, including failed calls.", "op")
	descTickSeconds = counts("weir_origin_tick_seconds",
		"Time of one round of a loop that had something to send, for one shard of the origin, all its calls together.",
		"loop")
	descCallErrors = NewCounter("weir_origin_errors_total", "Calls to the origin that failed, in whole or in part.", "op")
	descRecords    = NewCounter("weir_origin_records_total",
		"Cells that calls to the origin carried, failed ones included.",
		"op")
)

// NewDrift returns the histogram of how far syncs move levels, as Drift describes it.
func NewDrift() *histogram.Histogram {
	return histogram.New(0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)
}

// NewStaleness returns the histogram of the time between two syncs of a key, as Staleness describes it.
func NewStaleness() *histogram.Histogram {
	return histogram.New(1, 2.5, 5, 7.5, 10, 15, 20, 30, 60, 120, 300)
}
