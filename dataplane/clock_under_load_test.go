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

// underLoad has 8 goroutines ask 3,000 times each for 1 of 3,000, by singles, batches and a handle, while a ninth sets
// the clock: by the first of steps once 1,000 are accepted, by the next once 1,000 more are. It returns how many were
// accepted.
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

// clockedNodes are nodes in each mode that counts on its own.
func clockedNodes(w *world) map[string]func() *node {
	return map[string]func() *node{
		"alone": func() *node { return w.alone() },
		"fleet": func() *node { return w.node("eu", "a") },
		"estimate": func() *node {
			w.estimates(`{}`)
			return w.node("eu", "a", withoutOrigin)
		},
	}
}

// A clock that is set back while decisions are made returns no budget: a decision whose time was read before the step
// does not put its key back into the cell that the step has left.
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

// A clock that is set ahead while decisions are made begins one window anew, and no more. Set back again it returns
// nothing.
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

// foreignOf is an announcement of what other regions have counted in a later cell of the key.
func foreignOf(w *world, later time.Duration, count int64) []store.Foreign {
	c := w.cell("k")
	c.Sequence += int64(later / time.Minute)
	return []store.Foreign{{Cell: c, Count: count}}
}

// Whatever a call does, a time that it has read before the clock was set back moves no key on to the cell of that time:
// the key was counted in the cell that the clock shows, and all of it still is.
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
						n.take("k", 5, 100) // in the cell that the clock shows now, with 90
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

// A time that was read before the clock was set ahead brings no key back into the cell of that time, in which it was
// swept as expired: it counts in the cell that the clock shows.
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

// A key that is new counts in the cell that the clock shows, also if the clock was set back after the call had read its
// time: the origin receives all of its cost.
func TestATimeReadBeforeAStepBeginsNoKeyAhead(t *testing.T) {
	for how, ask1 := range asks {
		w := newWorld(t)
		n := w.node("eu", "a", func(c *dataplane.Config) { c.Clock = w.clock.hooked })
		w.clock.step(10*time.Minute + 15*time.Second)
		n.take("another", 1, 100) // from here on the origin's clock is known
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
