package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirhq/weir/dataplane/sim/internal/reallog"
)

// edge spends a limit just before a cell ends, and sends requests all through the next cell, while the weight of the
// spent cell falls. Then it pauses for a cell, and begins again.
type edge struct {
	account *account
	nodes   []*node // gets a request from each try in turn
	draw    func() (cost, limit int64)
	turn    int
}

const (
	edgeBefore = 500 * time.Millisecond // before a cell's end
	edgeTries  = 100                    // in the next cell
)

// event returns the first act of an edge, just before the end of a cell.
func (e *edge) event() event { return event{e.account.key.Duration - edgeBefore, e} }

func (e *edge) act(w *world, _ time.Duration) (time.Duration, bool) {
	n := e.nodes[e.turn/3%len(e.nodes)] // changes less often than the tries, so that they are not in step with a cycle
	e.turn++
	w.requests.Go(func() {
		for {
			cost, limit := e.draw()
			if !w.decideBy(n, e.account, cost, limit).Allowed {
				return
			}
		}
	})
	d := e.account.key.Duration
	if e.turn%edgeTries == 0 {
		return 2*d + d/edgeTries, false // the cycle takes 3 cells
	}
	return d / edgeTries, false
}

// offer is the costs and limits of the requests on a key.
type offer struct {
	name  string
	limit int64
	draw  func(*rand.Rand) (cost, limit int64)
}

func costOne(limit int64) offer {
	return offer{fmt.Sprintf("limit %d", limit), limit, func(*rand.Rand) (int64, int64) { return 1, limit }}
}

// costs returns an offer with costs evenly distributed from 1 to a tenth of the limit.
func costs(limit int64) offer {
	return offer{fmt.Sprintf("limit %d, costs 1 to %d", limit, limit/10), limit,
		func(r *rand.Rand) (int64, int64) { return 1 + r.Int64N(limit/10), limit }}
}

// mixedLimits returns an offer on a key in which half of the requests have the limit, and half have half of it.
func mixedLimits(limit int64) offer {
	return offer{fmt.Sprintf("limits %d and %d", limit/2, limit), limit,
		func(r *rand.Rand) (int64, int64) { return 1, limit / (1 + r.Int64N(2)) }}
}

var edgeOffers = []offer{costOne(1), costOne(10), costOne(100), costOne(1000), costs(100), mixedLimits(100)}

func edgesScenario() Scenario {
	return Scenario{
		Name:    "edges",
		Summary: "callers who spend their limits just before a cell ends, and again as its weight sinks",
		Doc: "2 regions of 2 nodes. Callers with limits of 1 to 1,000 a minute, with costs of 1 and of 1 to 10, and with " +
			"two limits on one key, spend all that they can half a second before a cell ends, and try 100 times in the next " +
			"cell, on one node, on two nodes of a region in turn, and on all nodes of both regions in turn. See " +
			"real_window_over_limit: 2 with --window cells, and 1 with --window precise.",
		Duration: 6 * time.Minute, Shape: Shape{Nodes: each(2, 2), Origin: nearRedis, Counts: farMySQL},
		plan: func(w *world, _ time.Duration) (g agenda) {
			places := []struct {
				name  string
				homes []int
				nodes []*node
			}{
				{"one node", []int{0}, w.nodes[:1]},
				{"two nodes", []int{0}, w.regions[0].nodes},
				{"two regions", []int{0, 1}, w.nodes},
			}
			for i, p := range places {
				for j, o := range edgeOffers {
					a := w.ledger.open(p.name+", "+o.name, request(fmt.Sprintf("edge-%d-%d", i, j), o.limit, time.Minute), p.homes...)
					random := w.stream("edge", i*len(edgeOffers)+j)
					e := &edge{account: a, nodes: p.nodes, draw: func() (int64, int64) { return o.draw(random) }}
					g.push(e.event())
				}
			}
			return g
		},
	}
}

// arrivals sends requests of an offer to a node, with several at the same moment if they come in bursts.
type arrivals struct {
	account *account
	random  *rand.Rand
	node    *node
	draw    func(*rand.Rand) (cost, limit int64)
	gap     func(*rand.Rand) time.Duration
	many    func(*rand.Rand) int64 // requests at the same moment; nil means 1
}

