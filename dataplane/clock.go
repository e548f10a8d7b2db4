package dataplane

import (
	"sync/atomic"
	"time"
)

// wallClock tells Unix time cheaply: the monotonic clock, which costs half of what
// time.Now does, plus an offset that is taken anew from the wall clock ten times a
// second. A step of the wall clock, either way, is followed within that time.
//
// Nothing depends on it going forwards: an entry never goes back to an earlier cell.
type wallClock struct {
	source   func() time.Time // Config.Clock: asked every time when set
	base     time.Time        // with a monotonic reading
	offsetNs atomic.Int64     // Unix ns = offsetNs + ns since base
	anchorNs atomic.Int64     // ns since base when offsetNs was taken
}

const anchorEvery = 100 * time.Millisecond

func newWallClock(source func() time.Time) *wallClock {
	c := &wallClock{source: source, base: time.Now()}
	c.offsetNs.Store(c.base.UnixNano())
	return c
}

// nowMs is Unix milliseconds. elapsed is a monotonic reading, to tell how long
// something took.
func (c *wallClock) nowMs() (unixMs int64, elapsed time.Duration) {
	if c.source != nil {
		now := c.source()
		return now.UnixMilli(), now.Sub(c.base)
	}
	elapsed = time.Since(c.base)
	if int64(elapsed)-c.anchorNs.Load() >= int64(anchorEvery) {
		c.anchor(elapsed)
	}
	return (c.offsetNs.Load() + int64(elapsed)) / int64(time.Millisecond), elapsed
}

// near reports whether a time is at most max away from the clock as it was last read,
// or else as it is now. Somebody reads it at least once a second while the limiter runs.
func (c *wallClock) near(unixMs int64, max time.Duration) (skew time.Duration, ok bool) {
	if c.source == nil {
		lastMs := (c.offsetNs.Load() + c.anchorNs.Load()) / int64(time.Millisecond)
		if skew = milliseconds(unixMs - lastMs).Abs(); skew <= max {
			return skew, true
		}
	}
	nowMs, _ := c.nowMs()
	skew = milliseconds(unixMs - nowMs).Abs()
	return skew, skew <= max
}

// anchor takes the wall clock's offset. Whoever comes first does it for all.
func (c *wallClock) anchor(elapsed time.Duration) {
	was := c.anchorNs.Load()
	if int64(elapsed)-was < int64(anchorEvery) || !c.anchorNs.CompareAndSwap(was, int64(elapsed)) {
		return
	}
	now := time.Now()
	c.offsetNs.Store(now.UnixNano() - int64(now.Sub(c.base)))
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
