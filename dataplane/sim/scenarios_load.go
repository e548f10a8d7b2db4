package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/tuning"
)

// The usual links: Redis is in the same region, and MySQL may be on another continent.
var (
	nearRedis = Profile{Delay: time.Millisecond, Jitter: 500 * time.Microsecond}
	farMySQL  = Profile{Delay: 60 * time.Millisecond, Jitter: 60 * time.Millisecond}
)

// each returns the nodes of some regions with n nodes each.
func each(regions, n int) []int { return slices.Repeat([]int{n}, regions) }

// request returns a simulated caller's request, without the cost.
func request(identifier string, limit int64, duration time.Duration) dataplane.Request {
	return dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: identifier, Limit: limit, Duration: duration}
}

// per returns the mean time between two of n requests in d.
func per(n float64, d time.Duration) time.Duration { return time.Duration(float64(d) / n) }

// soon returns a moment within the first interval of a series, so that callers do not begin together.
func soon(random *rand.Rand, every time.Duration) time.Duration {
	return time.Duration(random.Float64() * float64(every))
}

func steadyScenario() Scenario {
	return Scenario{
		Name:    "steady",
		Summary: "two regions, callers at half, exactly and twice their limits",
		Doc: "2 regions of 2 nodes. 300 callers with limits of 100 a minute, each in one region or (a third of them) " +
			"in both, at 0.5, 1 and 2 times their limits. Nothing fails.",
		Duration: 3 * time.Minute, Warmup: time.Minute,
		Shape: Shape{Nodes: each(2, 2), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, _ time.Duration) (g agenda) {
			for i := range 300 {
				rate := []float64{0.5, 1, 2}[i%3]
				homes := [][]int{{0}, {1}, {0, 1}}[i/3%3]
				a := w.ledger.open(fmt.Sprintf("offered %gx, %d regions", rate, len(homes)),
					request(fmt.Sprintf("steady-%d", i), 100, time.Minute), homes...)
				g.push(w.caller(a, i, homes, rate*100, 1))
			}
			return g
		},
	}
}

// caller returns an actor that sends perMinute requests of a cost from regions at random.
func (w *world) caller(a *account, index int, homes []int, perMinute float64, cost int64) event {
	c := &caller{account: a, random: w.stream("caller", index), every: per(perMinute, time.Minute), cost: cost}
	for _, h := range homes {
		c.regions = append(c.regions, w.regions[h])
	}
	return event{soon(c.random, c.every), c}
}

// evenCaller returns the first event of a caller who sends requests to all regions in turn, in a fixed rhythm.
func (w *world) evenCaller(a *account, index int, perMinute float64, cost int64) event {
	e := w.caller(a, index, w.everyRegion(), perMinute, cost)
	c := e.actor.(*caller)
	c.even, c.turns = true, true
	return e
}

func spreadScenario() Scenario {
	const regions = 10
	return Scenario{
		Name:    "spread",
		Summary: "callers who spread evenly over ten regions, to stay below every floor",
		Doc: "10 regions of 2 nodes. Callers with limits of 1,000 a minute send one region after the other, evenly paced, " +
			"1.5, 3 and 10 times their limits. " +
			"No region alone sees more than a tenth of it: the floor lets at most regions * floor * limit pass unseen.",
		Duration: 3 * time.Minute, Warmup: time.Minute,
		Shape: Shape{Nodes: each(regions, 2), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, _ time.Duration) (g agenda) {
			homes := w.everyRegion()
			for i := range 30 {
				rate := spreadRates[i%3]
				a := w.ledger.open(fmt.Sprintf("offered %gx", rate),
					request(fmt.Sprintf("spread-%d", i), 1000, time.Minute), homes...)
				g.push(w.evenCaller(a, i, rate*1000, 1))
			}
			return g
		},
	}
}

