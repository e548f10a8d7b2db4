package sim

import (
	"testing"
	"time"
)

// Every scenario keeps every promise with the default settings, in a short form. Only the scenarios with wiped origins
// or killed nodes lose cost. A burst on several nodes is admitted once.
func TestScenariosKeepPromises(t *testing.T) {
	short := map[string]time.Duration{
		"rfc": time.Second, "rfc10x": time.Second, "tiers": time.Second, "tiers-counting": time.Second,
		"replay-1ms": time.Second, "replay-10ms": time.Second, "replay-50ms": time.Second,
		"burst": 8 * time.Second, "surge": 8 * time.Second,
		"diurnal": 30 * time.Second, "rotation": 8 * time.Second, "spread": 8 * time.Second, "short": 3 * time.Second, "hop": 8 * time.Second, "silent": 8 * time.Second,
		"edges": time.Minute, "zipf10": 3 * time.Second, "relay-rfc": 5 * time.Second, "relay-rfc-330": time.Second, "relay-pair": 2 * time.Second,
		"relay-scale1": 2 * time.Second, "relay-scale10": time.Second, "relay-scale100": time.Second,
	}
	smaller := map[string]Scenario{ // of the same kind, with fewer keys
		"rfc10x": rfcScenario("rfc10x", 1, 5, time.Minute), "tiers": tiersScenario("tiers", tiersKeys/25, 0), "tiers-counting": tiersScenario("tiers-counting", tiersKeys/25, 1),
		"relay-rfc": relayRFCScenario("relay-rfc", relayKeys/10, 1), "relay-rfc-330": relayRFCScenario("relay-rfc-330", relayKeys/10, 10),
		"relay-pair":   relayPairScenario(4_000),
		"relay-scale1": relayScaleScenario("relay-scale1", 0.1), "relay-scale10": relayScaleScenario("relay-scale10", 0.1), "relay-scale100": relayScaleScenario("relay-scale100", 0.1),
	}
	most := map[string]float64{"burst": 1.1, "surge": 1.1} // of the limit
	for _, s := range Scenarios() {
		if small, ok := smaller[s.Name]; ok {
			s = small
		}
		t.Run(s.Name, func(t *testing.T) {
			d, ok := short[s.Name]
			if !ok {
				d = 15 * time.Second
			}
			r := simulate(t, s, Options{Seed: 3, Duration: d})
			for _, v := range r.Violations {
				t.Errorf("%s, %d times, first %s", v.Promise, v.Times, v.First)
			}
			if bound, ok := most[s.Name]; ok && (r.AdmittedOverLimit < 1 || r.AdmittedOverLimit > bound) {
				t.Errorf("%v of the limit is admitted, want 1 to %v", r.AdmittedOverLimit, bound)
			}
			if r.Simulated.Allowed == 0 || r.Simulated.AdmittedCost > r.Simulated.OfferedCost {
				t.Errorf("%+v", r.Simulated)
			}
			if r.LostCost > r.DroppedCost && !s.LosesCost {
				t.Errorf("lost cost %d, dropped %d", r.LostCost, r.DroppedCost)
			}
		})
	}
}

// A node that is killed loses at most the cost that it accepted within a replay tick and a round trip: of 200 requests
// a minute on 100 keys, each of six nodes gets 6 in 100 ms.
//
//weir:unraced
func TestKilledNodesLoseATick(t *testing.T) {
	r := simulate(t, lookup(t, "crash"), Options{Seed: 1, Duration: time.Minute})
	const kills, perTick = 5, 6
	if most := int64(2 * kills * perTick); r.LostCost == 0 || r.LostCost > most {
		t.Errorf("lost cost %d, want some, and at most %d", r.LostCost, most)
	}
}

// Cost that is sent again after a lost reply is counted once, and nothing is lost.
//
//weir:unraced
func TestLostRepliesAreCountedOnce(t *testing.T) {
	r := simulate(t, lookup(t, "lossy"), Options{Seed: 1, Duration: time.Minute})
	if r.LostCost != 0 || r.DoubledCost > r.AmbiguousCost {
		t.Errorf("lost %d, doubled %d of %d", r.LostCost, r.DoubledCost, r.AmbiguousCost)
	}
}

