package sim

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/sim/internal/network"
)

// shared returns the load of the scenarios with faults: callers with limits of 100 a minute in all regions, who offer
// the given share of their limits in total.
func (w *world) shared(callers int, offered float64) (g agenda) {
	homes := w.everyRegion()
	for i := range callers {
		a := w.ledger.open(fmt.Sprintf("offered %gx", offered), request(fmt.Sprintf("caller-%d-%g", i, offered), 100,
			time.Minute), homes...)
		g.push(w.caller(a, i, homes, offered*100, 1))
	}
	return g
}

// during changes links for a time.
func (g *agenda) during(from, to time.Duration, which func() []*network.Link, change func(*network.Link, bool)) {
	begin, end := network.Fault(which, change)
	g.at(from, begin)
	g.at(to, end)
}

// toMySQL returns the links of a region's processes to MySQL.
func (r *region) toMySQL() (links []*network.Link) {
	for _, n := range r.nodes {
		links = append(links, n.life.Load().ToMySQL)
	}
	for _, p := range r.relays {
		links = append(links, p.ToMySQL)
	}
	return links
}

// toOrigin returns the links of nodes to their origins.
func toOrigin(nodes []*node) func() []*network.Link {
	return func() (links []*network.Link) {
		for _, n := range nodes {
			links = append(links, n.life.Load().ToOrigin)
		}
		return links
	}
}

func partitionScenario() Scenario {
	return Scenario{
		Name:    "partition",
		Summary: "a region cut off from MySQL, then a node from its Redis, and both healed",
		Doc: "3 regions of 2 nodes, 100 callers in all of them at twice their limits. From a quarter to half of the run " +
			"the first region does not reach MySQL; from half to three quarters one of its nodes does not reach Redis. " +
			"Nothing is refused, answers just do not come. Each part goes on with the counts that it has, and sends the " +
			"cost that it accepted meanwhile afterwards, except cost that the cut node could not send  before its window " +
			"expired: see dropped_cost.",
		Duration: 4 * time.Minute,
		Shape:    Shape{Nodes: each(3, 2), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, duration time.Duration) agenda {
			g := w.shared(100, 2)
			g.during(duration/4, duration/2, w.regions[0].toMySQL, network.Cut)
			g.during(duration/2, duration*3/4, toOrigin(w.nodes[:1]), network.Cut)
			return g
		},
	}
}

func shardsScenario() Scenario {
	const shards = 4
	return Scenario{
		Name:    "shards",
		Summary: "four shards of a region's Redis: one hangs, one is gone, one loses replies",
		Doc: "1 region of 3 nodes whose Redis has 4 shards, 200 callers at twice their limits, in groups by the shard that " +
			"their keys are on. At a quarter of the run, for a sixth of it, shard 1 hangs, shard 2 refuses, and shard 3 loses " +
			"every tenth reply. " +
			"Keys of shard 0 must not notice: none of their decisions is degraded, and none of their cost lost or counted " +
			"twice. The cuts are shorter than a window, so that the cost that waits is sent afterwards: lost_cost and " +
			"doubled_cost must be 0 on all shards.",
		Duration: 2 * time.Minute,
		Shape:    Shape{Nodes: []int{3}, Origin: Profile{Delay: time.Millisecond}, Counts: farMySQL, Shards: shards},
		plan: func(w *world, duration time.Duration) (g agenda) {
			for i := range 200 {
				r := request(fmt.Sprintf("sharded-%d", i), 100, time.Minute)
				key := w.ledger.key(r)
				a := w.ledger.open(fmt.Sprintf("shard %d", w.regions[0].origin.ShardOf(&key)), r, 0)
				g.push(w.caller(a, i, []int{0}, 200, 1))
			}
			suffering := map[int]network.Part{1: {Cut: true}, 2: {Down: true}, 3: {Mute: 0.1}}
			g.during(duration/4, duration/4+duration/6, toOrigin(w.nodes), func(l *network.Link, bad bool) {
				if l.Parts = nil; bad {
					l.Parts = suffering
				}
			})
			return g
		},
	}
}

