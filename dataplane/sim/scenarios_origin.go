package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
)

const tiersKeys = 100_000

// tiersScenario returns the population that the tiers of the estimate mode must handle. With cost 0 a touch counts
// nothing, so that every sync is a read and pressures do not change. With a higher cost, replies of increments take the
// place of reads.
func tiersScenario(name string, keys int, cost int64) Scenario {
	const (
		limit  = 100_000 // an hour's limit, so that no touch changes a pressure by much
		meet   = time.Minute
		settle = 2 * time.Minute
		spread = 1024 // spread of first costs, so that keys do not all pass the steps for sending at the same time
	)
	touches := "is looked at without cost, so that every sync is a read"
	if cost > 0 {
		touches = fmt.Sprintf("counts %d, so that the reply of an increment takes the place of a read", cost)
	}
	return Scenario{
		Name:    name,
		Summary: fmt.Sprintf("the estimate mode: %d keys, 90/8/1.5/0.5 %% of them at 5/30/65/90 %% of their limits", keys),
		Doc: fmt.Sprintf("1 node, a replay tick of 1 s, %d keys with limits of %d an hour in the estimate mode. In the "+
			"first minute each is met once, with the cost that its pressure takes; from then on it is touched once a second, "+
			"at its own moment of the second. A touch %s. ", keys, limit, touches) +
			"See origin_reads_per_tick, origin_increments_per_tick, and origin_reads_per_tick_untiered, which is arithmetic: " +
			"every key once in 15 s.",
		Duration: settle + time.Minute, Warmup: settle, SyncedEvery: 15 * time.Second,
		Shape:     Shape{Nodes: []int{1}, Origin: Profile{Delay: time.Millisecond}, Counts: farMySQL},
		Namespace: store.NamespaceRow{Mode: "estimate", Estimate: `{"pending_max":1000000,"batch_max":20000}`},
		Tune:      func(t *tuning.Tuning) { t.ReplayTick = tuning.Duration(time.Second) },
		plan: func(w *world, _ time.Duration) (g agenda) {
			p := &patrol{node: w.nodes[0], meet: meet, cost: cost, accounts: make([]*account, keys), first: make([]int64, keys)}
			order := w.stream("population", 0).Perm(keys)
			random := w.stream("population", 1)
			next := 0
			for _, t := range []struct {
				name            string
				share, pressure float64
			}{{"idle, 5 %", 0.9, 0.05}, {"low, 30 %", 0.08, 0.3}, {"normal, 65 %", 0.015, 0.65}, {"hot, 90 %", 0.005, 0.9}} {
				for range int(t.share*float64(keys) + 0.5) {
					i := order[next]
					p.accounts[i] = w.ledger.open(t.name, request(fmt.Sprintf("tier-%d", next), limit, time.Hour), 0)
					p.first[i] = int64(t.pressure*limit) + random.Int64N(spread) - spread/2
					next++
				}
			}
			g.push(event{0, p})
			return g
		},
	}
}

// patrol touches every key of a population once a second, on a single node. Within meet, it touches each key for the
// first time, each with a cost of its own.
type patrol struct {
	node     *node
	accounts []*account
	first    []int64 // cost of the first touch
	cost     int64   // of every other touch
	meet     time.Duration
	steps    int
}

const patrolSteps = 100 // per second

func (p *patrol) act(w *world, _ time.Duration) (time.Duration, bool) {
	second, step := p.steps/patrolSteps, p.steps%patrolSteps
	p.steps++
	met := func(seconds int) int {
		return int(min(int64(len(p.accounts)), int64(len(p.accounts))*int64(seconds)/int64(p.meet/time.Second)))
	}
	known, all := met(second), met(second+1)
	for i := step; i < all; i += patrolSteps {
		cost := p.cost
		if i >= known {
			cost = p.first[i]
		}
		w.decide(p.node, p.accounts[i], cost) // an estimate never waits
	}
	return time.Second / patrolSteps, false
}

const replayKeys = 500

func replayScenario(name string, delay time.Duration, keys int) Scenario {
	const perSecond = 20_000
	return Scenario{
		Name:    name,
		Summary: fmt.Sprintf("20,000 accepted a second on one node, %v from its Redis", delay),
		Doc: fmt.Sprintf("1 node, a Redis that answers after %v, %d keys far below their limits, %d requests a second on "+
			"them in turn. However many requests a key takes in a tick, it costs one increment: ", delay, keys, perSecond) +
			"redis_commands_per_s goes with the keys that are active in a tick, and not with requests. lost_cost must be 0.",
		Duration: 30 * time.Second, Warmup: 2 * time.Second,
		Shape: Shape{Nodes: []int{1}, Origin: Profile{Delay: delay}, Counts: farMySQL},
		plan: func(w *world, _ time.Duration) (g agenda) {
			accounts := make([]*account, keys)
			for i := range accounts {
				accounts[i] = w.ledger.open("all", request(fmt.Sprintf("replayed-%d", i), 1_000_000_000, time.Minute), 0)
			}
			turn := 0
			g.push(event{0, &crowd{random: w.stream("crowd", 0), region: w.regions[0],
				every: per(perSecond, time.Second), cost: 1,
				pick: func(*rand.Rand) *account {
					turn++
					return accounts[turn%keys]
				}}})
			return g
		},
	}
}
