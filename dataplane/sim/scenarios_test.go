package sim

import (
	"testing"
	"time"
)

// Every scenario keeps every promise, in a short form. What is wiped or killed loses
// cost, and only that.
func TestScenariosKeepPromises(t *testing.T) {
	short := map[string]time.Duration{"rfc": 3 * time.Second, "rfc10x": time.Second, "burst": 0, "diurnal": time.Minute, "rotation": 10 * time.Second}
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			d, ok := short[s.Name]
			if !ok {
				d = 20 * time.Second
			}
			r := simulate(t, s, Options{Seed: 3, Duration: d})
			for _, v := range r.Violations {
				t.Errorf("%s, %d times, first %s", v.Promise, v.Times, v.First)
			}
			if r.Simulated.Allowed == 0 || r.Simulated.AdmittedCost > r.Simulated.OfferedCost {
				t.Errorf("%+v", r.Simulated)
			}
			if r.LostCost > 0 && !s.LosesCost {
				t.Errorf("lost cost %d", r.LostCost)
			}
		})
	}
}

// "limit 500/s, offered 800/s, replay 0.2 s -> admitted within 0.97-1.03 of the limit".
func TestTwoNodesShareALimit(t *testing.T) {
	r := simulate(t, lookup(t, "twonodes"), Options{Seed: 1})
	if v := r.AdmittedRateOverLimit; v < 0.97 || v > 1.03 {
		t.Errorf("admitted %v of the limit", v)
	}
}

// A node that is killed loses at most what it accepted within a replay tick and a round
// trip: of 200 requests a minute on 100 keys, one of six nodes gets 6 in 100 ms.
func TestKilledNodesLoseATick(t *testing.T) {
	r := simulate(t, lookup(t, "crash"), Options{Seed: 1, Duration: time.Minute})
	const kills, perTick = 5, 6
	if most := int64(2 * kills * perTick); r.LostCost == 0 || r.LostCost > most {
		t.Errorf("lost cost %d, want some, and at most %d", r.LostCost, most)
	}
}

// A lost reply is counted at most twice, and nothing is lost.
func TestLostRepliesErrOnTheSafeSide(t *testing.T) {
	r := simulate(t, lookup(t, "lossy"), Options{Seed: 1, Duration: time.Minute})
	if r.LostCost != 0 || r.DoubledCost == 0 || r.DoubledCost > r.AmbiguousCost {
		t.Errorf("lost %d, doubled %d of %d", r.LostCost, r.DoubledCost, r.AmbiguousCost)
	}
}

// A caller at the limit stays denied while others' identifiers flood the table.
func TestAFloodWashesNobodyClean(t *testing.T) {
	r := simulate(t, lookup(t, "rotation"), Options{Seed: 1, Duration: 30 * time.Second})
	for _, g := range r.Groups {
		if g.Name == "blocked callers" && (g.KeysAtLimit == 0 || g.AdmittedOverLimit > 1.1) {
			t.Errorf("%+v", g)
		}
	}
}

// What regions can take unseen grows with the floor: the free zone.
func TestSpreadGrowsWithTheFloor(t *testing.T) {
	s := lookup(t, "spread")
	run := func(floor float64) float64 {
		set, _, err := Options{}.tuning(s)
		if err != nil {
			t.Fatal(err)
		}
		set.Floor = floor
		return simulate(t, s, Options{Seed: 1, Duration: 30 * time.Second, Tuning: &set}).AdmittedOverLimit
	}
	if low, high := run(0.05), run(0.5); low >= high {
		t.Errorf("a floor of 0.05 lets %v pass, one of 0.5 %v", low, high)
	}
}
