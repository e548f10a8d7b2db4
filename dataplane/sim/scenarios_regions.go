package sim

import (
	"fmt"
	"time"
)

// These scenarios measure how much a region can take unseen by the others, with real limiters, relays and origins.

// Limit and window of these scenarios' callers. The window is longer than any run.
const (
	tourLimit  = 100
	tourWindow = time.Hour
)

// in sends requests of a cost to a region's nodes in turn, all at the same moment.
func (w *world) in(r *region, a *account, requests int, cost int64) {
	for i := range requests {
		w.ask(r.nodes[i%len(r.nodes)], a, cost)
	}
}

func (w *world) everyRegion() (homes []int) {
	for i := range w.regions {
		homes = append(homes, i)
	}
	return homes
}

func hopScenario() Scenario {
	const every = 2 * time.Second
	asks := []int{1, 5, 9, 10, 11, 50, 100, 200}
	return Scenario{
		Name:    "hop",
		Summary: "callers who visit ten regions in turn, 2 s apart",
		Doc: "10 regions of 1 node. Callers with limits of 100 an hour request 1, 5, 9, 10, 11, 50, 100 or 200 in one " +
			"region, 2 s later in the next one, and so on. Each is at its limit after at most 200 s. " +
			"admitted_over_limit must not exceed 1.02.",
		Duration: 4 * time.Minute, Shape: Shape{Nodes: each(10, 1), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, _ time.Duration) (g agenda) {
			random := w.stream("tours", 0)
			for _, n := range asks {
				for k := range 5 {
					a := w.ledger.open(fmt.Sprintf("%d requested in each region", n),
						request(fmt.Sprintf("hop-%d-%d", n, k), tourLimit, tourWindow), w.everyRegion()...)
					turn := 0
					g.each(soon(random, every), every, func() {
						w.in(w.regions[turn%len(w.regions)], a, n, 1)
						turn++
					})
				}
			}
			return g
		},
	}
}

func silentScenario() Scenario {
	const every, later = time.Second, 3 * time.Second
	return Scenario{
		Name:    "silent",
		Summary: "keys that use up their limits in one region at once, and then get requests in others",
		Doc: "10 regions of 1 node. Each second a key takes its limit of 100 an hour in one region at once. 3 s later it " +
			"gets requests in all others, for the first time there. " +
			"Everything must be denied: admitted_over_limit must be 1.",
		Duration: time.Minute, Shape: Shape{Nodes: each(10, 1), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, duration time.Duration) (g agenda) {
			for i := range int((duration - later) / every) {
				a := w.ledger.open("taken at once", request(fmt.Sprintf("silent-%d", i), tourLimit, tourWindow), w.everyRegion()...)
				at := time.Duration(i) * every
				g.at(at, func() { w.ask(w.regions[i%len(w.regions)].nodes[0], a, tourLimit) })
				g.at(at+later, func() {
					for _, r := range w.regions {
						w.in(r, a, 1, 1)
					}
				})
			}
			return g
		},
	}
}

func lateScenario() Scenario {
	const keys, later = 200, 3 * time.Second
	kinds := []struct {
		group  string
		used   bool          // whether the other region used it before
		before time.Duration // how long before
	}{
		{group: "not used by the other region"},
		{"just begun to use by the other region", true, 0},
		{"used by both regions", true, 2 * time.Second},
	}
	return Scenario{
		Name:    "late",
		Summary: "200 keys of three kinds, with requests in another region 3 s after their limits were used up",
		Doc: "2 regions of 2 nodes, limits of 100 an hour. One region uses a key's limit up. 3 s later both nodes of the " +
			"other region request 5: cost admitted then was published late. Three kinds of keys: that the other region " +
			"never used, that it begins to use in the same moment, and that it has used for 2 s. It used 1 of the latter, " +
			"which the first region may not have received yet: admitted_over_limit must not exceed 1.01.",
		Duration: 30 * time.Second, Shape: Shape{Nodes: each(2, 2), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, duration time.Duration) (g agenda) {
			random := w.stream("moments", 0)
			home, other := w.regions[0], w.regions[1]
			for n, kind := range kinds {
				for i := range keys {
					a := w.ledger.open(kind.group, request(fmt.Sprintf("late-%d-%d", n, i), tourLimit, tourWindow), 0, 1)
					at := kind.before + soon(random, duration-later-kind.before-time.Second)
					if kind.used {
						g.at(at-kind.before, func() { w.ask(other.nodes[i%2], a, 1) })
					}
					g.at(at, func() { w.in(home, a, 20, 5) })
					g.at(at+later, func() { w.in(other, a, 2, 5) })
				}
			}
			return g
		},
	}
}

func shortScenario() Scenario {
	const callers, limit, cost = 50, 1000, 10
	return Scenario{
		Name:    "short",
		Summary: "windows of 2 s and of 5 s that two regions share",
		Doc: "2 regions of 2 nodes. 50 callers with limits of 1,000 in 2 s and 50 with limits of 1,000 in 5 s offer 1.5 " +
			"times as much, half of it in each region, in costs of 10. " +
			"Regions that did not share would admit 1.5 times the limits: see admitted_rate_over_limit by group.",
		Duration: 30 * time.Second, Warmup: 10 * time.Second, Shape: Shape{Nodes: each(2, 2), Origin: nearRedis,
			Counts: farMySQL},
		plan: func(w *world, _ time.Duration) (g agenda) {
			for n, window := range []time.Duration{2 * time.Second, 5 * time.Second} {
				for i := range callers {
					r := request(fmt.Sprintf("short-%v-%d", window, i), limit, window)
					a := w.ledger.open(fmt.Sprint("windows of ", window), r, 0, 1)
					perMinute := 1.5 * limit / cost * time.Minute.Seconds() / window.Seconds()
					g.push(w.caller(a, n*callers+i, []int{0, 1}, perMinute, cost))
				}
			}
			return g
		},
	}
}
