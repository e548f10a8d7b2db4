package main

import (
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// report has the effects of a flood on the limiter.
type report struct {
	identifiers, entriesMax int
	workers                 int
	took                    time.Duration
	decisions               *hdrhistogram.Histogram // ns
	denied                  int64
	heapBefore              uint64 // bytes
	heapMax, liveMax        uint64 // bytes
	blockedAfter            bool
	metrics                 map[string]float64
}

// latencyMax is the value at which longer decisions count.
const latencyMax = time.Minute

func newLatencies() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(latencyMax), 3) }

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(int64(min(max(0, d), latencyMax))) // fails only outside of the histogram's range
}

// quantile returns the time that a share q of the decisions did not exceed, in three digits.
func (r *report) quantile(q float64) time.Duration {
	return time.Duration(r.decisions.ValueAtQuantile(100 * q))
}

// bounds are the bounds that a report must keep.
type bounds struct {
	heapMax     uint64
	quantileMax time.Duration // of p99.9
}

const (
	entryBytesMax = 200 + 24 // the promise of dataplane.Config, with this flood's names
	programBytes  = 16 << 20 // of everything else in this process, histograms and metrics included

	// Go lets the heap grow to twice the live heap before it has collected again.
	collectorFactor = 2
)

// heapMaxOf returns the most that the heap may be for a table of so many entries.
func heapMaxOf(entriesMax int) uint64 {
	return collectorFactor * (uint64(entriesMax)*entryBytesMax + programBytes)
}

// broken lists the bounds that do not hold.
func (r *report) broken(b bounds) (all []string) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	check(r.blockedAfter, "the caller who was blocked before the flood is allowed after it")
	check(r.heapMax <= b.heapMax, "the heap grew to %s (at most %s)", mebibytes(r.heapMax), mebibytes(b.heapMax))
	check(r.quantile(0.999) <= b.quantileMax, "p99.9 of a decision is %v (at most %v)", r.quantile(0.999), b.quantileMax)
	check(r.metrics["weir_entries"] <= float64(r.entriesMax), "the table holds %.0f entries (at most %d)",
		r.metrics["weir_entries"], r.entriesMax)
	check(r.denied == 0, "%d decisions on new identifiers were denials", r.denied)
	return all
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%d identifiers from %d goroutines in %v, %.0f a second\n",
		r.identifiers, r.workers, r.took.Round(time.Millisecond), float64(r.identifiers)/r.took.Seconds())
	q := r.quantile
	fmt.Fprintf(w, "decision     p50 %v, p99 %v, p99.9 %v, max %v\n", q(0.5), q(0.99), q(0.999), q(1))
	fmt.Fprintf(w, "heap         %s before, %s at most, %s of it live (bound: %s at most)\n",
		mebibytes(r.heapBefore), mebibytes(r.heapMax), mebibytes(r.liveMax), mebibytes(heapMaxOf(r.entriesMax)))
	fmt.Fprintf(w, "entries      %.0f of at most %d\n", r.metrics["weir_entries"], r.entriesMax)
	fmt.Fprintf(w, "evictions    %.0f idle, %.0f expired\n", r.metrics["weir_evictions_total idle"],
		r.metrics["weir_evictions_total expired"])
	fmt.Fprintf(w, "no room for  %.0f new identifiers: decided, not remembered\n", r.metrics["weir_table_full_total"])
	fmt.Fprintf(w, "blocked      %s\n", map[bool]string{true: "still denied", false: "ALLOWED"}[r.blockedAfter])
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
