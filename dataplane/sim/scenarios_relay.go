package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/sim/internal/network"
)

// Scenarios of relays: nodes are synthetic, windows are fixed, and relays are real.

// relayShape returns regions with a few nodes each. Their origins are near, and MySQL may be far.
func relayShape(regions, nodes int) Shape {
	return Shape{Nodes: each(regions, nodes), Origin: nearRedis, Counts: farMySQL}
}

// tour adds a caller who goes through all regions in turn, and tries asks requests in each.
func (f *relayWorld) tour(g *agenda, name string, window time.Duration, limit int64, asks int,
	begin, every time.Duration) {
	key := fleetKeyOf(name, window)
	f.track.watch(fmt.Sprintf("%d requested in each region", asks), key)
	f.keys++
	turn := 0
	g.each(begin, every, func() {
		n := f.regions[turn%len(f.regions)].synths[0]
		turn++
		f.requests.Go(func() {
			if !n.Visit(context.Background(), &key, 1, limit) {
				return
			}
			for range asks - 1 {
				n.Charge(&key, 1, limit)
			}
		})
	})
}

func relayHopScenario() Scenario {
	asks := []int{1, 5, 9, 10, 11, 50, 100, 200}
	return Scenario{
		Name:    "relay-hop",
		Summary: "callers who visit ten regions in turn, 2 s apart",
		Doc: "10 regions of 1 node, each with a relay. Callers with limits of 100 an hour request 1, 5, 9, 10, 11, 50, 100 " +
			"or 200 in one region, 2 s later in the next one, and so on. Each is at its limit after at most 200 s. " +
			"A node decides by its origin's answers.  admitted_over_limit must not exceed 1.02.",
		Duration: 4 * time.Minute, Shape: relayShape(10, 1),
		fleet: &fleetPlan{plan: func(f *relayWorld, _ time.Duration) (g agenda) {
			random := f.stream("tours", 0)
			for i, n := range asks {
				for k := range 5 {
					f.tour(&g, fmt.Sprintf("hop-%d-%d", i, k), time.Hour, 100, n, soon(random, 2*time.Second), 2*time.Second)
				}
			}
			return g
		}},
	}
}

func relaySilentScenario() Scenario {
	const every = time.Second
	return Scenario{
		Name:    "relay-silent",
		Summary: "keys that use up their limits in one region at once, and then get requests in others",
		Doc: "10 regions of 1 node, each with a relay. Each second a key takes its limit of 100 a minute in one region at " +
			"once. 3 s later it gets requests in all others, for the first time there. " +
			"Everything must be denied: admitted_over_limit must be 1.",
		Duration: time.Minute, Shape: relayShape(10, 1),
		fleet: &fleetPlan{plan: func(f *relayWorld, duration time.Duration) (g agenda) {
			for i := range int(duration / every) {
				f.silent(&g, i, time.Duration(i)*every)
			}
			return g
		}},
	}
}

// silent makes the i-th key take its limit at a moment.
func (f *relayWorld) silent(g *agenda, i int, at time.Duration) {
	const limit = 100
	key := fleetKeyOf(fmt.Sprintf("silent-%d", i), time.Hour)
	f.track.watch("taken at once", key)
	f.keys++
	home := f.regions[i%len(f.regions)]
	g.at(at, func() { f.requests.Go(func() { home.synths[0].Visit(context.Background(), &key, limit, limit) }) })
	g.at(at+3*time.Second, func() {
		for _, r := range f.regions {
			f.requests.Go(func() { r.synths[0].Visit(context.Background(), &key, 1, limit) })
		}
	})
}

func relayPeersScenario() Scenario {
	return Scenario{
		Name:    "relay-peers",
		Summary: "relays that also send their changes to each other, 80 ms away",
		Doc: "3 regions of 2 nodes, 300 keys that all use. Changes travel by MySQL, 60 to 120 ms away, and from relay to " +
			"relay in 80 ms. " +
			"See convergence_delay_ms, and relay-partition for a fleet without peers.",
		Duration: time.Minute, Shape: relayShape(3, 2),
		fleet: &fleetPlan{peers: true, plan: func(f *relayWorld, _ time.Duration) agenda {
			f.busy(300)
			return nil
		}},
	}
}

