// Package clock reads the time for decisions: Unix time cheaply, and a steady time that no
// step of the wall clock changes.
package clock

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Clock reads Unix time cheaply, in two steps.
//
// A reading is the monotonic clock, which costs half of a call of time.Now, plus an offset. The offset is read from the
// wall clock again ten times a second. So the clock follows a step of the wall clock, either way, within that time.
//
// While Run runs and readers use the clock, a goroutine reads it every millisecond for all decisions and caches the
// time, because a reading of its own would be a third of a decision's cost. The cached time is up to a millisecond old,
// or some milliseconds on a machine on which the goroutine waits for a processor. The goroutine sleeps while there are
// no readers.
//
// Cells are numbered, and weighed, by wall time. Durations are measured by a second reading, Steady, which no step of
// the wall clock changes: for example, how fresh a key is, how long it is strict or rests, and how long a decision
// waits.
//
// Nothing depends on wall time going forwards. Readings by ReadMs are ordered: if a reading shows a step, every reading
// that begins after it has ended shows the step too. Cached times are earlier readings.
type Clock struct {
	source   func() time.Time // if set, every reading calls it
	base     time.Time        // with a monotonic reading
	offsetNs atomic.Int64     // Unix ns = offsetNs + ns since base
	anchorNs atomic.Int64     // ns since base when offsetNs was taken
	anchors  sync.Mutex       // one at a time: a late anchor could undo a step that a later anchor has followed

	unknown   atomic.Bool // see WillFollow
	following atomic.Bool
	aheadNs   atomic.Int64 // of another clock that is followed: see Follow
	follow    sync.Mutex   // one call of Follow at a time
	floorMs   atomic.Int64 // no reading is earlier, until a step of more than followStep
	leadMs    atomic.Int64 // the most by which a time that Near accepted was ahead of the clock

	given struct { // of source: by how much it has moved forwards, over all readings
		sync.Mutex
		last  time.Time
		moved time.Duration
		read  func() Steady // replaces it if set
	}

	cachedSteadyMs atomic.Int64 // the steady reading that belongs to cachedMs

	cachedMs atomic.Int64  // Unix ms as the goroutine last read it; 0 while it sleeps or does not run
	asked    atomic.Uint32 // 1 when a reader took cachedMs since the goroutine last looked
	runs     atomic.Bool
	wake     chan struct{}
}

const (
	anchorEvery   = 100 * time.Millisecond
	refreshEvery  = time.Millisecond
	idleRefreshes = 64 // readings without a reader, after which the goroutine sleeps

	// StaleMax is how old a cached time may be if it matters: a denial that would end within that time is decided again by
	// the clock itself.
	StaleMax = 20 * time.Millisecond
)

// New makes a clock that reads source, or the system's clock if source is nil.
func New(source func() time.Time) *Clock {
	c := &Clock{source: source, base: time.Now(), wake: make(chan struct{}, 1)}
	c.offsetNs.Store(c.base.UnixNano())
	return c
}

// NowMs returns Unix milliseconds. cached is false if the clock was read now.
func (c *Clock) NowMs() (unixMs int64, cached bool) {
	if ms := c.cachedMs.Load(); ms != 0 && c.asked.Load() != 0 {
		return ms, true
	}
	return c.ask()
}

