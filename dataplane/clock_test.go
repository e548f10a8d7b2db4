package dataplane

import (
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
			if got, _ := c.nowMs(); got != time.Now().UnixMilli() {
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
			if got, _ := c.nowMs(); got != time.Now().Add(-step).UnixMilli() {
				t.Errorf("before the anchor: %d", got)
			}
			time.Sleep(time.Millisecond)
			if got, _ := c.nowMs(); got != time.Now().UnixMilli() {
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
		now := time.Now().UnixMilli()
		if _, ok := c.near(now, time.Minute); !ok {
			t.Error("the very time is far")
		}
		for _, off := range []time.Duration{-time.Minute - time.Millisecond, time.Minute + time.Millisecond} {
			if skew, ok := c.near(now+off.Milliseconds(), time.Minute); ok || skew != off.Abs() {
				t.Errorf("%v away is near: %v", off, skew)
			}
		}
	})
}

func TestClockOfTheConfiguration(t *testing.T) {
	at := time.UnixMilli(1_735_000_000_123)
	c := newWallClock(func() time.Time { return at })
	if got, _ := c.nowMs(); got != at.UnixMilli() {
		t.Errorf("%d", got)
	}
}
