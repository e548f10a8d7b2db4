package level

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/shared/window"
)

// Behaviour 1 is package window's TestSequence. Behaviour 2: "Weighted count (prev, cur,
// t, W)".
func TestWeightedCount(t *testing.T) {
	for _, c := range []struct {
		prev, cur, t int64
		want         float64
	}{
		{100, 0, 60, 100}, {100, 0, 90, 50}, {100, 50, 90, 100}, {0, 100, 90, 100}, {0, 0, 90, 0}, {100, 100, 60, 200},
	} {
		if got := OfCells(c.cur, c.prev, window.Uncovered(c.t, 60), 60).Float(60); got != c.want {
			t.Errorf("(%d, %d, %d, 60) = %v, want %v", c.prev, c.cur, c.t, got, c.want)
		}
	}
}

// Behaviour 3: "Level (known, dt, pending, rate)", with a window of a second and its rate
// as the limit.
func TestLeakyLevel(t *testing.T) {
	for _, c := range []struct{ known, dt, pending, rate, want int64 }{
		{100, 0, 0, 10, 100}, {100, 10, 0, 10, 0}, {100, 5, 0, 10, 50}, {100, 0, 50, 10, 150},
		{100, 5, 30, 10, 80}, {10, 20, 0, 10, 0}, {10, 20, 5, 10, 5},
	} {
		got := Leaky(Mul(c.known, 1000), c.dt*1000, c.pending, c.rate)
		if got.Float(1000) != float64(c.want) || got.Whole(1000) != c.want {
			t.Errorf("(%d, %d, %d, %d) = %v, %d, want %d", c.known, c.dt, c.pending, c.rate, got.Float(1000), got.Whole(1000), c.want)
		}
	}
}

// Behaviour 4: "0, .05, .09 → idle; .1, .25, .49 → low; .5, .75, .79 → normal; .8, .95,
// 1, 1.5 → hot. Left-closed."
func TestTiers(t *testing.T) {
	for want, pressures := range map[Tier][]float64{
		Idle: {0, .05, .09}, Low: {.1, .25, .49}, Normal: {.5, .75, .79}, Hot: {.8, .95, 1, 1.5},
	} {
		for _, p := range pressures {
			if got := TierOf(p*100, 100); got != want {
				t.Errorf("pressure %v is %v, want %v", p, got, want)
			}
		}
	}
	if got := TierOf(0, 0); got != Idle {
		t.Errorf("nothing of a limit of 0 is %v", got)
	}
}

// Behaviour 5: "Interval at S = 15 s: low 60 s, normal 15 s, hot 7.5 s; idle: none below
// the floor, 60 s above it."
func TestIntervals(t *testing.T) {
	for tier, wantMs := range map[Tier]int64{Idle: 60_000, Low: 60_000, Normal: 15_000, Hot: 7_500} {
		if got := tier.IntervalMs(15_000); got != wantMs {
			t.Errorf("%v: %d ms, want %d", tier, got, wantMs)
		}
		if tier.Overdue(1_000_000+wantMs-1, 1_000_000, 15_000) || !tier.Overdue(1_000_000+wantMs, 1_000_000, 15_000) {
			t.Errorf("%v is not overdue at exactly %d ms", tier, wantMs)
		}
		if got := tier.Costly(1_000_000); got != (tier == Idle) {
			t.Errorf("%v has a floor: %v", tier, got)
		}
	}
}

// Behaviour 13: "effective floor = min(floor, max(L/100, 1)): (floor 5, cost 1) not asked,
// (5,5) asked; (10, L 100, 1) asked; (10, L 500, 4) not, 5 asked."
func TestFloor(t *testing.T) {
	for _, c := range []struct {
		floor, limit, cost int64
		asked              bool
	}{
		{5, 10_000, 1, false}, {5, 10_000, 5, true}, {10, 100, 1, true}, {10, 500, 4, false}, {10, 500, 5, true}, {10, 10, 1, true},
	} {
		if got := c.cost >= EffectiveFloor(c.floor, c.limit); got != c.asked {
			t.Errorf("%+v: asked %v", c, got)
		}
	}
}

