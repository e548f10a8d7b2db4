package sim

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// actor sends requests, or causes faults such as a crash. act sends the requests that are due and returns the time
// until the next call; done means that act must not be called again.
type actor interface {
	act(w *world, at time.Duration) (wait time.Duration, done bool)
}

// caller sends requests on a key at a rate, from some regions.
type caller struct {
	account *account
	random  *rand.Rand
	regions []*region
	every   time.Duration // mean time between two requests
	cost    int64
	even    bool                           // a fixed rhythm; otherwise a Poisson process
	turns   bool                           // the regions in turn; otherwise at random
	pace    func(at time.Duration) float64 // factor on the rate at a time; nil means 1
	turn    int
}

func (c *caller) act(w *world, at time.Duration) (time.Duration, bool) {
	c.turn++
	r := c.regions[0]
	switch {
	case len(c.regions) == 1:
	case c.turns:
		r = c.regions[c.turn%len(c.regions)]
	default:
		r = c.regions[c.random.IntN(len(c.regions))]
	}
	w.ask(r.nodes[c.random.IntN(len(r.nodes))], c.account, c.cost)
	gap := float64(c.every)
	if c.pace != nil {
		gap /= c.pace(at)
	}
	if c.even {
		return time.Duration(gap * (0.95 + 0.1*c.random.Float64())), false // so that no two callers are in step
	}
	return time.Duration(gap * c.random.ExpFloat64()), false
}

// crowd sends requests from a region, on a key that it picks for each request.
type crowd struct {
	random *rand.Rand
	region *region
	every  time.Duration
	pick   func(*rand.Rand) *account
	cost   int64
	until  time.Duration // 0: until the end of the run
}

func (c *crowd) act(w *world, at time.Duration) (time.Duration, bool) {
	w.ask(c.region.nodes[c.random.IntN(len(c.region.nodes))], c.pick(c.random), c.cost)
	return time.Duration(float64(c.every) * c.random.ExpFloat64()), c.until > 0 && at >= c.until
}

// burst arrives on all nodes of a region at the same moment. Each node gets the same number of requests, over several
// connections, in turn on each connection.
type burst struct {
	account     *account
	region      *region
	cost        int64
	requests    int           // for each node
	connections int           // for each node, at most
	again       time.Duration // time after which it is repeated once; 0 means never
}

func (b *burst) act(w *world, _ time.Duration) (time.Duration, bool) {
	for _, n := range b.region.nodes {
		connections := min(b.connections, b.requests)
		for c := range connections {
			share := b.requests / connections
			if c < b.requests%connections {
				share++
			}
			w.requests.Go(func() {
				for range share {
					w.decide(n, b.account, b.cost)
				}
			})
		}
	}
	again := b.again
	b.again = 0
	return again, again == 0
}

// event is a time at which an actor acts.
type event struct {
	at    time.Duration
	actor actor
}

// agenda is a heap of events, with the earliest first.
type agenda []event

func (g agenda) Len() int           { return len(g) }
func (g agenda) Less(i, j int) bool { return g[i].at < g[j].at }
func (g agenda) Swap(i, j int)      { g[i], g[j] = g[j], g[i] }

// Push implements heap.Interface.
func (g *agenda) Push(e any) { *g = append(*g, e.(event)) }

// Pop implements heap.Interface.
func (g *agenda) Pop() any {
	last := len(*g) - 1
	e := (*g)[last]
	*g = (*g)[:last]
	return e
}

func (g *agenda) push(e event) { heap.Push(g, e) }

// at adds a function that runs once.
func (g *agenda) at(when time.Duration, do func()) { g.push(event{when, &happening{do: do}}) }

// each adds a function that runs at first, and again after each interval.
func (g *agenda) each(first, every time.Duration, do func()) {
	g.push(event{first, &happening{every, do}})
}

// happening is an actor that runs a function, once if every is 0.
type happening struct {
	every time.Duration
	do    func()
}

func (h *happening) act(*world, time.Duration) (time.Duration, bool) {
	h.do()
	return h.every, h.every == 0
}

// play runs the actors until the given time of the run. Each request has a goroutine of its own, so a request that
// waits for an origin delays no other.
func (w *world) play(g agenda, until time.Duration) {
	for len(g) > 0 && g[0].at < until {
		e := heap.Pop(&g).(event)
		if wait := e.at - time.Since(w.began); wait > 0 {
			time.Sleep(wait)
		}
		if wait, done := e.actor.act(w, e.at); !done {
			g.push(event{e.at + max(wait, time.Nanosecond), e.actor})
		}
	}
	time.Sleep(until - time.Since(w.began))
}
