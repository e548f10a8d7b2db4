package clock

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The cheap clock agrees with the wall clock to the millisecond, at all times.
func TestClockFollowsTheWall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		for _, step := range []time.Duration{0, time.Millisecond, 99 * time.Millisecond, time.Second, time.Hour, 400 * 24 * time.Hour} {
			time.Sleep(step)
			if got := c.ReadMs(); got != time.Now().UnixMilli() {
				t.Errorf("after %v: %d, the wall says %d", step, got, time.Now().UnixMilli())
			}
		}
	})
}

// A step of the wall clock is followed once the offset is read again, and not before.
func TestClockFollowsAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		for _, step := range []time.Duration{time.Hour, -time.Hour} {
			c.offsetNs.Add(-int64(step)) // as if the wall had stepped by that much since
			time.Sleep(anchorEvery - time.Millisecond)
			if got := c.ReadMs(); got != time.Now().Add(-step).UnixMilli() {
				t.Errorf("before the anchor: %d", got)
			}
			time.Sleep(time.Millisecond)
			if got := c.ReadMs(); got != time.Now().UnixMilli() {
				t.Errorf("after the anchor: %d, the wall says %d", got, time.Now().UnixMilli())
			}
		}
	})
}

// A time is compared with the clock's last reading. If it is far from that, it is compared with a new reading.
func TestClockNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		time.Sleep(10 * time.Minute) // no reader meanwhile
		now := time.Now()
		if _, ok := c.Near(now, time.Minute); !ok {
			t.Error("the very time is far")
		}
		for _, off := range []time.Duration{-time.Minute - time.Millisecond, time.Minute + time.Millisecond} {
			if skew, ok := c.Near(now.Add(off), time.Minute); ok || skew != off.Abs() {
				t.Errorf("%v away is near: %v", off, skew)
			}
		}
	})
}

// A time that leads the clock is recorded as its lead, however recently the clock was read.
func TestClockNotesHowFarTimesLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		for _, lead := range []time.Duration{30 * time.Second, time.Second, 40 * time.Second} {
			if _, ok := c.Near(time.Now().Add(lead), time.Minute); !ok {
				t.Errorf("%v ahead is far", lead)
			}
		}
		if got := c.LeadMs(); got < 40_000-leadSlackMs || got > 40_000 {
			t.Errorf("a lead of %d ms, want 40,000 less %d at most", got, leadSlackMs)
		}
	})
}

func TestClockOfTheConfiguration(t *testing.T) {
	at := time.UnixMilli(1_735_000_000_123)
	c := New(func() time.Time { return at })
	if got := c.ReadMs(); got != at.UnixMilli() {
		t.Errorf("%d", got)
	}
}

// A difference that does not fit into a Duration, or into the milliseconds of an int64, is far away, and does not wrap
// around to near.
func TestClockNearDoesNotWrapAround(t *testing.T) {
	now := time.UnixMilli(1_735_000_000_123)
	for name, c := range map[string]*Clock{"read": New(nil), "given": New(func() time.Time { return now })} {
		for what, far := range map[string]time.Time{
			"2^64 ns ahead":  time.UnixMilli(c.ReadMs() + 1<<64/1_000_000 + 1),
			"2^64 ns back":   time.UnixMilli(c.ReadMs() - 1<<64/1_000_000 - 1),
			"2^64 ms ahead":  time.Unix(c.ReadMs()/1000+1<<61, 0),
			"the last time":  time.Unix(1<<62, 0),
			"the first time": time.Unix(-1<<62, 0),
		} {
			if skew, ok := c.Near(far, time.Minute); ok || skew < 250*365*24*time.Hour {
				t.Errorf("clock %s, %s: near %v, %v away", name, what, ok, skew)
			}
		}
	}
}

// While there are readers, the time is cached every millisecond. Without readers the goroutine sleeps, and the next
// reader reads the clock.
func TestClockCachesWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		ctx, stop := context.WithCancel(t.Context())
		go c.Run(ctx)
		synctest.Wait()
		if ms, cached := c.NowMs(); cached || ms != time.Now().UnixMilli() {
			t.Errorf("cached %v, %d ms late, before anybody has asked", cached, time.Now().UnixMilli()-ms)
		}
		for range 1000 {
			time.Sleep(refreshEvery / 4)
			synctest.Wait()
			if ms, cached := c.NowMs(); !cached || time.Now().UnixMilli()-ms > 1 {
				t.Fatalf("cached %v, %d ms late", cached, time.Now().UnixMilli()-ms)
			}
		}
		time.Sleep((idleRefreshes + 2) * refreshEvery)
		if ms, cached := c.NowMs(); cached || ms != time.Now().UnixMilli() {
			t.Errorf("cached %v, %d ms late, after nobody asked for a while", cached, time.Now().UnixMilli()-ms)
		}
		synctest.Wait()
		if _, cached := c.NowMs(); !cached {
			t.Error("asked again, and not cached")
		}
		stop()
		synctest.Wait()
		if ms, cached := c.NowMs(); cached || ms != time.Now().UnixMilli() {
			t.Error("cached after the end")
		}
	})
}

// Elapsed refreshes the cached time if the goroutine is late, and never once the goroutine has ended.
func TestMeasuringRefreshesTheCachedTime(t *testing.T) {
	c := New(nil)
	c.cachedMs.Store(1)
	c.Elapsed()
	if ms, cached := c.NowMs(); !cached || time.Now().UnixMilli()-ms > 10_000 {
		t.Errorf("cached %v: %d", cached, ms)
	}
	c.cachedMs.Store(0)
	c.Elapsed()
	if _, cached := c.NowMs(); cached {
		t.Error("cached after the end")
	}
}

// Recent is at most as old as the cached time, and exact without a cached time.
func TestRecentIsTheCachedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil)
		time.Sleep(time.Second)
		if got := c.Recent(); got != time.Second {
			t.Errorf("without a cached time it is %v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { c.Run(ctx) })
		for range 100 {
			synctest.Wait()
			time.Sleep(700 * time.Microsecond)
			if recent, now := c.Recent(), c.Monotonic(); recent > now || now-recent > 2*time.Millisecond {
				t.Errorf("it is %v at %v", recent, now)
			}
		}
		cancel()
		running.Wait()
	})
}
