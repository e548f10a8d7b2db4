package main

import (
	"math/bits"
	"time"
)

// histogram counts durations in buckets that are at most 1/16 wide of what they hold.
// The zero value is empty.
type histogram struct {
	buckets [60 * 16]int64
	count   int64
	max     time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.buckets[bucketOf(d)]++
	h.count++
	h.max = max(h.max, d)
}

func (h *histogram) merge(other *histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.count += other.count
	h.max = max(h.max, other.max)
}

// quantile is the upper end of the bucket that holds the q-th part of all durations.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(q * float64(h.count))
	for i, n := range h.buckets {
		if rank -= n; rank < 0 {
			return min(upperEnd(i), h.max)
		}
	}
	return h.max
}

// bucketOf keeps the five highest bits of a duration in nanoseconds.
func bucketOf(d time.Duration) int {
	ns := uint64(max(d, 0))
	shift := max(0, bits.Len64(ns)-5)
	return shift*16 + int(ns>>shift)
}

// upperEnd is the longest duration in a bucket. Buckets below 32 hold one nanosecond.
func upperEnd(bucket int) time.Duration {
	shift := max(0, bucket/16-1)
	return time.Duration(uint64(bucket-shift*16+1)<<shift - 1)
}
