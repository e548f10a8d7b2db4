package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weirhq/weir/dataplane/sim/internal/synthetic"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// synth is a synthetic node with its traffic.
type synth struct {
	*synthetic.Node
	world   *relayWorld
	region  *region
	random  *rand.Rand
	traffic []func(n *synth, passed time.Duration) // called before each tick
	lasted  time.Time                              // when traffic was last called
}

func (f *relayWorld) addNode(r *region) {
	index := len(f.synths)
	n := &synth{world: f, region: r, random: f.stream("node", index)}
	origin := f.NewProcess(f.watched(r), f.link(f.shape.Origin, "node to origin", index), nil).Origin
	n.Node = synthetic.New(origin, n.random, n)
	f.synths = append(f.synths, n)
	r.synths = append(r.synths, n)
}

// generate makes the traffic of the time since the last call.
func (n *synth) generate() {
	now := time.Now()
	if now.Before(n.world.began) || now.After(n.world.until) {
		return
	}
	if n.lasted.IsZero() {
		n.lasted = n.world.began
	}
	for _, traffic := range n.traffic {
		traffic(n, now.Sub(n.lasted))
	}
	n.lasted = now
}

// Decided implements synthetic.Ledger.
func (n *synth) Decided(cell window.Cell, cost, limit int64, allowed bool) {
	n.world.decisions.count(cost, allowed)
	if allowed {
		n.world.track.accept(n.region.index, cell, cost, limit)
	}
}

// Refused implements synthetic.Ledger.
func (n *synth) Refused(cost store.Cost, err error) {
	n.world.violate(violationError, "an origin refused %+v: %v", cost, err)
}

// callers is a population of keys for synthetic nodes, like that of rfcScenario, but with requests in whole ticks.
type callers struct {
	keys     int
	sharedBy func(i int) int // number of regions that use key i, >= 1
	limit    int64
	cost     int64
	window   time.Duration
	watched  func(i int) bool // nil: all keys
	rate     func(draw, hot float64) float64
}

// fleetKey is a key in a region.
type fleetKey struct {
	name string
	rate float32 // share of the limit that the region offers in a window
}

// rfcRate returns a key's offered share of its limit, from two draws between 0 and 1: a tenth of the keys is hot.
func rfcRate(draw, hot float64) float64 {
	if hot < 0.1 {
		return hotRates.at(draw)
	}
	return coolRates.at(draw)
}

const rfcRateMax = 1.5

// populate gives every node the traffic of its region's keys.
func (f *relayWorld) populate(p callers) {
	random := f.stream("population", 0)
	byRegion := make([][]fleetKey, len(f.regions))
	offered := make([]float64, len(f.regions)) // limits per window
	for i := range p.keys {
		homes := min(max(1, p.sharedBy(i)), len(f.regions))
		rate := p.rate(random.Float64(), random.Float64()) / float64(homes)
		key := fleetKey{fmt.Sprintf("user_%d", i), float32(rate)}
		first := random.IntN(len(f.regions))
		for h := range homes {
			r := (first + h) % len(f.regions)
			byRegion[r] = append(byRegion[r], key)
			offered[r] += rate
		}
		if p.watched == nil || p.watched(i) {
			f.track.watch(p.group(homes), p.key(key.name))
		}
	}
	f.keys += p.keys
	for _, r := range f.regions {
		keys := byRegion[r.index]
		perS := offered[r.index] * float64(p.limit) / float64(p.cost) / p.window.Seconds() / float64(len(r.synths))
		for _, n := range r.synths {
			n.traffic = append(n.traffic, func(n *synth, passed time.Duration) { n.crowd(p, keys, perS*passed.Seconds()) })
		}
	}
}

// group returns the name in reports of the keys that the given number of regions use.
func (p *callers) group(homes int) string {
	return fmt.Sprintf("%d in %v, %d regions", p.limit, p.window, homes)
}

func (p *callers) key(name string) window.Key { return fleetKeyOf(name, p.window) }

func fleetKeyOf(name string, duration time.Duration) window.Key {
	return window.Key{Workspace: "acme", Namespace: "api", Identifier: name, Duration: duration}
}

// crowd makes mean requests on average, on keys drawn by their rates.
func (n *synth) crowd(p callers, keys []fleetKey, mean float64) {
	for range n.poisson(mean) {
		for {
			k := &keys[n.random.IntN(len(keys))]
			if n.random.Float64()*rfcRateMax < float64(k.rate) {
				key := p.key(k.name)
				n.Charge(&key, p.cost, p.limit)
				break
			}
		}
	}
}

// poisson draws a number of arrivals. For a large mean it uses the normal approximation.
func (n *synth) poisson(mean float64) int {
	if mean > 50 {
		return max(0, int(math.Round(mean+math.Sqrt(mean)*n.random.NormFloat64())))
	}
	arrivals := -1
	for sum := 0.0; sum < mean; arrivals++ {
		sum += n.random.ExpFloat64()
	}
	return max(0, arrivals)
}
