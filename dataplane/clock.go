package dataplane

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// wallClock tells Unix time cheaply, in two steps.
//
// Reading it is the monotonic clock, which costs half of what time.Now does, plus an
// offset that is taken anew from the wall clock ten times a second. A step of the wall
// clock, either way, is followed within that time.
//
// While a limiter runs and is asked, a goroutine reads it every millisecond for all
// decisions: telling the time would be a third of what they cost. They so judge by a
// time that is up to a millisecond old, and on a machine without a processor to spare,
// on which the goroutine has to wait its turn, some milliseconds; see Limiter.soon. It
// sleeps while nobody asks.
//
// Cells are numbered, and weighed, by wall time. Everything that lasts for a while is measured
// by a second reading, that of steadyMs, which no step of the wall clock changes: how fresh a
// key is, how long it is strict or rests, how long a decision waits.
//
// Nothing depends on wall time going forwards: an entry never goes back to an earlier cell.
type wallClock struct {
	source   func() time.Time // Config.Clock: asked every time when set
	base     time.Time        // with a monotonic reading
	offsetNs atomic.Int64     // Unix ns = offsetNs + ns since base
	anchorNs atomic.Int64     // ns since base when offsetNs was taken

	given struct { // of Config.Clock: what it has moved forwards, when it was asked
		sync.Mutex
		last  time.Time
		moved time.Duration
		read  func() steadyMs // instead, where it is set
	}

	toldSteadyMs atomic.Int64 // the steady reading that belongs to toldMs

	toldMs atomic.Int64  // what the goroutine last told, Unix ms; 0 while it sleeps or does not run
	asked  atomic.Uint32 // 1 when somebody took toldMs since the goroutine last looked
	runs   atomic.Bool
	wake   chan struct{}
}

const (
	anchorEvery = 100 * time.Millisecond
	tellEvery   = time.Millisecond
	idleTells   = 64 // tells without anybody asking, after which the goroutine sleeps

	// staleMax is how old a told time may be where it matters: a denial that would be
	// over within it is judged again by the clock itself.
	staleMax = 20 * time.Millisecond
)

func newWallClock(source func() time.Time) *wallClock {
	c := &wallClock{source: source, base: time.Now(), wake: make(chan struct{}, 1)}
	c.offsetNs.Store(c.base.UnixNano())
	return c
}

// nowMs is Unix milliseconds, as last told; told is false when it was read.
func (c *wallClock) nowMs() (unixMs int64, told bool) {
	if ms := c.toldMs.Load(); ms != 0 && c.asked.Load() != 0 {
		return ms, true
	}
	return c.ask()
}

// ask is nowMs for the first one to ask since the teller last looked, and for whoever
// finds nothing told: reads the clock, and wakes who tells.
func (c *wallClock) ask() (unixMs int64, told bool) {
	c.asked.Store(1)
	if ms := c.toldMs.Load(); ms != 0 {
		return ms, true
	}
	if c.runs.Load() {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return c.readMs(), false
}

// readMs is Unix milliseconds, read now.
func (c *wallClock) readMs() int64 {
	if c.source != nil {
		return c.source().UnixMilli()
	}
	elapsed := time.Since(c.base)
	if int64(elapsed)-c.anchorNs.Load() >= int64(anchorEvery) {
		c.anchor(elapsed)
	}
	return (c.offsetNs.Load() + int64(elapsed)) / int64(time.Millisecond)
}

// steadyMs is a reading in milliseconds of a clock that only goes forwards, at the pace of
// time: for freshness, rests and deadlines. It says nothing about the time of day.
type steadyMs int64

// steadyStart is the reading when a limiter is made, so that 0 is long ago for everything.
const steadyStart steadyMs = 1 << 40

// steadyMs is the steady reading, as last told: at most as old as a told time.
func (c *wallClock) steadyMs() steadyMs {
	if c.toldMs.Load() != 0 {
		return steadyMs(c.toldSteadyMs.Load())
	}
	return c.readSteadyMs()
}

// readSteadyMs is the steady reading, read now. By a clock that was given it is what that has
// moved forwards, as far as it was asked.
func (c *wallClock) readSteadyMs() steadyMs {
	if c.source == nil {
		return steadyStart + steadyMs(time.Since(c.base)/time.Millisecond)
	}
	if c.given.read != nil {
		return c.given.read()
	}
	c.given.Lock()
	defer c.given.Unlock()
	now := c.source()
	if !c.given.last.IsZero() {
		c.given.moved += max(0, now.Sub(c.given.last)) // by its monotonic part, if it has one
	}
	c.given.last = now
	return steadyStart + steadyMs(c.given.moved/time.Millisecond)
}

// wallOf is when the steady clock showed at, seen from now, for people.
func (c *wallClock) wallOf(at steadyMs, nowMs int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMilli(nowMs - int64(c.readSteadyMs()-at))
}

// elapsed is a monotonic reading, to tell how long something took. It tells the time on
// the way, for those who find the teller late.
func (c *wallClock) elapsed() time.Duration {
	if ms := c.toldMs.Load(); ms != 0 {
		c.toldSteadyMs.Store(int64(c.readSteadyMs()))
		c.toldMs.CompareAndSwap(ms, c.readMs()) // not when the teller has just gone to sleep
	}
	return time.Since(c.base)
}

// tell runs until ctx ends.
func (c *wallClock) tell(ctx context.Context) {
	if c.source != nil {
		return
	}
	c.runs.Store(true)
	defer c.runs.Store(false)
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		c.tellWhileAsked(ctx)
	}
}

func (c *wallClock) tellWhileAsked(ctx context.Context) {
	defer c.toldMs.Store(0)
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	for idle := 0; idle < idleTells; idle++ {
		c.toldSteadyMs.Store(int64(c.readSteadyMs()))
		c.toldMs.Store(c.readMs())
		if c.asked.Load() != 0 {
			c.asked.Store(0)
			idle = 0
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// near reports whether a time is at most max away from the clock as it was last read,
// or else as it is now. Somebody reads it at least once a second while the limiter runs.
func (c *wallClock) near(at time.Time, max time.Duration) (skew time.Duration, ok bool) {
	if s := at.Unix(); s > unixSecondsMax || s < -unixSecondsMax { // its milliseconds wrap around
		return math.MaxInt64, false
	}
	if c.source == nil {
		lastMs := (c.offsetNs.Load() + c.anchorNs.Load()) / int64(time.Millisecond)
		if skew = apart(at.UnixMilli(), lastMs); skew <= max {
			return skew, true
		}
	}
	skew = apart(at.UnixMilli(), c.readMs())
	return skew, skew <= max
}

// unixSecondsMax is a time, some 34,000 years ahead, whose milliseconds are far from overflow.
const unixSecondsMax = 1 << 40

// apart is the distance of two times in Unix milliseconds, at most the longest Duration.
func apart(aMs, bMs int64) time.Duration {
	distance := max(aMs-bMs, bMs-aMs)
	if distance > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return milliseconds(distance)
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