// The level's arithmetic agrees with rational numbers, for both drains and both tests: whether a cost fits, how much
// remains, and when it will fit, to the millisecond.
func TestLevelsAgreeWithRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := func(name string) int64 {
			return rapid.OneOf(rapid.Int64Range(0, 50), rapid.Int64Range(0, window.LimitMax)).Draw(t, name)
		}
		durationMs := rapid.SampledFrom([]int64{1000, 60_000, 86_400_000, window.DurationMax.Milliseconds()}).Draw(t, "duration")
		limit, cost, fixed, known := count("limit"), count("cost"), count("fixed"), count("known")
		below := rapid.Bool().Draw(t, "below")
		elapsed := rapid.Int64Range(0, durationMs).Draw(t, "elapsed")
		rest := func(elapsedMs int64) *big.Rat { // of the level at the sync, after so long
			r := new(big.Rat).Sub(big.NewRat(known, 1), new(big.Rat).Mul(big.NewRat(limit, durationMs), big.NewRat(elapsedMs, 1)))
			if r.Sign() < 0 {
				r.SetInt64(0)
			}
			return r
		}
		fits := func(elapsedMs int64) bool {
			sum := new(big.Rat).Add(rest(elapsedMs), big.NewRat(fixed, 1))
			switch cmp := sum.Add(sum, big.NewRat(cost, 1)).Cmp(big.NewRat(limit, 1)); {
			case below:
				return cmp < 0
			default:
				return cmp <= 0
			}
		}
		v := Leaky(Mul(known, durationMs), elapsed, fixed, limit)
		if got := v.Fits(cost, limit, durationMs, below); got != fits(elapsed) {
			t.Fatalf("fits: %v, want %v", got, !got)
		}
		ms, ok := v.LeaksAway(cost, limit, durationMs, below)
		if ms == RetryMsMax {
			return // more than a time.Duration holds
		}
		drains := limit > 0 || fits(elapsed)
		if possible := drains && (cost < limit || !below && cost == limit); ok != possible {
			t.Fatalf("passes some time: %v, want %v", ok, possible)
		}
		if room := limit - fixed - cost; ok && (room > 0 || room == 0 && !below) {
			if !fits(elapsed+ms) || ms > 0 && fits(elapsed+ms-1) {
				t.Fatalf("after %d ms: %v, a millisecond before: %v", ms, fits(elapsed+ms), fits(elapsed+ms-1))
			}
		}
	})
}

// The retry time of a limit that must not be reached is exact: a request passes at that moment and not before.
func TestPassingBelowALimitIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := func(name string, most int64) int64 {
			return rapid.OneOf(rapid.Int64Range(0, 50), rapid.Int64Range(0, most)).Draw(t, name)
		}
		durationMs := rapid.SampledFrom([]int64{1000, 60_000, 86_400_000}).Draw(t, "duration")
		current, previous := count("current", window.LimitMax), count("previous", window.LimitMax)
		limit, cost := count("limit", window.LimitMax), count("cost", window.LimitMax)
		tMs := 7*durationMs + rapid.Int64Range(0, durationMs-1).Draw(t, "t")
		fits := func(atMs int64) bool {
			switch uncovered := window.Uncovered(atMs, durationMs); window.Sequence(atMs, durationMs) {
			case 7:
				return OfCells(current, previous, uncovered, durationMs).Fits(cost, limit, durationMs, true)
			case 8:
				return OfCells(0, current, uncovered, durationMs).Fits(cost, limit, durationMs, true)
			}
			return cost < limit
		}
		at, ok := window.PassesAfter(window.Start(7, durationMs), current, previous, cost, Most(limit, true), tMs, durationMs)
		if ok != (cost < limit) {
			t.Fatalf("passes some time: %v", ok)
		}
		if ok && (!fits(at) || at > tMs && fits(at-1)) {
			t.Fatalf("at %d: %v, a millisecond before: %v", at-tMs, fits(at), fits(at-1))
		}
	})
}

// A step is a fiftieth of the limit, or the floor if that is more, and at least 1.
func TestSteps(t *testing.T) {
	for _, c := range []struct{ floor, limit, want int64 }{
		{10, 1000, 20}, {10, 100, 2}, {0, 10, 1}, {10, 60, 1}, {100, 10_000, 200}, {10, 0, 1},
	} {
		if got := Step(c.floor, c.limit); got != c.want {
			t.Errorf("floor %d, limit %d: %d, want %d", c.floor, c.limit, got, c.want)
		}
	}
}

// At a time a little before the last sync, nothing has drained.
func TestTimeBeforeASyncDrainsNothing(t *testing.T) {
	if got := Leaky(Mul(100, 1000), -5, 3, 10); got != Leaky(Mul(100, 1000), 0, 3, 10) {
		t.Errorf("100 and 3 are %v five milliseconds before", got.Float(1000))
	}
}

// If a limit must not be reached, a level that would reach it exactly does not fit, and one unit less remains.
func TestALimitThatMustNotBeReached(t *testing.T) {
	for _, level := range []Level{Leaky(Mul(7, 1000), 0, 0, 10), Local(7)} {
		for _, below := range []bool{false, true} {
			left := int64(3)
			if below {
				left = 2
			}
			if got := level.Remaining(10, 1000, below); got != left {
				t.Errorf("%v of 10, below %v: %d remain, want %d", level.Float(1000), below, got, left)
			}
			if !level.Fits(left, 10, 1000, below) || level.Fits(left+1, 10, 1000, below) {
				t.Errorf("%v of 10, below %v: %d fit and %d do not, want otherwise", level.Float(1000), below, left, left+1)
			}
		}
	}
}
