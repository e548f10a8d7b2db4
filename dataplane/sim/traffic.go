package sim

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// actor is somebody who sends requests. act sends what is due now and returns how long
// until it wants to act again; done when it has nothing more to send.
type actor interface {
	act(w *world, at time.Duration) (wait time.Duration, done bool)
}

// caller sends cost on one key at a rate, from some regions.
type caller struct {
	account *account
	random  *rand.Rand
	regions []*region
	every   time.Duration // mean time between two requests
	cost    int64
	even    bool                           // a fixed rhythm; otherwise arrivals are a Poisson process
	turns   bool                           // region after region; otherwise at random
	pace    func(at time.Duration) float64 // factor on the rate at a time, nil for 1
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
		return time.Duration(gap * (0.95 + 0.1*c.random.Float64())), false // no two callers in step
	}
	return time.Duration(gap * c.random.ExpFloat64()), false
}

// crowd sends requests of one region on keys that it picks each time.
type crowd struct {
	random *rand.Rand
	region *region
	every  time.Duration
	pick   func(*rand.Rand) *account
	cost   int64
	until  time.Duration // 0: as long as the run
}

func (c *crowd) act(w *world, at time.Duration) (time.Duration, bool) {
	w.ask(c.region.nodes[c.random.IntN(len(c.region.nodes))], c.pick(c.random), c.cost)
	return time.Duration(float64(c.every) * c.random.ExpFloat64()), c.until > 0 && at >= c.until
}

// burst lands on all nodes of a region in one moment: each gets as many requests, from
// as many connections as it may, one after the other on each.
type burst struct {
	account     *account
	region      *region
	cost        int64
	requests    int           // a node
	connections int           // a node, at most
	again       time.Duration // after which it comes once more; 0 for never
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

// event is a moment at which an actor acts.
type event struct {
	at    time.Duration
	actor actor
}

// agenda is a heap of events, the earliest first.
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

// at has something happen to the world once.
func (g *agenda) at(when time.Duration, do func()) { g.push(event{when, &happening{do: do}}) }

// each has something happen to the world from first on, again and again.
func (g *agenda) each(first, every time.Duration, do func()) {
	g.push(event{first, &happening{every, do}})
}

// happening is something that happens to the world, once if every is 0.
type happening struct {
	every time.Duration
	do    func()
}

func (h *happening) act(*world, time.Duration) (time.Duration, bool) {
	h.do()
	return h.every, h.every == 0
}

// play lets actors act until the given time of the run. Requests are goroutines of
// their own: one that waits for an origin holds up no other.
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
