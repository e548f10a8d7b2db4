package clock

import (
	"testing"
	"time"
)

// turned returns a clock over a source that the test sets.
func turned() (c *Clock, pass func(time.Duration), told func() int64) {
	start := time.UnixMilli(1_735_000_000_000)
	now := start
	c = New(func() time.Time { return now })
	return c, func(d time.Duration) { now = now.Add(d) }, func() int64 { return c.ReadMs() - start.UnixMilli() }
}

// A clock that is ahead of the last reading is followed at once. If it is behind by at most 1 s, time stands still
// until it has caught up. If it is further behind, it is followed at once.
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

// Several small corrections add up to no step back: readings never become earlier.
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
	pass(800 * time.Millisecond) // 1.8 s by its own clock, 1.7 by the followed clock
	if got := told(); got != 1_700 {
		t.Errorf("%d ms when the followed clock shows 1,700", got)
	}
}

// A step back that was followed at once is not undone when time comes near to the readings from before it.
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

// A step back of more than 1 s is followed in the call of Follow. So a reading that comes much later finds no time to
// stand still for.
func TestAStepOfAFollowedClockIsTakenBeforeTimeIsRead(t *testing.T) {
	clock, pass, told := turned()
	clock.Follow(0)
	clock.Follow(-time.Minute)
	pass(59_500 * time.Millisecond)
	if got := told(); got != -500 {
		t.Errorf("%d ms when the followed clock shows -500", got)
	}
}

// Without a clock to follow, time is the clock's own. Own keeps returning that afterwards.
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

// The first time of the clock to follow is used at once, either way, because time was another clock's until then.
// Otherwise a node whose own clock is two seconds ahead would number its cells differently from other nodes for two
// seconds.
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
		pass(-time.Millisecond) // the system's clock goes back: readings of the followed clock stay
		if got := told(); got != want {
			t.Errorf("%v ahead, after a step back: %d ms, want %d", ahead, got, want)
		}
	}
}
