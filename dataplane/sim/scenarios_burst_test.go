package sim

import (
	"fmt"
	"testing"
	"time"
)

// A burst that lands on all nodes at once is admitted up to about the limit with wait:
// at most 1.2 times, at any limit and cost. With flush it is bounded by nothing but what
// nodes can decide before they hear of each other, which in a moment is everything; once
// it takes a second, by a few costs.
//
//weir:unraced
func TestBurstsByNodeShare(t *testing.T) {
	for _, c := range []struct {
		scenario    string
		least, most float64
		mostOfTen   float64 // where a limit has room for two costs a node
	}{
		{"burst", 5, 5, 5},
		{"burst-wait", 1, 1.2, 1},
		{"surge", 1, 1.1, 1.6},
		{"surge-wait", 1, 1.2, 1},
	} {
		// One key of each kind has its turn, in the surges two may.
		r := simulate(t, lookup(t, c.scenario), Options{Seed: 1, Duration: 7100 * time.Millisecond})
		for _, g := range r.Groups {
			most := c.most
			if g.Name == "limit 10, cost 1" {
				most = c.mostOfTen
			}
			if g.KeysAtLimit == 0 || g.AdmittedOverLimit < c.least || g.AdmittedOverLimit > most {
				t.Errorf("%s, %s: %v of the limit, want %v to %v", c.scenario, g.Name, g.AdmittedOverLimit, c.least, most)
			}
		}
	}
}

// Two nodes of a region that are offered 1.6 times a limit of 500 a second, and replay
// every 0.2 s, admit the limit: flushes tell each other in time. Not even for a moment do
// they admit more than 3 % beyond it.
//
//weir:unraced
func TestTwoNodesShareALimit(t *testing.T) {
	for seed := uint64(1); seed <= 8; seed++ {
		r := simulate(t, lookup(t, "twonodes"), Options{Seed: seed, Duration: 12 * time.Second})
		if v := r.AdmittedRateOverLimit; v < 0.97 || v > 1.03 || r.AdmittedOverLimit > 1.03 {
			t.Errorf("seed %d: admitted %v of the limit, at most %v in a window", seed, v, r.AdmittedOverLimit)
		}
	}
}

// A flash crowd on one key from n regions is admitted 1 + delay * rate * (n-1)/n of the limit, at most n: a region
// knows of none of the others until the delay is over, which is two intervals and the time that the stores take.
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
