package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Bounds of a Population.
const (
	populationRegionsMax = 10 // the number of region names
	populationNodesMax   = 200
	populationKeysMax    = 1_000_000
)

// Population describes a fleet and its callers with a few figures that operators can look up. For example, use Worst to
// find the overshoot that a tuning can admit.
type Population struct {
	Nodes        []int         // by region: 1 to 10 regions, 200 nodes in all
	Keys         int           // keys active in a window, 1 to 1,000,000
	HotShare     float64       // share of keys near or above their limits, 0 to 1
	OverlapShare float64       // share of keys that two regions use at the same time, 0 to 1
	Limit        int64         // of every key, 1 to 1,000,000
	Window       time.Duration // of every key, 1 s to 1 h
}

// Validate returns an error about the first field outside its bounds.
func (p Population) Validate() error {
	nodes := 0
	for _, n := range p.Nodes {
		if n < 1 {
			return fmt.Errorf("%w: a region has %d nodes (1 or more)", ErrInvalid, n)
		}
		nodes += n
	}
	switch {
	case len(p.Nodes) < 1 || len(p.Nodes) > populationRegionsMax:
		return fmt.Errorf("%w: regions is %d (1 to %d)", ErrInvalid, len(p.Nodes), populationRegionsMax)
	case nodes > populationNodesMax:
		return fmt.Errorf("%w: nodes is %d (at most %d)", ErrInvalid, nodes, populationNodesMax)
	case p.Keys < 1 || p.Keys > populationKeysMax:
		return fmt.Errorf("%w: keys is %d (1 to %d)", ErrInvalid, p.Keys, populationKeysMax)
	case !(p.HotShare >= 0 && p.HotShare <= 1): // also refuses NaN
		return fmt.Errorf("%w: hot_share is %v (0 to 1)", ErrInvalid, p.HotShare)
	case !(p.OverlapShare >= 0 && p.OverlapShare <= 1):
		return fmt.Errorf("%w: overlap_share is %v (0 to 1)", ErrInvalid, p.OverlapShare)
	case p.Limit < 1 || p.Limit > 1_000_000:
		return fmt.Errorf("%w: limit is %d (1 to 1000000)", ErrInvalid, p.Limit)
	case p.Window < max(time.Second, window.DurationMin) || p.Window > time.Hour:
		return fmt.Errorf("%w: window is %v (1s to 1h)", ErrInvalid, p.Window)
	}
	return nil
}

// Requests returns roughly how many requests a scenario of the population makes in a window.
func (p Population) Requests() float64 {
	mean := p.HotShare*hotRates.mean() + (1-p.HotShare)*coolRates.mean()
	return float64(p.Keys) * mean * float64(p.Limit) / float64(p.cost())
}

// cost returns the cost of each request. It is small enough that the floor and the step, which are shares of the limit,
// make a difference.
func (p Population) cost() int64 { return max(1, p.Limit/20) }

// rates are the range of a key's offered load, as shares of its limit, evenly distributed.
type rates struct{ from, to float64 }

var (
	coolRates = rates{0.01, 0.3}
	hotRates  = rates{0.55, 1.5} // about half of these keys are over the limit
)

func (r rates) mean() float64            { return (r.from + r.to) / 2 }
func (r rates) at(share float64) float64 { return r.from + share*(r.to-r.from) }

// spreadRates are how many times their limits the callers offer who spread over all regions.
var spreadRates = []float64{1.5, 3, 10}

// Load returns the scenario of the population's ordinary traffic. You can use it to measure rows and convergence.
func (p Population) Load() Scenario {
	return p.scenario("load", "a population's ordinary traffic", p.ordinary)
}

// Worst returns the scenario of callers who spread evenly over all regions, so that each region receives the others'
// counts as late as possible. You can use it to measure the largest overshoot of a tuning.
func (p Population) Worst() Scenario {
	return p.scenario("worst", "callers who spread evenly over all regions", p.spread)
}

func (p Population) scenario(name, summary string, plan func(*world) agenda) Scenario {
	duration := p.Window*3/2 + 5*time.Second
	return Scenario{
		Name: "population-" + name, Summary: summary,
		Duration: duration, Warmup: p.Window / 2, // the rest of the traffic reads and writes as much as a window
		Shape: Shape{Nodes: p.Nodes, Origin: nearRedis, Counts: farMySQL},
		plan:  func(w *world, _ time.Duration) agenda { return plan(w) },
	}
}

func (p Population) ordinary(w *world) (g agenda) {
	random := w.stream("population", 0)
	regions := len(p.Nodes)
	for i := range p.Keys {
		homes := []int{random.IntN(regions)}
		if random.Float64() < p.OverlapShare && regions > 1 {
			homes = append(homes, (homes[0]+1+random.IntN(regions-1))%regions)
		}
		rate, group := coolRates.at(random.Float64()), "cool"
		if random.Float64() < p.HotShare {
			rate, group = hotRates.at(random.Float64()), "hot"
		}
		a := w.ledger.open(group, request(fmt.Sprintf("key-%d", i), p.Limit, p.Window), homes...)
		g.push(w.caller(a, i, homes, p.perMinute(rate, p.cost()), p.cost()))
	}
	return g
}

func (p Population) spread(w *world) (g agenda) {
	homes := w.everyRegion()
	cost := max(1, p.Limit/200)
	for i, rate := range spreadRates {
		a := w.ledger.open("spread", request(fmt.Sprintf("spread-%d", i), p.Limit, p.Window), slices.Clone(homes)...)
		g.push(w.evenCaller(a, i, p.perMinute(rate, cost), cost))
	}
	return g
}

// perMinute converts a rate, as a share of the limit, to requests a minute.
func (p Population) perMinute(share float64, cost int64) float64 {
	return share * float64(p.Limit) / float64(cost) * float64(time.Minute) / float64(p.Window)
}
