package relay

import (
	"math"
	"time"
)

// delays counts durations in buckets, each a fifth longer than the one before; the last one ends after days.
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

// delayBucket is the first whose end is no shorter than a delay. The first ends after a millisecond.
func delayBucket(delay time.Duration) int {
	if delay <= time.Millisecond {
		return 0
	}
	n := math.Ceil(math.Log2(float64(delay)/float64(time.Millisecond)) * 4)
	return min(int(n), delayBuckets-1)
}

// quantile is what so large a share of the durations is at most, by the end of its bucket; 0 of none.
func (d *delays) quantile(share float64) time.Duration {
	below := int64(math.Ceil(share * float64(d.n)))
	for i, n := range d.buckets {
		if below -= n; below <= 0 && d.n > 0 {
			return min(d.longest, time.Duration(math.Pow(delayRatio, float64(i))*float64(time.Millisecond)))
		}
	}
	return d.longest
}
