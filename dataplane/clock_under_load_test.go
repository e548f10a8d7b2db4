package dataplane_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
)

// underLoad runs 8 goroutines that each send 3,000 requests with a limit of 3,000, by singles, batches and a handle.
// A ninth goroutine sets the clock: by the first step when 1,000 are accepted, and by each further step after 1,000
// more. underLoad returns the number of accepted requests.
func underLoad(t *testing.T, w *world, n *node, steps []time.Duration) (accepted int64) {
	t.Helper()
	const goroutines, each, limit, every = 8, 3_000, 3_000, 1_000
	var all, left atomic.Int64
	left.Store(goroutines)
	ways := []string{"single", "batch", "handle"}
	together(goroutines+1, func(i int) {
		if i == goroutines {
			for k, step := range steps {
				for all.Load() < int64(k+1)*every && left.Load() > 0 {
					n.Peek(context.Background(), ask("another", 1, 1))
				}
				w.clock.step(step)
				n.Sweep()
			}
			return
		}
		defer left.Add(-1)
		for k := range each {
			if asks[ways[(i+k)%len(ways)]](n, ask("k", 1, limit)).Allowed {
				all.Add(1)
			}
		}
	})
	return all.Load()
}

// clockedNodes returns nodes in each mode that counts without an origin.
func clockedNodes(w *world) map[string]func() *node {
	return map[string]func() *node{
		"alone": func() *node { return w.alone() },
		"fleet": func() *node {
			w.flushes() // no loop runs here, so a decision must not wait for a flush
			return w.node("eu", "a")
		},
		"estimate": func() *node {
			w.estimates(`{}`)
			return w.node("eu", "a", withoutOrigin)
		},
	}
}

// A clock that is set back while decisions are made returns no budget: a decision that read its time before the step
// does not move its key back into the cell that the step has left.
func TestAClockIsSetBackUnderLoad(t *testing.T) {
	for _, kind := range []string{"alone", "fleet", "estimate"} {
		for name, steps := range map[string][]time.Duration{
			"once":              {-10 * time.Minute},
			"by half a window":  {-30 * time.Second},
			"twice in a row":    {-10 * time.Minute, -10 * time.Minute},
			"a day, and a bit":  {-24 * time.Hour, -90 * time.Second},
			"many times":        {-2 * time.Minute, -time.Minute, -61 * time.Second, -time.Hour},
			"by less and by it": {-100 * time.Millisecond, -10 * time.Minute},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				w := newWorld(t)
				n := clockedNodes(w)[kind]()
				w.clock.step(48*time.Hour + 15*time.Second)
				if got := underLoad(t, w, n, steps); got != 3_000 {
					t.Errorf("%d accepted of 3,000", got)
				}
			})
		}
	}
}

// A clock that is set ahead while decisions are made starts one new window, and no more. When it is set back, it
// returns nothing.
func TestAClockIsSetAheadUnderLoad(t *testing.T) {
	for _, kind := range []string{"alone", "fleet", "estimate"} {
		for name, steps := range map[string][]time.Duration{
			"once":            {10 * time.Minute},
			"and back":        {10 * time.Minute, -10 * time.Minute},
			"and back in two": {10 * time.Minute, -5 * time.Minute, -5 * time.Minute},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				w := newWorld(t)
				n := clockedNodes(w)[kind]()
				w.clock.step(15 * time.Second)
				if got := underLoad(t, w, n, steps); got < 3_000 || got > 6_000 {
					t.Errorf("%d accepted, want 3,000 before the step, at most, and 3,000 after it", got)
				}
			})
		}
	}
}

// foreignOf returns other regions' counts in a later cell of the key.
func foreignOf(w *world, later time.Duration, count int64) []store.Foreign {
	c := w.cell("k")
	c.Sequence += int64(later / time.Minute)
	return []store.Foreign{{Cell: c, Count: count}}
}