func relayShortScenario() Scenario {
	return Scenario{
		Name:    "relay-short",
		Summary: "windows of 2 s and of 5 s that two regions share",
		Doc: "2 regions of 2 nodes. 100 callers with limits of 1,000 in 2 s and 100 with limits of 1,000 in 5 s offer 1.5 " +
			"times as much, half of it in each region, in costs of 10. " +
			"See admitted_over_limit_mean: windows are fixed, so that 1 is exact.",
		Duration: time.Minute, Warmup: 10 * time.Second, Shape: relayShape(2, 2),
		fleet: &fleetPlan{plan: func(f *relayWorld, _ time.Duration) agenda {
			for _, window := range []time.Duration{2 * time.Second, 5 * time.Second} {
				f.populate(callers{keys: 100, sharedBy: everywhere, limit: 1000, cost: 10, window: window, rate: fixedRate})
			}
			return nil
		}},
	}
}

func everywhere(int) int { return 1 << 10 }

func fixedRate(float64, float64) float64 { return 1.5 }

// busy adds the load of the scenarios with faults: keys that all regions use, at all pressures.
func (f *relayWorld) busy(keys int) {
	f.populate(callers{keys: keys, sharedBy: everywhere, limit: 100, cost: 1, window: time.Minute,
		rate: func(draw, _ float64) float64 { return 1.5 * draw }})
}

func relayWipeScenario() Scenario {
	return Scenario{
		Name:    "relay-wipe",
		Summary: "a region's origin loses everything, twice, under load",
		Doc: "2 regions of 2 nodes, 480 keys that both use, some 600 requests a second. The first region's origin is " +
			"emptied after a third and after two thirds of the run. Nodes and the relay restore it: lost_cost and " +
			"doubled_cost must be 0.",

		Duration: time.Minute, Shape: relayShape(2, 2),
		fleet: &fleetPlan{plan: func(f *relayWorld, duration time.Duration) (g agenda) {
			f.busy(480)
			g.at(duration/3, f.regions[0].origin.Wipe)
			g.at(duration*2/3, f.regions[0].origin.Wipe)
			return g
		}},
	}
}

func relayKilledScenario() Scenario {
	const every = 10 * time.Second
	return Scenario{
		Name:    "relay-killed",
		Summary: "the relay of a region killed every ten seconds, with another one waiting",
		Doc: "3 regions of 2 nodes and 2 relays. Every 10 s the longest running relay of a region is killed as by kill -9, " +
			"and a fresh one begins to wait for the lease. " +
			"Another relay takes over within 3 s; nothing is lost, and nothing stays unknown.",
		Duration: time.Minute, Shape: relayShape(3, 2),
		fleet: &fleetPlan{relays: 2, plan: func(f *relayWorld, _ time.Duration) (g agenda) {
			f.busy(100)
			turn := 0
			g.each(every, every, func() {
				r := f.regions[turn%len(f.regions)]
				turn++
				f.replace(r)
			})
			return g
		}},
	}
}

// replace kills the oldest relay of a region, and starts another.
func (f *relayWorld) replace(r *region) {
	f.Kill(r.relays[r.killed])
	r.killed++
	made, err := f.addRelay(r)
	if err == nil {
		err = made.Start()
	}
	if err != nil {
		f.violate(violationError, "a relay of %s: %v", r.name, err)
	}
}

func relayHeldBackScenario() Scenario {
	return Scenario{
		Name:    "relay-held-back",
		Summary: "rows of the change feed that become visible up to three seconds after they were written",
		Doc: "3 regions of 2 nodes. In the second third of the run every fifth row of the change feed takes up to 3 s to " +
			"commit, longer than a relay waits for an answer. " +
			"Counts in these rows arrive late, but nothing stays unknown.",
		Duration: time.Minute, Shape: relayShape(3, 2),
		fleet: &fleetPlan{plan: func(f *relayWorld, duration time.Duration) (g agenda) {
			f.busy(100)
			random := f.stream("commits", 0)
			g.at(duration/3, func() {
				f.Feed.Faults.SlowCommits(func() time.Duration {
					f.mu.Lock()
					defer f.mu.Unlock()
					if random.IntN(5) > 0 {
						return 0
					}
					return time.Duration(random.Int64N(int64(3 * time.Second)))
				})
			})
			g.at(duration*2/3, func() { f.Feed.Faults.SlowCommits(nil) })
			return g
		}},
	}
}

