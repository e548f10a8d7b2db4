package relay

import (
	"math"
	"time"
)

// delays counts durations in buckets. The end of each bucket is 19 % above the end of the bucket before it; the last
// bucket ends after days.
type delays struct {
	buckets [delayBuckets]int64
	n       int64
	longest time.Duration
}

const (
	delayBuckets = 128
	delayRatio   = 1.189207115 // the fourth root of 2
)

func (d *delays) add(delay time.Duration) {
	delay = max(0, delay)
	d.buckets[delayBucket(delay)]++
	d.n++
	d.longest = max(d.longest, delay)
}

// delayBucket returns the first bucket that ends at or after delay. The first bucket ends at 1 ms.
func delayBucket(delay time.Duration) int {
	if delay <= time.Millisecond {
		return 0
	}
	n := math.Ceil(math.Log2(float64(delay)/float64(time.Millisecond)) * 4)
	return min(int(n), delayBuckets-1)
}

// quantile returns a duration that at least the given share of the durations does not exceed, rounded up to the end of
// its bucket; 0 without durations.
func (d *delays) quantile(share float64) time.Duration {
	below := int64(math.Ceil(share * float64(d.n)))
	for i, n := range d.buckets {
		if below -= n; below <= 0 && d.n > 0 {
			return min(d.longest, time.Duration(math.Pow(delayRatio, float64(i))*float64(time.Millisecond)))
		}
	}
	return d.longest
}
