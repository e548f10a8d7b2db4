// Package histogram counts values by their size.
package histogram

import (
	"math"
	"slices"
	"sync/atomic"
)

// Histogram counts values in buckets. All methods may be called concurrently.
type Histogram struct {
	bounds []float64
	counts []atomic.Uint64 // of each bucket, and of the values above the last bound
	sum    atomic.Uint64   // the bits of a float64
}

// New returns an empty histogram of buckets with these upper bounds, which ascend.
func New(bounds ...float64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// Exponential returns n bounds: first, first * factor, and so on.
func Exponential(first, factor float64, n int) []float64 {
	bounds := make([]float64, n)
	for i := range bounds {
		bounds[i] = first
		first *= factor
	}
	return bounds
}

// Observe counts a value, in the bucket with the lowest bound that is at least v.
func (h *Histogram) Observe(v float64) {
	at, _ := slices.BinarySearch(h.bounds, v)
	h.counts[at].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

// Snapshot is a histogram at one moment. While values are being observed, Sum and Counts can differ by a few of them.
type Snapshot struct {
	Bounds []float64 // shared: not to be changed
	Counts []uint64  // of the values up to each bound, and of all values
	Sum    float64
}

// Snapshot returns the counts so far.
func (h *Histogram) Snapshot() Snapshot {
	s := Snapshot{Bounds: h.bounds, Counts: make([]uint64, len(h.counts)), Sum: math.Float64frombits(h.sum.Load())}
	var upTo uint64
	for i := range h.counts {
		upTo += h.counts[i].Load()
		s.Counts[i] = upTo
	}
	return s
}
