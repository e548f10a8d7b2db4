package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// The groups of keys of clock-ahead.
const (
	askAlways = "all the time"
	askAgain  = "spends its limit while the clock is ahead, and again at the time that it showed"
)

func clockAheadScenario() Scenario {
	const (
		callers, limit, offered = 20, 100, 0.6
		begin, end              = 30 * time.Second, 2 * time.Minute
		after                   = 4 * time.Minute // the end of the run, after the step
	)
	return Scenario{
		Name:    "clock-ahead",
		Summary: "a region's Redis whose clock is an hour ahead for a while, and is put right",
		Doc: "2 regions of 2 nodes. After 30 s the clock of the first region's Redis is set ahead by an hour (by 4 " +
			"minutes less than the run takes), and put right after 2 minutes. 20 callers send requests all the time, in " +
			"both regions, 0.6 times their limits of 100 a minute. 20 more spend their limits in the first region while its " +
			"clock is ahead, and send as much when the clock comes to the same windows again.  locked_out_s is how long at " +
			"most a key was denied: of the former two windows and a second, right after the clock was put right, and of the " +
			"latter 0. lost_cost is of the windows that the origin forgets, and the latter are admitted twice in a window " +
			"of that name.",
		Duration: time.Hour + after, Warmup: end, LosesCost: true,
		Shape: Shape{Nodes: each(2, 2), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, duration time.Duration) (g agenda) {
			ahead, set := max(0, duration-after), w.regions[0]
			g.at(begin, func() { set.clock.Set(ahead) })
			g.at(end, func() { set.clock.Set(0) })
			random := w.stream("clock-ahead", 0)
			for i := range callers {
				always := w.ledger.open(askAlways, request(fmt.Sprintf("always-%d", i), limit, time.Minute), w.everyRegion()...)
				again := w.ledger.open(askAgain, request(fmt.Sprintf("again-%d", i), limit, time.Minute), w.everyRegion()...)
				always.steady = true
				g.push(w.caller(always, i, w.everyRegion(), offered*limit, 1))
				asks := func(from, until time.Duration, perMinute float64, r *region) {
					g.push(event{from, &crowd{random: random, region: r, every: per(perMinute, time.Minute), cost: 1,
						pick: func(*rand.Rand) *account { return again }, until: until}})
				}
				asks(begin+10*time.Second, end-10*time.Second, 2*limit, set)
				g.at(begin+ahead, func() { again.steady = true })
				for _, r := range w.regions {
					asks(begin+ahead, end+ahead+time.Minute, offered*limit/float64(len(w.regions)), r)
				}
			}
			return g
		},
	}
}
