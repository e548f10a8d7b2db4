package dataplane

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The cheap clock agrees with the wall clock to the millisecond, and goes on doing so.
func TestClockFollowsTheWall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWallClock(nil)
		for _, step := range []time.Duration{0, time.Millisecond, 99 * time.Millisecond, time.Second, time.Hour, 400 * 24 * time.Hour} {
			time.Sleep(step)
			if got := c.readMs(); got != time.Now().UnixMilli() {
				t.Errorf("after %v: %d, the wall says %d", step, got, time.Now().UnixMilli())
			}
		}
	})
}

// A step of the wall clock is followed once the offset is taken anew, and not before.
func TestClockFollowsAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWallClock(nil)
		for _, step := range []time.Duration{time.Hour, -time.Hour} {
			c.offsetNs.Add(-int64(step)) // as if the wall had stepped by that much since
			time.Sleep(anchorEvery - time.Millisecond)
			if got := c.readMs(); got != time.Now().Add(-step).UnixMilli() {
				t.Errorf("before the anchor: %d", got)
			}
			time.Sleep(time.Millisecond)
			if got := c.readMs(); got != time.Now().UnixMilli() {
				t.Errorf("after the anchor: %d, the wall says %d", got, time.Now().UnixMilli())
			}
		}
	})
}

// A time is compared with the clock as it was last read; one that is far from that,
// with the clock itself.
func TestClockNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWallClock(nil)
		time.Sleep(10 * time.Minute) // nobody reads it meanwhile
		now := time.Now()
		if _, ok := c.near(now, time.Minute); !ok {
			t.Error("the very time is far")
		}
		for _, off := range []time.Duration{-time.Minute - time.Millisecond, time.Minute + time.Millisecond} {
			if skew, ok := c.near(now.Add(off), time.Minute); ok || skew != off.Abs() {
				t.Errorf("%v away is near: %v", off, skew)
			}
		}
	})
}

func TestClockOfTheConfiguration(t *testing.T) {
	at := time.UnixMilli(1_735_000_000_123)
	c := newWallClock(func() time.Time { return at })
	if got := c.readMs(); got != at.UnixMilli() {
		t.Errorf("%d", got)
	}
}

// A difference that does not fit into a Duration, or into the milliseconds of an int64, is
// far away, and does not come around to near.
func TestClockNearDoesNotWrapAround(t *testing.T) {
	now := time.UnixMilli(1_735_000_000_123)
	for name, c := range map[string]*wallClock{"read": newWallClock(nil), "given": newWallClock(func() time.Time { return now })} {
		for what, far := range map[string]time.Time{
			"2^64 ns ahead":  time.UnixMilli(c.readMs() + 1<<64/1_000_000 + 1),
			"2^64 ns back":   time.UnixMilli(c.readMs() - 1<<64/1_000_000 - 1),
			"2^64 ms ahead":  time.Unix(c.readMs()/1000+1<<61, 0),
			"the last time":  time.Unix(1<<62, 0),
			"the first time": time.Unix(-1<<62, 0),
		} {
			if skew, ok := c.near(far, time.Minute); ok || skew < 250*365*24*time.Hour {
				t.Errorf("clock %s, %s: near %v, %v away", name, what, ok, skew)
			}
		}
	}
}

// While it is asked, the clock is told every millisecond; when nobody asks, whoever tells
// it sleeps, and the next one who asks reads it.
func TestClockIsToldWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWallClock(nil)
		ctx, stop := context.WithCancel(t.Context())
		go c.tell(ctx)
		synctest.Wait()
		if ms, told := c.nowMs(); told || ms != time.Now().UnixMilli() {
			t.Errorf("told %v, %d ms late, before anybody has asked", told, time.Now().UnixMilli()-ms)
		}
		for range 1000 {
			time.Sleep(tellEvery / 4)
			synctest.Wait()
			if ms, told := c.nowMs(); !told || time.Now().UnixMilli()-ms > 1 {
				t.Fatalf("told %v, %d ms late", told, time.Now().UnixMilli()-ms)
			}
		}
		time.Sleep((idleTells + 2) * tellEvery)
		if ms, told := c.nowMs(); told || ms != time.Now().UnixMilli() {
			t.Errorf("told %v, %d ms late, after nobody asked for a while", told, time.Now().UnixMilli()-ms)
		}
		synctest.Wait()
		if _, told := c.nowMs(); !told {
			t.Error("asked again, and not told")
		}
		stop()
		synctest.Wait()
		if ms, told := c.nowMs(); told || ms != time.Now().UnixMilli() {
			t.Error("told after the end")
		}
	})
}

// A measured decision tells the time for a teller that is late, and never for one that
// has gone.
func TestClockIsToldByWhoMeasures(t *testing.T) {
	c := newWallClock(nil)
	c.toldMs.Store(1)
	c.elapsed()
	if ms, told := c.nowMs(); !told || time.Now().UnixMilli()-ms > 10_000 {
		t.Errorf("told %v: %d", told, ms)
	}
	c.toldMs.Store(0)
	c.elapsed()
	if _, told := c.nowMs(); told {
		t.Error("told after the end")
	}
}

// "Retry-after exact to the millisecond": whoever comes back in time is let in, also when
// the time that is told is late.
func TestATimeToldLateDeniesNobodyWhoIsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Workspace: "acme", Namespace: "api", Identifier: "k", Limit: 10, Duration: time.Second, Cost: 10}
		for _, ask := range map[string]func() (allowed bool, after time.Duration){
			"single": func() (bool, time.Duration) { d := l.Allow(t.Context(), r); return d.Allowed, d.RetryAfter },
			"batch": func() (bool, time.Duration) {
				b := l.AllowMany(t.Context(), []Request{r})
				return b.Allowed, b.Decisions[0].RetryAfter
			},
		} {
			for allowed, after := ask(); !allowed; allowed, after = ask() {
				time.Sleep(after)
			}
			for range 3 {
				_, after := ask()
				for _, late := range []time.Duration{time.Millisecond, staleMax - time.Millisecond} {
					time.Sleep(after - time.Millisecond)
					l.clock.toldMs.Store(time.Now().Add(-late).UnixMilli())
					if allowed, after := ask(); allowed || after != time.Millisecond {
						t.Fatalf("a millisecond early: %v, again after %v", allowed, after)
					}
					time.Sleep(time.Millisecond)
					if allowed, after := ask(); !allowed {
						t.Fatalf("in time by a time %v late: again after %v", late, after)
					}
					l.clock.toldMs.Store(0)
					_, after = ask()
				}
			}
		}
	})
}
