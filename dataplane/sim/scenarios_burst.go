package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// The values of a namespace's node share: what happens to a decision beyond the node share.
const (
	nodeShareFlush = "flush" // decided at once, and the key's cost is sent at once
	nodeShareWait  = "wait"  // waits until the origin has counted the cost that the node accepted
)

// burstShape is a region of five nodes, 1 ms from their origin. They receive the number of nodes with the settings.
var burstShape = Shape{Nodes: []int{5}, Origin: Profile{Delay: time.Millisecond}, Counts: farMySQL}

// rushes are the limits and costs of requests that all arrive at once.
var rushes = []struct{ limit, cost int64 }{{10, 1}, {100, 1}, {10_000, 1}, {10_000, 100}}

const rushesEach = 8 // keys of each kind, each at a moment within its own part of rushesWithin

const rushesWithin = 48 * time.Second

// rush returns the moment of the i-th key of a kind.
func rush(random *rand.Rand, i int) time.Duration {
	const part = rushesWithin / rushesEach
	return time.Duration(i)*part + soon(random, part)
}

func burstScenario() Scenario {
	return Scenario{
		Name:    "burst",
		Summary: "everything at once, on all five nodes of a region",
		Doc: "1 region of 5 nodes, 1 ms from its origin. Callers with limits of 10, 100 and 10,000 a minute, costs of 1 " +
			"and of 1 % of the limit, send a whole limit's worth to each node in one moment, " +
			"over at most 64 connections a node; on a cold key, and again 61 s later, when the nodes hold the key.  Without " +
			"anything shared, 5 times the limit would pass. " +
			"Decisions take no time here, so with node_share flush all are made before any node receives another's count, " +
			"and 5 times the limit passes. By default, which is wait, it must not exceed 1.1.",
		Duration: 2 * time.Minute, Shape: burstShape,
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

func surgeScenario() Scenario {
	return Scenario{
		Name:    "surge",
		Summary: "five times the limit within a second, on five nodes of a region",
		Doc: "As burst, but once, and spread over one second, so that counts that nodes receive within milliseconds " +
			"can matter.",
		Duration: time.Minute, Shape: burstShape,
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

func smallScenario() Scenario {
	const nodes, callers, limit = 33, 200, 10
	return Scenario{
		Name:    "small",
		Summary: "limits of 10 a minute, on 33 nodes of a region",
		Doc: "1 region of 33 nodes, 1 to 1.5 ms from its origin. 200 callers with limits of 10 a minute, at 0.3, 0.9, 1.5 " +
			"and 5 times their limits. A limit of fewer costs than nodes leaves no node a share: with node_share wait, " +
			"the default, the origin decides each cost, and every decision of a caller that is not denied by known counts " +
			"waits for it.",
		Duration: 4 * time.Minute, Warmup: time.Minute,
		Shape: Shape{Nodes: []int{nodes}, Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, _ time.Duration) (g agenda) {
			for i := range callers {
				rate := []float64{0.3, 0.9, 1.5, 5}[i%4]
				a := w.ledger.open(fmt.Sprintf("offered %gx", rate), request(fmt.Sprintf("small-%d", i), limit, time.Minute), 0)
				g.push(w.caller(a, i, []int{0}, rate*limit, 1))
			}
			return g
		},
	}
}

// flashRates are the limits per second that all regions of flash together offer.
var flashRates = []float64{0.5, 1, 5, 20}

// flashRegions is the number of regions that a flash crowd comes from.
const flashRegions = 10

func flashScenario() Scenario {
	const limit, each, begin, lasts = 1000, 3, time.Second, 4 * time.Second
	return Scenario{
		Name:    "flash",
		Summary: "a flash crowd on one key, from ten regions at once",
		Doc: "10 regions of 2 nodes. Keys with limits of 1,000 an hour that were never used before get requests from all " +
			"regions at once, at 0.5, 1, 5 and 20 times their limits a second. Until a region receives the others' counts, " +
			"it admits all requests: see admitted_over_limit by group, about 1 + delay * rate * 9/10 and at most 10.",
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
