package sequential

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// poisson draws a count of a mean.
func poisson(random *rand.Rand, mean float64) (n float64) {
	for left := mean; ; n++ {
		if left += math.Log(1 - random.Float64()); left < 0 {
			return n
		}
	}
}

// alarms returns how many of runs are called worse at any of many looks, at an error rate of 0.05. A run has a baseline
// and slots, each of the exposure 1; clump events come together.
func alarms(runs, slots int, before, since, clump float64, bound Bound) (worse int) {
	random := rand.New(rand.NewPCG(1, 2))
	draw := func(mean float64) float64 { return clump * poisson(random, mean/clump) }
	for range runs {
		baseline := Count{draw(10 * before), 10}
		var window []Count
		var past Spread
		for slot := range slots {
			if len(window) == 5 {
				past.Add(window[0])
				window = window[1:]
			}
			window = append(window, Count{draw(since), 1})
			if Exceeds(baseline, window, slot+2-len(window), past, bound, 1).Log >= math.Log(20) {
				worse++
				break
			}
		}
	}
	return worse
}

// "Over all times at which it is called, the probability is at most α": at the very bound, for rare and frequent
// events, alone and in clumps, looked at 500 times.
func TestRatesThatKeepTheirBoundAreCalledWorseAtMostAtTheErrorRate(t *testing.T) {
	for name, c := range map[string]struct {
		before, since, clump float64
		bound                Bound
	}{
		"rare, twice the baseline":          {0.05, 0.1, 1, Bound{2, 0}},
		"frequent, twice the baseline":      {20, 40, 1, Bound{2, 0}},
		"rare, at a fixed bound":            {0.1, 0.3, 1, Bound{0, 0.3}},
		"frequent, at a fixed bound":        {30, 30, 1, Bound{0, 30}},
		"more by a shift":                   {2, 3, 1, Bound{1, 1}},
		"no more than before":               {1, 1, 1, Bound{1, 0}},
		"in clumps of ten, twice as often":  {10, 20, 10, Bound{2, 0}},
		"in rare clumps, at a fixed bound":  {2, 2, 10, Bound{0, 2}},
		"none before, none allowed but few": {0, 0.2, 1, Bound{0, 0.2}},
	} {
		const runs = 400
		if worse := alarms(runs, 500, c.before, c.since, c.clump, c.bound); worse > runs/20+10 { // two standard deviations
			t.Errorf("%s: %d of %d runs are called worse, at an error rate of 0.05", name, worse, runs)
		}
	}
}

// Rates clearly beyond their bound are soon called worse, with few events as with many.
func TestRatesBeyondTheirBoundAreCalledWorse(t *testing.T) {
	for name, c := range map[string]struct {
		before, since float64
		slots         int
		bound         Bound
	}{
		"a bound of twice, ten times as often": {3, 30, 4, Bound{2, 0}},
		"a fixed bound, six times as often":    {0, 6, 5, Bound{0, 1}},
		"a shift":                              {20, 60, 4, Bound{1, 10}},
	} {
		if worse := alarms(100, c.slots, c.before, c.since, 1, c.bound); worse < 95 {
			t.Errorf("%s: %d of 100 runs are called worse within %d slots", name, worse, c.slots)
		}
	}
}

// A burst, however large, is a single event.
func TestABurstIsOneEvent(t *testing.T) {
	for at := range 5 {
		window := []Count{{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1}}
		window[at].Events = 1000
		for n := 1; n <= len(window); n++ {
			if got := Exceeds(Count{0, 10}, window[:n], 1, Spread{}, Bound{0, 1}, 1); got.Log > math.Log(20) {
				t.Errorf("a burst in slot %d of %d: evidence %v", at, n, got)
			}
		}
	}
}

// More events are more evidence, and a wider bound is less.
func TestEvidenceGrowsWithEvents(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		events := func(name string) float64 { return float64(rapid.IntRange(0, 1000).Draw(rt, name)) }
		before := Count{events("before"), 10}
		each := events("since")
		bound := Bound{float64(rapid.IntRange(0, 3).Draw(rt, "times")), float64(rapid.IntRange(0, 50).Draw(rt, "plus"))}
		of := func(each float64, bound Bound) float64 {
			slot := Count{each, 1}
			log := Exceeds(before, []Count{slot, slot, slot}, 1, Spread{}, bound, 1).Log
			if math.IsNaN(log) || log < 0 {
				rt.Fatalf("evidence %v", log)
			}
			return log
		}
		is := of(each, bound)
		if more := of(each+1, bound); more < is-1e-9 {
			rt.Errorf("%v with %v events a slot, %v with one more", is, each, more)
		}
		if wider := of(each, Bound{bound.Times, bound.Plus + 1}); wider > is+1e-9 {
			rt.Errorf("%v at %+v, %v at one more", is, bound, wider)
		}
	})
}