// rfcScenario returns the load that Weir's convergence is tuned for, with the keys multiplied by factor. A larger cost
// gives the same load with fewer requests.
func rfcScenario(name string, factor int, cost int64, duration time.Duration) Scenario {
	const (
		regions = 10
		keys    = 24_000
		limit   = 100
	)
	return Scenario{
		Name:    name,
		Summary: fmt.Sprintf("33 nodes in 10 regions, %d active keys, 5 %% of them in two regions", factor*keys),
		Doc: fmt.Sprintf("33 nodes in 10 regions (3 regions of 4, 7 of 3). %d keys are active in every window of 60 s, "+
			"with limits of %d. ", factor*keys, limit) +
			"Assumed: 95 % of the keys belong to one region and 5 % to two, at even odds for each request; a region's " +
			"requests go to its nodes at random; arrivals are Poisson processes of " + fmt.Sprintf("cost %d. ", cost) +
			"10 % of the keys are hot, at 0.55 to 1.5 times their limits (evenly distributed, so that about half of them are " +
			"over the limit); the rest is at 0.01 to 0.3 times. " +
			"Redis answers after 1 to 1.5 ms, MySQL after 60 to 120 ms. Nothing fails.",
		Duration: duration, Warmup: min(time.Minute, duration*3/5),
		Shape: Shape{Nodes: []int{4, 4, 4, 3, 3, 3, 3, 3, 3, 3}, Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, _ time.Duration) (g agenda) {
			random := w.stream("population", 0)
			for i := range factor * keys {
				homes := []int{random.IntN(regions)}
				if i%20 == 0 {
					homes = append(homes, (homes[0]+1+random.IntN(regions-1))%regions)
				}
				rate, group := 0.01+0.29*random.Float64(), "cool"
				if random.IntN(10) == 0 {
					rate, group = 0.55+0.95*random.Float64(), "hot"
				}
				a := w.ledger.open(fmt.Sprintf("%s, %d regions", group, len(homes)),
					request(fmt.Sprintf("user_%d", i), limit, time.Minute), homes...)
				g.push(w.caller(a, i, homes, rate*limit/float64(cost), cost))
			}
			return g
		},
	}
}

func zipfScenario() Scenario {
	const regions, keys = 3, 10_000
	s := zipfOf(regions, keys, func(i int) bool { return i < keys/20 })
	s.Name = "zipf"
	s.Summary = "three regions whose callers follow a power law, the busiest known everywhere"
	s.Doc = "3 regions of 2 nodes, 400 requests a second each on 10,000 keys by a power law (s = 1.1). The 500 " +
		"busiest keys have traffic in all regions, the others in one."
	return s
}

func zipf10Scenario() Scenario {
	s := zipfOf(10, 20_000, func(i int) bool { return i%10 < 3 })
	s.Name = "zipf10"
	s.Summary = "ten regions whose callers follow a power law, 30 % of the keys known everywhere"
	s.Doc = "10 regions of 2 nodes, 400 requests a second each on 20,000 keys by a power law (s = 1.1). Three keys of " +
		"ten have traffic in all regions, the others in one. convergence_delay_ms.p99 must not exceed 1,000."
	return s
}

// zipfOf returns regions whose callers follow a power law over some keys.
func zipfOf(regions, keys int, everywhere func(i int) bool) Scenario {
	return Scenario{
		Duration: 2 * time.Minute, Warmup: 30 * time.Second,
		Shape: Shape{Nodes: each(regions, 2), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, _ time.Duration) (g agenda) {
			accounts := make([][]*account, regions)
			for i := range keys {
				if everywhere(i) {
					a := w.ledger.open("in all regions", request(fmt.Sprintf("zipf-%d", i), 200, time.Minute), w.everyRegion()...)
					for r := range accounts {
						accounts[r] = append(accounts[r], a)
					}
					continue
				}
				for r := range accounts {
					accounts[r] = append(accounts[r],
						w.ledger.open("in one region", request(fmt.Sprintf("zipf-%d-%d", r, i), 200, time.Minute), r))
				}
			}
			for r := range accounts {
				random := w.stream("crowd", r)
				law := rand.NewZipf(random, 1.1, 1, uint64(keys-1))
				g.push(event{0, &crowd{random: random, region: w.regions[r], every: per(400, time.Second), cost: 1,
					pick: func(*rand.Rand) *account { return accounts[r][law.Uint64()] }}})
			}
			return g
		},
	}
}

