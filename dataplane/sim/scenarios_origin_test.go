package sim

import (
	"testing"
	"time"
)

// A simulated population of 100,000 keys (90/8/1.5/0.5 % at 5/30/65/90 % pressure, each touched once a second, tick 1
// s): reads a tick without tiers 6,250–6,667; with tiers 287–300.
//
// This test has a hundredth of the keys. Touches come at any moment of a second, and a key is synced at the next tick
// after the touch that finds it due. So an interval lasts up to a second longer than in that arithmetic, and 283 keys
// are read. If touches count, nothing is read.
func TestTiersSpareTheOrigin(t *testing.T) {
	const scale = 100
	r := simulate(t, tiersScenario("tiers", tiersKeys/scale, 0), Options{Seed: 1})
	if v := scale * r.OriginReadsPerTickUntiered; v < 6250 || v > 6667 {
		t.Errorf("without tiers %v reads a tick", v)
	}
	if v := scale * r.OriginReadsPerTick; v < 275 || v > 300 || r.OriginIncrementsPerTick != 0 {
		t.Errorf("with tiers %v reads and %v increments a tick", v, r.OriginIncrementsPerTick)
	}
	// 500 hot keys with every tick, 1,500 idle keys above their floor once in 60 s, 228 of the tiers between, and each
	// 1,024th touch of the other keys, which passes a step.
	r = simulate(t, tiersScenario("tiers-counting", tiersKeys/scale, 1), Options{Seed: 1})
	if v := scale * r.OriginIncrementsPerTick; v < 2100 || v > 2500 || scale*r.OriginReadsPerTick > 5 || r.LostCost != 0 {
		t.Errorf("counting: %v increments and %v reads a tick, cost lost %d", v, scale*r.OriginReadsPerTick, r.LostCost)
	}
}

// A cost of 20,000 a second reaches the origin in full at any latency, with one increment for each tick and active key.
//
//weir:unraced
func TestReplayGoesWithActiveKeys(t *testing.T) {
	for _, c := range []struct {
		delay time.Duration
		keys  int
	}{{time.Millisecond, 250}, {10 * time.Millisecond, 250}, {50 * time.Millisecond, 250}, {50 * time.Millisecond, 500}} {
		r := simulate(t, replayScenario("replay", c.delay, c.keys), Options{Seed: 1, Duration: 4 * time.Second})
		want := float64(c.keys) // the measured time can have one tick more or less
		if v := r.OriginIncrementsPerTick; v < 0.94*want || v > 1.06*want {
			t.Errorf("%d keys at %v: %v increments a tick", c.keys, c.delay, v)
		}
		if r.LostCost != 0 || r.DoubledCost != 0 || r.Simulated.Denied != 0 || r.Simulated.AdmittedCost < 75_000 {
			t.Errorf("%d keys at %v: lost %d, doubled %d, %+v", c.keys, c.delay, r.LostCost, r.DoubledCost, r.Simulated)
		}
	}
}

// Nodes count all cost that an outage of minutes loses as dropped. That includes the chunks that were on their way when
// the outage began, and that reach the origin when their cells have expired. Relays publish no cost that was not
// accepted.
//
//weir:unraced
func TestAnOutageLosesNothingThatIsNotCounted(t *testing.T) {
	for _, name := range []string{"small", "steady"} {
		r := simulate(t, lookup(t, name), Options{Seed: 1, RedisGone: true})
		if r.LostCost == 0 {
			t.Errorf("%s: nothing is lost", name)
		}
		for _, v := range r.Violations {
			t.Errorf("%s: %s, %d times, first %s", name, v.Promise, v.Times, v.First)
		}
	}
}

// A shard that hangs, refuses or loses replies degrades only its own keys. Keys of other shards do not notice. Cost
// that waited for the shard is sent afterwards, and counted once.
//
//weir:unraced
func TestADeadShardConcernsItsKeysOnly(t *testing.T) {
	r := simulate(t, lookup(t, "shards"), Options{Seed: 1, Duration: 80 * time.Second})
	if len(r.Groups) != 4 {
		t.Fatalf("%d groups, want one a shard", len(r.Groups))
	}
	for i, g := range r.Groups {
		hangs, refuses, mutters := i == 1, i == 2, i == 3
		if g.LostCost != 0 {
			t.Errorf("%s: cost %d is lost", g.Name, g.LostCost)
		}
		if (g.Degraded > 0) != (hangs || refuses) && !mutters {
			t.Errorf("%s: %d degraded decisions", g.Name, g.Degraded)
		}
		if g.DoubledCost != 0 {
			t.Errorf("%s: cost %d is counted twice", g.Name, g.DoubledCost)
		}
	}
	for _, v := range r.Violations {
		t.Errorf("%s: %s", v.Promise, v.First)
	}
}
