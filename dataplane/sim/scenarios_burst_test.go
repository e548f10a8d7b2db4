package sim

import (
	"fmt"
	"testing"
	"time"
)

// A burst that lands on all nodes at once is admitted up to about the limit by default, which is wait: at most 1.1
// times, at any limit and cost. With flush the only bound is the cost that nodes can decide before they receive each
// other's counts. If all requests come at the same moment, that is all of it; if they take a second, it is a few costs.
//
//weir:unraced
func TestBurstsByNodeShare(t *testing.T) {
	for _, c := range []struct {
		scenario, nodeShare string
		least, most         float64
		mostOfTen           float64 // if the limit has room for two costs for each node
	}{
		{"burst", "flush", 5, 5, 5},
		{"burst", "", 1, 1.1, 1},
		{"burst", "wait", 1, 1.1, 1},
		{"surge", "flush", 1, 1.1, 1.6},
		{"surge", "", 1, 1.1, 1},
		{"surge", "wait", 1, 1.1, 1},
	} {
		// One key of each kind has its burst; in the surges, there can be two.
		r := simulate(t, lookup(t, c.scenario), Options{Seed: 1, Duration: 7100 * time.Millisecond, NodeShare: c.nodeShare})
		for _, g := range r.Groups {
			most := c.most
			if g.Name == "limit 10, cost 1" {
				most = c.mostOfTen
			}
			if g.KeysAtLimit == 0 || g.AdmittedOverLimit < c.least || g.AdmittedOverLimit > most {
				t.Errorf("%s, %s, %s: %v of the limit, want %v to %v", c.scenario, c.nodeShare, g.Name, g.AdmittedOverLimit,
					c.least, most)
			}
		}
	}
}

// "No decision waits longer than ReadTimeout", whatever Redis does. If Redis answers in time, decisions wait for its
// answers: with flush for one answer, by default for several, because claims of the same key take turns.
//
//weir:unraced
func TestWaitsAreMeasured(t *testing.T) {
	const readTimeoutMs = 50
	for _, c := range []struct {
		options     Options
		least, most float64 // of the longest wait, in milliseconds
	}{
		{Options{NodeShare: "flush"}, 1, 1.1},
		{Options{}, 1, 15},
		{Options{NodeShare: "flush", RedisDelay: 10 * time.Millisecond}, 10, 10.1},
		{Options{RedisDelay: time.Second}, readTimeoutMs, readTimeoutMs},
		{Options{RedisGone: true}, 0, readTimeoutMs},
	} {
		c.options.Seed, c.options.Duration = 1, 7100*time.Millisecond
		r := simulate(t, lookup(t, "burst"), c.options)
		w := r.WaitMs
		if w.Max < c.least || w.Max > c.most || w.P50 > w.P99 || w.P99 > w.P999 || w.P999 > w.Max || w.Share < 0 || w.Share > 1 {
			t.Errorf("%+v: %+v, want %v to %v", c.options, w, c.least, c.most)
		}
		if degraded := r.Simulated.Degraded > 0; degraded != (c.options.RedisGone || c.options.RedisDelay == time.Second) {
			t.Errorf("%+v: %d decisions went by the outage policy", c.options, r.Simulated.Degraded)
		}
		for _, v := range r.Violations {
			t.Errorf("%+v: %s, first %s", c.options, v.Promise, v.First)
		}
	}
}

// Two nodes of a region that are offered 1.6 times a limit of 500 a second, and replay every 0.2 s, admit the limit,
// because Redis decides near the limit. At no moment do they admit more than 1 % beyond it.
//
//weir:unraced
func TestTwoNodesShareALimit(t *testing.T) {
	for seed := uint64(1); seed <= 8; seed++ {
		r := simulate(t, lookup(t, "twonodes"), Options{Seed: seed, Duration: 12 * time.Second})
		if v := r.AdmittedRateOverLimit; v < 0.97 || v > 1.01 || r.AdmittedOverLimit > 1.01 {
			t.Errorf("seed %d: admitted %v of the limit, at most %v in a window", seed, v, r.AdmittedOverLimit)
		}
	}
}

// Of a flash crowd on one key from n regions, 1 + delay * rate * (n-1)/n of the limit is admitted, at most n. A region
// receives no count of the others until the delay has passed, which is two intervals and the time that the stores take.
//
//weir:unraced
func TestAFlashCrowdIsAdmittedWhatComesWithinTheDelay(t *testing.T) {
	const delay = 0.7 // seconds: twice 0.2, and MySQL's 0.06 to 0.12 twice, rounded up
	r := simulate(t, lookup(t, "flash"), Options{Seed: 1, Duration: 6 * time.Second})
	for _, rate := range flashRates {
		name := fmt.Sprintf("%gx the limit a second", rate)
		most := min(flashRegions, 1+delay*rate*(flashRegions-1)/flashRegions)
		found := false
		for _, g := range r.Groups {
			found = found || g.Name == name
			if g.Name == name && (g.KeysAtLimit == 0 || g.AdmittedOverLimit > most) {
				t.Errorf("%s: %d keys at their limits, %v is admitted, want at most %v", name, g.KeysAtLimit, g.AdmittedOverLimit, most)
			}
		}
		if !found {
			t.Errorf("no group %q", name)
		}
	}
}
