package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// The settings of a namespace's node share: what becomes of a decision past its node's
// share of what is left.
const (
	nodeShareFlush = "flush" // it is made, and its key is sent at once
	nodeShareWait  = "wait"  // it waits until the origin has counted what the node accepted
)

// burstShape is a region of five nodes that are 1 ms from their origin. They know by
// heartbeats how many they are.
var burstShape = Shape{Nodes: []int{5}, Origin: Profile{Delay: time.Millisecond}, Counts: farMySQL}

// rushes are what comes at once: a limit, and what each request costs of it.
var rushes = []struct{ limit, cost int64 }{{10, 1}, {100, 1}, {10_000, 1}, {10_000, 100}}

const rushesEach = 8 // keys, each at a moment within its own part of rushesWithin

const rushesWithin = 48 * time.Second

// rush is the moment of the i-th key of a kind.
func rush(random *rand.Rand, i int) time.Duration {
	const part = rushesWithin / rushesEach
	return time.Duration(i)*part + soon(random, part)
}

func burstScenario(name, nodeShare string) Scenario {
	return Scenario{
		Name:    name,
		Summary: "everything at once, on all five nodes of a region; node_share " + nodeShare,
		Doc: "1 region of 5 nodes, 1 ms from its origin. Callers with limits of 10, 100 and 10,000 a minute, costs of 1 " +
			"and of 1 % of the limit, send a whole limit's worth to each node in one moment, " +
			"over at most 64 connections a node; on a cold key, and again 61 s later, when the nodes know it. Without " +
			"anything shared, 5 times the limit would pass. " +
			"Decisions take no time here, so that with node_share flush all are made before anything could be heard: " +
			"5 times is what it must show. With wait it must not exceed 1.2.",
		Duration: 2 * time.Minute, Shape: burstShape, Namespace: store.NamespaceRow{NodeShare: nodeShare},
		plan: func(w *world, _ time.Duration) (g agenda) {
			random := w.stream("bursts", 0)
			for _, r := range rushes {
				for i := range rushesEach {
					a := w.ledger.open(fmt.Sprintf("limit %d, cost %d", r.limit, r.cost),
						request(fmt.Sprintf("burst-%d-%d-%d", r.limit, r.cost, i), r.limit, time.Minute), 0)
					g.push(event{rush(random, i), &burst{account: a, region: w.regions[0], cost: r.cost,
						requests: int(r.limit / r.cost), connections: 64, again: 61 * time.Second}})
				}
			}
			return g
		},
	}
}

func surgeScenario(name, nodeShare string) Scenario {
	return Scenario{
		Name:    name,
		Summary: "five times the limit within a second, on five nodes of a region; node_share " + nodeShare,
		Doc: "As burst, but once, and spread over one second, so that what nodes tell each other within milliseconds " +
			"can matter.",
		Duration: time.Minute, Shape: burstShape, Namespace: store.NamespaceRow{NodeShare: nodeShare},
		plan: func(w *world, _ time.Duration) (g agenda) {
			random := w.stream("surges", 0)
			for n, r := range rushes {
				offered := float64(len(w.nodes)) * float64(r.limit/r.cost)
				for i := range rushesEach {
					a := w.ledger.open(fmt.Sprintf("limit %d, cost %d", r.limit, r.cost),
						request(fmt.Sprintf("surge-%d-%d-%d", r.limit, r.cost, i), r.limit, time.Minute), 0)
					begin := rush(random, i)
					g.push(event{begin, &crowd{random: w.stream("surge", n*rushesEach+i), region: w.regions[0],
						every: per(offered, time.Second),
						pick:  func(*rand.Rand) *account { return a }, cost: r.cost, until: begin + time.Second}})
				}
			}
			return g
		},
	}
}

// flashRates are what all regions of flash together offer, in limits a second.
var flashRates = []float64{0.5, 1, 5, 20}

// flashRegions is how many regions a flash crowd comes from.
const flashRegions = 10

func flashScenario() Scenario {
	const limit, each, begin, lasts = 1000, 3, time.Second, 4 * time.Second
	return Scenario{
		Name:    "flash",
		Summary: "a flash crowd on one key, from ten regions at once",
		Doc: "10 regions of 2 nodes. Keys with limits of 1,000 an hour that nobody has used are asked for by all regions " +
			"at once, at 0.5, 1, 5 and 20 times their limits a second. Until a region knows of the others it admits what it " +
			"is asked for: see admitted_over_limit by group, about 1 + delay * rate * 9/10 and at most 10.",
		Duration: 15 * time.Second,
		Shape:    Shape{Nodes: slices.Repeat([]int{2}, flashRegions), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, _ time.Duration) (g agenda) {
			for n, rate := range flashRates {
				for i := range each {
					a := w.ledger.open(fmt.Sprintf("%gx the limit a second", rate),
						request(fmt.Sprintf("flash-%g-%d", rate, i), limit, time.Hour), w.everyRegion()...)
					for home, r := range w.regions {
						g.push(event{begin, &crowd{random: w.stream("flash", (n*each+i)*flashRegions+home), region: r,
							every: per(rate*limit/flashRegions, time.Second), cost: 1,
							pick: func(*rand.Rand) *account { return a }, until: begin + lasts}})
					}
				}
			}
			return g
		},
	}
}