func (a *arrivals) act(w *world, _ time.Duration) (time.Duration, bool) {
	n := int64(1)
	if a.many != nil {
		n = a.many(a.random)
	}
	type ask struct{ cost, limit int64 }
	asks := make([]ask, n)
	for i := range asks {
		asks[i].cost, asks[i].limit = a.draw(a.random)
	}
	w.requests.Go(func() { // in their order, so that a seed repeats
		for _, ask := range asks {
			w.decideBy(a.node, a.account, ask.cost, ask.limit)
		}
	})
	return a.gap(a.random), false
}

// arrivalKeys is the number of keys of each kind of arrivals.
const arrivalKeys = 3

func arrivalsScenario() Scenario {
	return Scenario{
		Name:    "arrivals",
		Summary: "kinds of arrivals on one node, compared with an exact log of the same requests",
		Doc: "1 region of 1 node whose origin answers at once. Callers offer 0.95 to 5 times their limits of 1 to 1,000 " +
			"a minute: evenly, by Poisson processes, in bursts, and at the ends of cells, with costs of 1 and of up to a " +
			"tenth of the limit, and with two limits on one key. admitted_over_log of a group is the cost admitted on its " +
			"keys, divided by the cost that an exact log admits of the same requests.",
		Duration: 10 * time.Minute, Shape: Shape{Nodes: []int{1}},
		plan: func(w *world, _ time.Duration) (g agenda) {
			p := arrivalsPlan{world: w, agenda: &g}
			for _, o := range []offer{costOne(100), costs(100), mixedLimits(100)} {
				p.edges(o)
			}
			for _, o := range []offer{costOne(100), costOne(1000), costs(100), costs(1000), mixedLimits(100),
				mixedLimits(1000)} {
				p.poisson(o, 1.5)
			}
			p.poisson(costOne(1000), 5)
			for _, limit := range []int64{10, 100, 1000} {
				p.even(limit, 0.95)
			}
			for _, limit := range []int64{20, 100, 1000} {
				p.even(limit, 1.05)
			}
			for _, o := range []offer{costOne(1), costOne(10), costOne(100), costOne(1000), costs(100)} {
				p.bursts(o)
			}
			for _, limit := range []int64{1, 2, 10, 100, 1000} {
				p.even(limit, 1)
			}
			p.even(29, 0.9)
			p.even(1000, 0.9)
			p.even(29, 0.95) // no other limit has groups that are as large a part of it: 2 of 29
			p.even(29, 1.05)
			return g
		},
	}
}

type arrivalsPlan struct {
	*world
	agenda *agenda
	keys   int
}

// open opens an account with a rival that decides on the same requests.
func (p *arrivalsPlan) open(kind string, o offer) (*account, *rand.Rand) {
	p.keys++
	a := p.ledger.open(kind+", "+o.name, request(fmt.Sprint("arrivals-", p.keys), o.limit, time.Minute), 0)
	a.real.rival = &reallog.Log{}
	return a, p.stream("arrivals", p.keys)
}

func (p *arrivalsPlan) edges(o offer) {
	a, random := p.open("spent at cell ends", o)
	e := &edge{account: a, nodes: p.nodes, draw: func() (int64, int64) { return o.draw(random) }}
	p.agenda.push(e.event())
}

// each adds several keys of an offer, with gap between two arrivals.
func (p *arrivalsPlan) each(kind string, o offer, gap func(*rand.Rand) time.Duration, many func(*rand.Rand) int64) {
	for range arrivalKeys {
		a, random := p.open(kind, o)
		first := time.Duration(random.Float64() * float64(time.Second))
		p.agenda.push(event{first, &arrivals{a, random, p.nodes[0], o.draw, gap, many}})
	}
}

func (p *arrivalsPlan) poisson(o offer, load float64) {
	mean := 0.0
	sample := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		cost, _ := o.draw(sample)
		mean += float64(cost) / 1000
	}
	every := float64(per(load*float64(o.limit)/mean, time.Minute))
	p.each(fmt.Sprintf("Poisson %gx", load), o,
		func(r *rand.Rand) time.Duration { return time.Duration(every * r.ExpFloat64()) }, nil)
}

func (p *arrivalsPlan) even(limit int64, load float64) {
	every := per(load*float64(limit), time.Minute)
	p.each(fmt.Sprintf("even, %gx", load), costOne(limit), func(*rand.Rand) time.Duration { return every }, nil)
}

// bursts come every 15 s on average, with up to a limit's cost each.
func (p *arrivalsPlan) bursts(o offer) {
	p.each("random bursts", o, func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * 15e9) },
		func(r *rand.Rand) int64 {
			cost, _ := o.draw(r)
			return 1 + r.Int64N(max(1, o.limit/cost))
		})
}
