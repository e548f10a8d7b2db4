package clock

import (
	"testing"
	"time"
)

// turned is a clock over a source that the test sets.
func turned() (c *Clock, pass func(time.Duration), told func() int64) {
	start := time.UnixMilli(1_735_000_000_000)
	now := start
	c = New(func() time.Time { return now })
	return c, func(d time.Duration) { now = now.Add(d) }, func() int64 { return c.ReadMs() - start.UnixMilli() }
}

// A clock that is ahead of what was told is followed at once; one that is behind by no more than
// 1 s lets time stand still until it has caught up; one that is further behind is followed at once.
func TestAFollowedClockDoesNotGoBackALittle(t *testing.T) {
	for name, c := range map[string]struct {
		ahead                  time.Duration
		told, aSecondOn, later int64 // ms; later is 10 s after that
	}{
		"ahead":           {time.Hour, 3_600_000, 3_601_000, 3_611_000},
		"the same":        {0, 0, 1_000, 11_000},
		"a little behind": {-400 * time.Millisecond, 0, 600, 10_600},
		"1 s behind":      {-time.Second, 0, 0, 10_000},
		"far behind":      {-time.Second - time.Millisecond, -1_001, -1, 9_999},
	} {
		clock, pass, told := turned()
		clock.Follow(0)
		clock.Follow(c.ahead)
		if got := told(); got != c.told {
			t.Errorf("%s: %d ms, want %d", name, got, c.told)
		}
		pass(time.Second)
		if got := told(); got != c.aSecondOn {
			t.Errorf("%s, a second on: %d ms, want %d", name, got, c.aSecondOn)
		}
		pass(10 * time.Second)
		if got := told(); got != c.later {
			t.Errorf("%s, 11 s on: %d ms, want %d", name, got, c.later)
		}
	}
}

// Small corrections one after the other add up to no step back: what was told once is the least that is told.
func TestCorrectionsOfAFollowedClockAddUp(t *testing.T) {
	clock, pass, told := turned()
	clock.Follow(600 * time.Millisecond)
	pass(time.Second)
	most := told()
	for _, ahead := range []time.Duration{300 * time.Millisecond, 0, 200 * time.Millisecond, -100 * time.Millisecond} {
		clock.Follow(ahead)
		if got := told(); got != most {
			t.Errorf("%v ahead: %d ms after %d", ahead, got, most)
		}
	}
	pass(800 * time.Millisecond) // 1.8 s by its own clock, 1.7 by the one that it follows
	if got := told(); got != 1_700 {
		t.Errorf("%d ms when the followed clock shows 1,700", got)
	}
}

// A step back that was taken at once is not undone when time comes near to what was told before it.
func TestAStepOfAFollowedClockIsNotUndone(t *testing.T) {
	clock, pass, told := turned()
	clock.Follow(0)
	clock.Follow(-time.Minute)
	for range 20 {
		before := told()
		pass(5 * time.Second)
		if got := told(); got != before+5_000 {
			t.Fatalf("%d ms, 5 s after %d", got, before)
		}
	}
}

// A step back of more than 1 s is taken when it is heard of: a reading that comes much later finds no time to stand
// still for.
func TestAStepOfAFollowedClockIsTakenBeforeTimeIsRead(t *testing.T) {
	clock, pass, told := turned()
	clock.Follow(0)
	clock.Follow(-time.Minute)
	pass(59_500 * time.Millisecond)
	if got := told(); got != -500 {
		t.Errorf("%d ms when the followed clock shows -500", got)
	}
}

// Before there is a clock to follow time is the clock's own; Own stays that afterwards.
func TestOwnIsNotTheFollowedTime(t *testing.T) {
	clock, pass, told := turned()
	pass(time.Second)
	if got := told(); got != 1_000 {
		t.Errorf("%d ms on its own", got)
	}
	own := clock.Own()
	clock.Follow(time.Hour)
	if got := clock.Own(); !got.Equal(own) {
		t.Errorf("its own time is %v, and was %v", got, own)
	}
}

// The first word of the clock to follow is taken at once, either way: until then time was another clock's. A node
// whose own clock is two seconds ahead would else number its cells apart from others' for two seconds.
func TestTheFirstWordOfAClockIsTakenAtOnce(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Minute, -2 * time.Second, -time.Millisecond, 2 * time.Second, time.Hour} {
		clock, pass, told := turned()
		pass(time.Second)
		if got := told(); got != 1_000 {
			t.Fatalf("%d ms on its own", got)
		}
		clock.Follow(ahead)
		want := 1_000 + ahead.Milliseconds()
		if got := told(); got != want {
			t.Errorf("%v ahead: %d ms, want %d", ahead, got, want)
		}
		pass(-time.Millisecond) // the system's clock goes back: what the followed one has told stands
		if got := told(); got != want {
			t.Errorf("%v ahead, after a step back: %d ms, want %d", ahead, got, want)
		}
	}
}