// A caller at the limit stays denied while other identifiers flood the table.
//
//weir:unraced
func TestAFloodClearsNoCounts(t *testing.T) {
	r := simulate(t, lookup(t, "rotation"), Options{Seed: 1, Duration: 30 * time.Second})
	for _, g := range r.Groups {
		if g.Name == "blocked callers" && (g.KeysAtLimit == 0 || g.AdmittedOverLimit > 1.1) {
			t.Errorf("%+v", g)
		}
	}
}

// A caller who spreads evenly over all regions is admitted little more than the limit: the cost of one convergence
// delay.
//
//weir:unraced
func TestSpread(t *testing.T) {
	r := simulate(t, lookup(t, "spread"), Options{Seed: 1, Duration: 30 * time.Second})
	if got := r.AdmittedOverLimit; got > 1.15 {
		t.Errorf("%v times the limit passes", got)
	}
	if all, hot := r.ConvergenceDelayMs, r.ConvergenceDelayHotMs; hot.P50 > 500 || all.P99 > 1000 {
		t.Errorf("a cost is known after %+v, past 80 %% of the limit after %+v", all, hot)
	}
}

// With callers by a power law, and three in ten keys shared by all ten regions, costs arrive within a second.
//
//weir:unraced
func TestPowerLawOverTenRegions(t *testing.T) {
	r := simulate(t, lookup(t, "zipf10"), Options{Seed: 1, Duration: 10 * time.Second})
	if r.ConvergenceDelayMs.P99 > 1000 {
		t.Errorf("%+v", r.ConvergenceDelayMs)
	}
}

// With real limiters, relays and origins, the cost that a region has admitted is not admitted again in another region.
//
//weir:unraced
func TestRegionsShareALimit(t *testing.T) {
	for name, most := range map[string]float64{"hop": 1.02, "silent": 1, "late": 1.01} {
		r := simulate(t, lookup(t, name), Options{Seed: 1, Duration: 30 * time.Second})
		if r.AdmittedOverLimit > most || r.Simulated.Denied == 0 || r.LostCost+r.DoubledCost > 0 {
			t.Errorf("%s: admitted %v of the limit, %d denied, lost %d, doubled %d", name, r.AdmittedOverLimit, r.Simulated.Denied, r.LostCost, r.DoubledCost)
		}
	}
}

// Windows of 5 s at 1.5 times their limits over two regions: at most 1.1 times the limit is admitted, steadily.
//
//weir:unraced
func TestRegionsShareShortWindows(t *testing.T) {
	r := simulate(t, lookup(t, "short"), Options{Seed: 1, Duration: 18 * time.Second})
	for _, g := range r.Groups {
		if g.KeysAtLimit != g.Keys || g.AdmittedRateOverLimit > 1.1 || g.Name == "windows of 5s" && g.AdmittedOverLimitMean > 1.1 {
			t.Errorf("%+v", g)
		}
	}
}

// Two nodes whose clocks are 2 s apart, with windows of 6 s, admit at most one request too many.
//
//weir:unraced
func TestNodesWithWrongClocksAgree(t *testing.T) {
	r := simulate(t, lookup(t, "skew"), Options{Seed: 1, Duration: 80 * time.Second})
	for _, g := range r.Groups {
		if g.Name == "in one region, 60 in 6 s" && g.AdmittedOverLimit > 61.0/60+0.001 {
			t.Errorf("admitted %v of the limit", g.AdmittedOverLimit)
		}
	}
}

// A wiped origin gets all accepted cost back, once.
//
//weir:unraced
func TestAWipedOriginIsRestored(t *testing.T) {
	r := simulate(t, lookup(t, "wipe"), Options{Seed: 1})
	if r.LostCost != 0 || r.DoubledCost != 0 {
		t.Errorf("lost %d, doubled %d", r.LostCost, r.DoubledCost)
	}
}