func crashScenario() Scenario {
	return Scenario{
		Name:    "crash",
		Summary: "a node killed every ten seconds, and another in its place",
		Doc: "2 regions of 3 nodes, 100 callers in both at twice their limits. Every 10 s a node is killed as by kill " +
			"-9, and a fresh one starts under its address. It loses what it had accepted since its last replay: see lost_cost.",
		Duration: 2 * time.Minute, LosesCost: true,
		Shape: Shape{Nodes: each(2, 3), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, _ time.Duration) agenda {
			g := w.shared(100, 2)
			random := w.stream("crashes", 0)
			const every = 10 * time.Second
			g.each(every, every, func() {
				n := w.nodes[random.IntN(len(w.nodes))]
				w.Kill(n.life.Load())
				if err := w.boot(n); err != nil {
					w.violate(violationError, "%v", err)
				}
			})
			return g
		},
	}
}

func wipeScenario() Scenario {
	return Scenario{
		Name:    "wipe",
		Summary: "a region's Redis loses everything, twice",
		Doc: "2 regions of 2 nodes, 100 callers in both at twice their limits. The first region's Redis restarts empty " +
			"after a third and after two thirds of the run. Nodes notice the new epoch and send it again all that they have " +
			"accepted: lost_cost and doubled_cost must be 0.",
		Duration: 2 * time.Minute,
		Shape:    Shape{Nodes: each(2, 2), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, duration time.Duration) agenda {
			g := w.shared(100, 2)
			g.at(duration/3, w.regions[0].origin.Wipe)
			g.at(duration*2/3, w.regions[0].origin.Wipe)
			return g
		},
	}
}

func slowDatabaseScenario() Scenario {
	return Scenario{
		Name:    "slowdb",
		Summary: "a MySQL that takes seconds to answer, then fails every other statement",
		Doc: "3 regions of 2 nodes, 100 callers in all of them at 1.5 times their limits. From a quarter of the run " +
			"MySQL takes 3 s a statement, from half to three quarters it fails every second statement. Regions receive each " +
			"other's counts later; nothing else changes.",
		Duration: 4 * time.Minute,
		Shape:    Shape{Nodes: each(3, 2), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, duration time.Duration) agenda {
			g := w.shared(100, 1.5)
			g.at(duration/4, func() { w.Database.Set(3*time.Second, 0) })
			g.at(duration/2, func() { w.Database.Set(0, 0.5) })
			g.at(duration*3/4, func() { w.Database.Set(0, 0) })
			return g
		},
	}
}

func lossyScenario() Scenario {
	return Scenario{
		Name:    "lossy",
		Summary: "one call to Redis in fifty gets lost, there or back",
		Doc: "1 region of 3 nodes, 100 callers at twice their limits. 2 % of the calls to Redis get lost, half of " +
			"them after they were applied: cost that is sent again is counted once, and nothing is lost.",
		Duration: 2 * time.Minute,
		Shape:    Shape{Nodes: []int{3}, Origin: Profile{Delay: time.Millisecond, Loss: 0.02}, Counts: farMySQL},
		plan:     func(w *world, _ time.Duration) agenda { return w.shared(100, 2) },
	}
}

func skewScenario() Scenario {
	return Scenario{
		Name:    "skew",
		Summary: "clocks that are wrong by up to a second",
		Doc: "3 regions of 2 nodes, every node's clock up to a second ahead or behind: two of a region may be 2 s apart. " +
			"100 callers in all regions at 1.5 times their limits of 100 a minute, and 20 in one region at twice their limits " +
			"of 60 in 6 s. " +
			"Nodes number cells by their origin's clock: of the latter, no window may have more than 61.",
		Duration: 2 * time.Minute, Warmup: time.Minute,
		Shape: Shape{Nodes: each(3, 2), Origin: nearRedis, Counts: farMySQL, Skew: time.Second},
		plan: func(w *world, _ time.Duration) agenda {
			const callers, limit, window = 20, 60, 6 * time.Second
			g := w.shared(100, 1.5)
			for i := range callers {
				a := w.ledger.open("in one region, 60 in 6 s", request(fmt.Sprintf("short-%d", i), limit, window), 0)
				g.push(w.caller(a, 100+i, []int{0}, 2*limit*float64(time.Minute/window), 1))
			}
			return g
		},
	}
}