// If a call read its time before the clock was set back, it moves no key to the cell of that time: the key keeps all
// its cost in the clock's current cell.
func TestATimeReadBeforeAStepMovesNoKeyOn(t *testing.T) {
	type call struct {
		fleet bool
		do    func(*world, *node)
	}
	calls := map[string]call{
		"sweep":     {do: func(_ *world, n *node) { n.Sweep() }},
		"make room": {do: func(_ *world, n *node) { n.MakeRoom() }},
		"charge":    {do: func(_ *world, n *node) { _, _ = n.Charge(ask("k", 1, 100)) }},
		"refund":    {do: func(_ *world, n *node) { _, _ = n.Refund(ask("k", 1, 100)) }},
		"reserve":   {do: func(_ *world, n *node) { n.AllowUpTo(context.Background(), ask("k", 1, 100)) }},
		"at": {do: func(w *world, n *node) {
			n.AllowAt(context.Background(), w.clock.Now(), ask("k", 1, 100))
		}},
		"announcement": {fleet: true, do: func(w *world, n *node) { n.ApplyForeign(foreignOf(w, 10*time.Minute, 1)) }},
		"replay":       {fleet: true, do: func(_ *world, n *node) { n.replay() }},
		"sync":         {fleet: true, do: func(_ *world, n *node) { _ = n.SyncOnce(context.Background()) }},
	}
	for how, ask1 := range asks {
		calls[how] = call{do: func(_ *world, n *node) { ask1(n, ask("k", 1, 100)) }}
	}
	for _, kind := range []string{"alone", "fleet", "estimate", "estimate in a fleet"} {
		for name, call := range calls {
			for _, back := range []time.Duration{10 * time.Minute, 61 * time.Second} {
				if call.fleet && (kind == "alone" || kind == "estimate") {
					continue
				}
				t.Run(fmt.Sprint(kind, "/", name, "/", back), func(t *testing.T) {
					w := newWorld(t)
					hook := func(c *dataplane.Config) { c.Clock = w.clock.hooked }
					var n *node
					switch kind {
					case "alone":
						n = w.alone(hook)
					case "fleet":
						n = w.node("eu", "a", hook)
					case "estimate":
						w.estimates(`{}`)
						n = w.node("eu", "a", withoutOrigin, hook)
					default:
						w.estimates(`{}`)
						n = w.node("eu", "a", hook)
					}
					w.clock.step(10*time.Minute + 15*time.Second)
					n.take("k", 90, 100)
					w.clock.onRead(func() {
						w.clock.step(-back)
						n.take("k", 5, 100) // in the clock's current cell, with 90
					})
					call.do(w, n)
					if d := n.take("k", 6, 100); d.Allowed {
						t.Errorf("95 of 100 were counted before: %+v", d)
					}
					n.Sweep()
					if d := n.take("k", 6, 100); d.Allowed {
						t.Errorf("after a sweep: %+v", d)
					}
				})
			}
		}
	}
}

// If a call read its time before the clock was set ahead, it moves no key back into the cell of that time, which was
// swept as expired: the key counts in the clock's current cell.
func TestATimeReadBeforeAStepAheadCountsByTheClock(t *testing.T) {
	for how, ask1 := range asks {
		w := newWorld(t)
		n := w.alone(func(c *dataplane.Config) { c.Clock = w.clock.hooked })
		n.take("k", 95, 100)
		w.clock.onRead(func() {
			w.clock.step(10 * time.Minute)
			n.Sweep()
		})
		if d := ask1(n, ask("k", 6, 100)); !d.Allowed || d.ResetAt.Before(w.clock.Now()) {
			t.Errorf("%s: in a new window: %+v", how, d)
		}
		if d := n.take("k", 95, 100); d.Allowed {
			t.Errorf("%s: 6 of 100 were counted: %+v", how, d)
		}
	}
}

// A new key counts in the clock's current cell, also if the clock was set back after the call read its time. The
// origin receives all of its cost.
func TestATimeReadBeforeAStepBeginsNoKeyAhead(t *testing.T) {
	for how, ask1 := range asks {
		w := newWorld(t)
		n := w.node("eu", "a", func(c *dataplane.Config) { c.Clock = w.clock.hooked })
		w.clock.step(10*time.Minute + 15*time.Second)
		n.take("another", 1, 100) // from here on the node has the origin's clock
		w.clock.onRead(func() { w.clock.step(-10 * time.Minute) })
		if d := ask1(n, ask("k", 5, 100)); !d.Allowed {
			t.Fatalf("%s: %+v", how, d)
		}
		n.take("k", 1, 100)
		n.replay()
		if got := w.published("eu", w.cell("k")); got != 6 {
			t.Errorf("%s: the origin has %d, want 6", how, got)
		}
	}
}