func diurnalScenario() Scenario {
	const day = 10 * time.Minute
	return Scenario{
		Name:    "diurnal",
		Summary: "a day of ten minutes: load that rises and falls, at other times in each region",
		Doc: "3 regions of 2 nodes, a third of a day apart. 300 callers with limits of 100 a minute, in all regions, " +
			"at 0 to 1.6 times their limits over a day that lasts 10 minutes.",
		Duration: day,
		Shape:    Shape{Nodes: each(3, 2), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, _ time.Duration) (g agenda) {
			for i := range 300 {
				a := w.ledger.open("all", request(fmt.Sprintf("diurnal-%d", i), 100, time.Minute), 0, 1, 2)
				for r := range w.regions {
					e := w.caller(a, 3*i+r, []int{r}, 80, 1)
					e.actor.(*caller).pace = func(at time.Duration) float64 {
						return 0.05 + max(0, math.Sin(2*math.Pi*(float64(at)/float64(day)+float64(r)/3)))
					}
					g.push(e)
				}
			}
			return g
		},
	}
}

func rotationScenario() Scenario {
	const entries = 10_000
	return Scenario{
		Name:    "rotation",
		Summary: "a flood of one-shot identifiers, and callers at their limits who hope to be forgotten",
		Doc: "1 region of 2 nodes whose tables hold 10,000 keys. 20 callers with limits of 100 a minute offer three times " +
			"as much, while 2,000 requests a second come each on an identifier of its own. " +
			"Callers at their limits must stay denied, and tables within their bound.",
		Duration: 90 * time.Second,
		Shape:    Shape{Nodes: []int{2}, Origin: nearRedis, Counts: farMySQL, EntriesMax: entries},
		plan: func(w *world, _ time.Duration) (g agenda) {
			for i := range 20 {
				a := w.ledger.open("blocked callers", request(fmt.Sprintf("blocked-%d", i), 100, time.Minute), 0)
				g.push(w.caller(a, i, []int{0}, 300, 1))
			}
			n := 0
			g.push(event{5 * time.Second, &crowd{random: w.stream("flood", 0), region: w.regions[0],
				every: per(2000, time.Second), cost: 1,
				pick: func(*rand.Rand) *account {
					n++
					return w.ledger.open("one-shot", request(fmt.Sprintf("once-%d", n), 100, time.Minute), 0)
				}}})
			return g
		},
	}
}

func twoNodesScenario() Scenario {
	return Scenario{
		Name:    "twonodes",
		Summary: "a limit of 500 a second on two nodes that are offered 800",
		Doc: "1 region of 2 nodes, a replay tick of 0.2 s, one caller with a limit of 500 a second who offers each " +
			"node 400. The admitted cost should be within 3 % of the limit: see admitted_rate_over_limit.",
		Duration: time.Minute, Warmup: 5 * time.Second,
		Shape: Shape{Nodes: []int{2}, Origin: Profile{Delay: time.Millisecond}, Counts: farMySQL},
		Tune:  func(t *tuning.Tuning) { t.ReplayTick = tuning.Duration(200 * time.Millisecond) },
		plan: func(w *world, _ time.Duration) (g agenda) {
			a := w.ledger.open("all", request("twonodes", 500, time.Second), 0)
			for i, n := range w.regions[0].nodes {
				c := &caller{account: a, random: w.stream("caller", i), regions: []*region{{nodes: []*node{n}}},
					every: per(400, time.Second), cost: 1, even: true}
				g.push(event{soon(c.random, c.every), c})
			}
			return g
		},
	}
}