func relayPartitionScenario() Scenario {
	return Scenario{
		Name:    "relay-partition",
		Summary: "a region cut off from MySQL, then MySQL gone for all",
		Doc: "3 regions of 2 nodes. From an eighth to three eighths of the run the first region's relay does not reach " +
			"MySQL; from half to three quarters MySQL refuses all relays. Each region goes on with the counts that it has, " +
			"and publishes the rest afterwards: no cut is longer than a window, so nothing stays unknown.",
		Duration: 4 * time.Minute, Shape: relayShape(3, 2),
		fleet: &fleetPlan{plan: func(f *relayWorld, duration time.Duration) (g agenda) {
			f.busy(100)
			g.during(duration/8, duration*3/8, f.regions[0].toMySQL, network.Cut)
			for _, r := range f.regions {
				g.during(duration/2, duration*3/4, r.toMySQL, network.Down)
			}
			return g
		}},
	}
}

const relayKeys = 24_000 // as many as rfc has

// relayRFCScenario is rfcScenario over relays, with factor times the nodes.
func relayRFCScenario(name string, keys, factor int) Scenario {
	nodes := []int{4, 4, 4, 3, 3, 3, 3, 3, 3, 3}
	for i := range nodes {
		nodes[i] *= factor
	}
	return Scenario{
		Name: name,
		Summary: fmt.Sprintf("the keys of rfc over relays: %d nodes in 10 regions, %d active keys, 5 %% of them in two "+
			"regions", 33*factor, keys),
		Doc: fmt.Sprintf("%d nodes in 10 regions, each with a relay. The keys, limits and rates are those of rfc. "+
			"The load on MySQL must not depend on the number of nodes.", 33*factor),
		Duration: 2 * time.Minute, Warmup: time.Minute,
		Shape: Shape{Nodes: nodes, Origin: nearRedis, Counts: farMySQL},
		fleet: &fleetPlan{deaf: factor > 1, plan: func(f *relayWorld, _ time.Duration) agenda {
			f.populate(callers{keys: keys, sharedBy: oneInTwenty, limit: 100, cost: 1, window: time.Minute, rate: rfcRate,
				watched: func(i int) bool { return i%20 == 0 }})
			return nil
		}},
	}
}

// oneInTwenty lets two regions use every twentieth key.
func oneInTwenty(i int) int {
	if i%20 == 0 {
		return 2
	}
	return 1
}

// relayPairScenario is two regions of the large fleet, each with all keys of a region of fifty.
func relayPairScenario(keys int) Scenario {
	return Scenario{
		Name:    "relay-pair",
		Summary: fmt.Sprintf("%d keys, 5 %% of them in both regions: two regions of relay-scale100 at their size", keys),
		Doc: fmt.Sprintf("2 regions of 1 node, each with a relay. %d keys are active in every window of 60 s, with the "+
			"limits, rates and costs of relay-scale100. One shared key in ten is watched. ", keys) +
			"Each relay reads the rows of the other region, so a region's rows are half of what MySQL sends. In a fleet " +
			"of fifty each of 50 relays reads 49 times as much.",
		Duration: 2 * time.Minute, Warmup: time.Minute,
		Shape: relayShape(2, 1),
		fleet: &fleetPlan{metered: true, deaf: true, plan: func(f *relayWorld, _ time.Duration) agenda {
			f.populate(callers{keys: keys, sharedBy: oneInTwenty, limit: 100, cost: 5, window: time.Minute, rate: rfcRate,
				watched: func(i int) bool { return i%200 == 0 }})
			return nil
		}},
	}
}

// relayScaleScenario returns a large fleet, or some percent of its keys and nodes.
func relayScaleScenario(name string, percent float64) Scenario {
	const regions, allNodes, allKeys = 50, 3_300, 10_000_000
	keys := int(allKeys * percent / 100)
	nodes := max(1, int(allNodes*percent/100/regions))
	return Scenario{
		Name:    name,
		Summary: fmt.Sprintf("%d keys, 5 %% of them in two regions, over relays of 50 regions of %d nodes", keys, nodes),
		Doc: fmt.Sprintf("50 regions of %d nodes, each with a relay. %d keys are active in every window of 60 s, with "+
			"limits of 100, at the rates of rfc, in costs of 5. One shared key in ten is watched. ", nodes, keys) +
			"The first region's relay runs on a thread of its own, whose processor time is relay_cpu_share; its MySQL is as " +
			"near as its origin.",
		Duration: 90 * time.Second, Warmup: 30 * time.Second,
		Shape: relayShape(regions, nodes),
		fleet: &fleetPlan{metered: true, deaf: true, plan: func(f *relayWorld, _ time.Duration) agenda {
			f.populate(callers{keys: keys, sharedBy: oneInTwenty, limit: 100, cost: 5, window: time.Minute, rate: rfcRate,
				watched: func(i int) bool { return i%200 == 0 }})
			return nil
		}},
	}
}