// ask is NowMs for the first reader since the goroutine last looked, and for readers without a cached time: it reads
// the clock, and wakes the goroutine.
func (c *Clock) ask() (unixMs int64, cached bool) {
	c.asked.Store(1)
	if ms := c.cachedMs.Load(); ms != 0 {
		return ms, true
	}
	if c.runs.Load() {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return c.ReadMs(), false
}

// ReadMs reads the time in Unix milliseconds now, by the followed clock if there is one.
func (c *Clock) ReadMs() int64 {
	if c.following.Load() {
		return c.followedMs()
	}
	if c.source != nil {
		return c.source().UnixMilli()
	}
	elapsed := time.Since(c.base)
	if int64(elapsed)-c.anchorNs.Load() >= int64(anchorEvery) {
		c.anchor(elapsed)
	}
	return (c.offsetNs.Load() + int64(elapsed)) / int64(time.Millisecond)
}

// followStep is the longest step back of a followed clock for which time stands still until it has caught up. It is the
// shortest window, so no limited caller waits for long. After a longer step back, time goes back at once.
const followStep = time.Second

// Own returns this clock's own reading. Once it follows another clock, no step of the system's clock changes it.
func (c *Clock) Own() time.Time {
	if c.source != nil {
		return c.source()
	}
	return c.base.Add(time.Since(c.base))
}

func (c *Clock) followedMs() int64 {
	ms := (c.Own().UnixNano() + c.aheadNs.Load()) / int64(time.Millisecond)
	floor := c.floorMs.Load()
	switch {
	case floor <= ms:
		return ms
	case floor-ms <= followStep.Milliseconds():
		return floor
	}
	c.floorMs.CompareAndSwap(floor, ms) // otherwise time would go forwards again, to a moment from before the step
	return ms
}

// Follow makes the clock follow another clock, which is so far ahead of Own. If the new time is behind an earlier
// reading, time stands still until it has caught up, unless that would take longer than followStep. Readings from
// before the first Follow do not count, because they are another clock's, which may be seconds ahead.
func (c *Clock) Follow(ahead time.Duration) {
	c.follow.Lock()
	defer c.follow.Unlock()
	if c.following.Load() && c.aheadNs.Load() == int64(ahead) {
		return
	}
	if c.following.Load() {
		c.floorMs.Store(c.ReadMs())
	} else {
		c.floorMs.Store(c.Own().Add(ahead).UnixMilli())
	}
	c.aheadNs.Store(int64(ahead))
	c.following.Store(true)
	c.unknown.Store(false)
	c.followedMs() // applies the step now, and not when time is read next
}

// Steady is a reading in milliseconds of a clock that only goes forwards, at the pace of time. Use it for freshness,
// rests and deadlines. It has no relation to the time of day.
type Steady int64

// SteadyStart is the reading when a limiter is made. So 0 is long before every reading.
const SteadyStart Steady = 1 << 40

// Steady returns the cached steady reading: at most as old as a cached time.
func (c *Clock) Steady() Steady {
	if c.cachedMs.Load() != 0 {
		return Steady(c.cachedSteadyMs.Load())
	}
	return c.ReadSteady()
}

// ReadSteady reads the steady time now. With a given source it is the sum of the source's forward moves between
// readings.
func (c *Clock) ReadSteady() Steady {
	if c.source == nil {
		return SteadyStart + Steady(time.Since(c.base)/time.Millisecond)
	}
	if c.given.read != nil {
		return c.given.read()
	}
	c.given.Lock()
	defer c.given.Unlock()
	now := c.source()
	if !c.given.last.IsZero() {
		c.given.moved += max(0, now.Sub(c.given.last)) // by the readings' monotonic part, if they have it
	}
	c.given.last = now
	return SteadyStart + Steady(c.given.moved/time.Millisecond)
}

// WallOf returns the wall time at which the steady clock showed at, computed from nowMs, for people.
func (c *Clock) WallOf(at Steady, nowMs int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMilli(nowMs - int64(c.ReadSteady()-at))
}

// Elapsed returns a monotonic reading, to measure how long something took. It refreshes the cached time on the way, in
// case the goroutine is late.
func (c *Clock) Elapsed() time.Duration {
	if ms := c.cachedMs.Load(); ms != 0 {
		c.cachedSteadyMs.Store(int64(c.ReadSteady()))
		c.cachedMs.CompareAndSwap(ms, c.ReadMs()) // not if the goroutine has just gone to sleep
	}
	return time.Since(c.base)
}

// Monotonic returns the time since the clock was made, by the system's monotonic clock.
func (c *Clock) Monotonic() time.Duration { return time.Since(c.base) }

// Recent returns Monotonic at the time of the last cached reading, or now if there is none.
func (c *Clock) Recent() time.Duration {
	if c.cachedMs.Load() == 0 || c.asked.Load() == 0 {
		if _, cached := c.ask(); !cached {
			return c.Monotonic()
		}
	}
	return time.Duration(c.cachedSteadyMs.Load()-int64(SteadyStart)) * time.Millisecond
}

// Run refreshes the cached time while readers use it, until ctx ends.
func (c *Clock) Run(ctx context.Context) {
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
		c.refreshWhileAsked(ctx)
	}
}

func (c *Clock) refreshWhileAsked(ctx context.Context) {
	defer c.Cache(0)
	ticker := time.NewTicker(refreshEvery)
	defer ticker.Stop()
	for idle := 0; idle < idleRefreshes; idle++ {
		c.cachedSteadyMs.Store(int64(c.ReadSteady()))
		c.Cache(c.ReadMs())
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

// Cache sets the cached time; 0 removes it.
func (c *Clock) Cache(unixMs int64) { c.cachedMs.Store(unixMs) }

// Near reports whether a time is at most max away from the clock's last reading, or otherwise from a new reading. A
// limiter that runs reads the clock at least once a second. LeadMs returns how far ahead such times were.
func (c *Clock) Near(at time.Time, max time.Duration) (skew time.Duration, ok bool) {
	if s := at.Unix(); s > unixSecondsMax || s < -unixSecondsMax { // its milliseconds wrap around
		return math.MaxInt64, false
	}
	atMs := at.UnixMilli()
	if c.source == nil && !c.following.Load() {
		lastMs := (c.offsetNs.Load() + c.anchorNs.Load()) / int64(time.Millisecond)
		if skew = apart(atMs, lastMs); skew <= max && atMs-lastMs <= c.leadMs.Load()+leadSlackMs {
			return skew, true
		}
	}
	nowMs := c.ReadMs()
	skew = apart(atMs, nowMs)
	for lead := atMs - nowMs; skew <= max; {
		if known := c.leadMs.Load(); lead <= known || c.leadMs.CompareAndSwap(known, lead) {
			return skew, true
		}
	}
	return skew, false
}

// leadSlackMs is how far a time may be ahead of the clock's last reading before the clock is read again.
const leadSlackMs = 150

// LeadMs returns the most by which a time that Near accepted was ahead of the clock, to within leadSlackMs.
func (c *Clock) LeadMs() int64 { return c.leadMs.Load() }

// unixSecondsMax is a time, some 34,000 years ahead, whose milliseconds are far from overflow.
const unixSecondsMax = 1 << 40

// apart returns the distance of two times in Unix milliseconds, at most the longest Duration.
func apart(aMs, bMs int64) time.Duration {
	distance := max(aMs-bMs, bMs-aMs)
	if distance > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(distance) * time.Millisecond
}

// anchor reads the wall clock's offset. The first caller does it for all.
func (c *Clock) anchor(elapsed time.Duration) {
	if !c.anchors.TryLock() {
		return
	}
	defer c.anchors.Unlock()
	if int64(elapsed)-c.anchorNs.Load() < int64(anchorEvery) {
		return
	}
	now := time.Now()
	c.offsetNs.Store(now.UnixNano() - int64(now.Sub(c.base)))
	c.anchorNs.Store(int64(elapsed))
}

// Since returns how long ago the clock's base was.
func (c *Clock) Since() time.Duration { return time.Since(c.base) }

// SetSteady replaces the steady reading of a given clock. nil restores it.
func (c *Clock) SetSteady(read func() Steady) { c.given.read = read }
