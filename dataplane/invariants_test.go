package dataplane_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// The invariants of DESIGN.md, by number, under real concurrency.

//  1. "With nothing foreign, the cost accepted by one process in a cell plus the weighted previous cell never
//     exceeds the limit, under any concurrency." This test checks more: each unit of a limit is granted once.
//     Remaining in an answer identifies the granted units. All units of a cell must be adjacent, from 0 on, without
//     a gap or an overlap, while the clock runs and windows roll over.
func TestEveryUnitIsHandedOutOnce(t *testing.T) {
	const limit, windows, workers = 2500, 400, 4
	type share struct{ atMs, remaining, cost int64 }
	var requests atomic.Int64
	startMs := epoch.UnixMilli()
	elapsedMs := func() int64 { return requests.Load() / 2 } // requests advance the time
	w := newWorld(t)
	n := w.alone(func(c *dataplane.Config) {
		c.Clock = func() time.Time { return time.UnixMilli(startMs + elapsedMs()) }
		c.ClockSkewMax = windows * time.Second // for requests that were delayed after they read their time
	})
	handle, err := n.Handle("acme", "api", "k", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var shares [workers][windows + 2][]share
	together(workers, func(worker int) {
		rnd := rand.New(rand.NewPCG(uint64(worker), 3))
		for at := elapsedMs(); at < windows*1000; at = elapsedMs() {
			requests.Add(1)
			now, cost := time.UnixMilli(startMs+at), 1+rnd.Int64N(3)
			r := ask("k", cost, limit)
			r.Duration = time.Second
			var d dataplane.Decision
			if rnd.IntN(2) == 0 {
				d = n.AllowAt(context.Background(), now, r)
			} else {
				d = handle.AllowAt(context.Background(), now, limit, dataplane.Cost(cost))
			}
			if d.Allowed {
				cell := (d.ResetAt.UnixMilli()-startMs)/1000 - 1
				shares[worker][cell] = append(shares[worker][cell], share{max(at, cell*1000), d.Remaining, cost})
			}
		}
	})
	previous, all := int64(0), int64(0)
	for cell := range int64(windows + 2) {
		type units struct{ from, to int64 }
		var got []units
		for worker := range shares {
			for _, s := range shares[worker][cell] {
				carried := previous * ((cell+1)*1000 - s.atMs) / 1000
				to := limit - carried - s.remaining
				got = append(got, units{to - s.cost, to})
			}
		}
		slices.SortFunc(got, func(a, b units) int { return cmp.Compare(a.from, b.from) })
		count := int64(0)
		for _, u := range got {
			if u.from != count {
				t.Fatalf("cell %d: units %d to %d were handed out after the first %d", cell, u.from, u.to, count)
			}
			count = u.to
		}
		previous, all = count, all+count
	}
	if all < limit { // a busy machine gets little done, but not nothing
		t.Errorf("only %d accepted", all)
	}
}

//  2. "C … is never below what the origin has confirmed": not with failing batches and merges of the origin's totals
//     at the same time. No caller ever gets a smaller count.
func TestCountsNeverFallBelowTheOrigins(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a", func(c *dataplane.Config) {
		c.Settings, c.Clock = nil, func() time.Time { return epoch }
	})
	ctx, cell := context.Background(), w.cell("k")
	n.take("k", 1, heldLimit)
	n.take("full", 10, 10)
	var merged atomic.Int64
	var stop atomic.Bool
	deadline := time.Now().Add(time.Second)
	steps := []func(){
		func() { n.HoldOne(ask("k", 1000, heldLimit)).Undo() },
		func() { n.AllowMany(ctx, []dataplane.Request{ask("k", 7, heldLimit), ask("full", 1, 10)}) },
		func() {
			added, err := add(w.origin("eu"), cell, 5) // another node's cost
			if err != nil {
				t.Error(err)
			}
			n.Allow(ctx, ask("k", 1, heldLimit))
			if err := n.ReplayOnce(ctx); err != nil {
				t.Error(err)
			}
			merged.Store(added)
		},
		func() {
			least := merged.Load()
			if got := n.Accepted(cell); got < least {
				t.Errorf("%d, the origin had confirmed %d", got, least)
			}
			least = merged.Load()
			if got := n.Allow(ctx, ask("k", 0, heldLimit)).Current; got < float64(least) {
				t.Errorf("a caller sees %v, the origin had confirmed %d", got, least)
			}
			if time.Now().After(deadline) || t.Failed() {
				stop.Store(true)
			}
		},
	}
	together(len(steps), func(i int) {
		for !stop.Load() {
			steps[i]()
		}
	})
	n.replay()
	if s, total := n.Cell(cell), totals(w.origin("eu"))[cell]; s.Count != total || merged.Load() < 100 {
		t.Errorf("%+v, the origin has %d, merged %d", s, total, merged.Load())
	}
}

// 2 to 7, together: two nodes of a region and one of another receive requests, replay, receive other regions' counts
// and are swept at the same time. The clock runs over several windows, and every third call to an origin fails.
// Meanwhile each layer's count of a region stays between the answered cost and the requested cost. In the end all
// layers agree.
func TestConcurrentHistoriesKeepTheInvariants(t *testing.T) {
	w := newWorld(t)
	w.counts = memstore.NewCounts(memstore.CountsOptions{Clock: w.clock.Now, Keep: 24 * time.Hour})
	w.tune(func(set *tuning.Tuning) { set.Floor, set.Step = 0, 0 })
	c := &commotion{w: w, start: w.cell("k0").Sequence}
	c.nodes = []*node{w.node("eu", "e1"), w.node("eu", "e2"), w.node("us", "u1")}
	steps := []func(){c.watching()}
	for i := range c.nodes {
		steps = append(steps, c.asking(i, 0), c.asking(i, 1), c.turning(i))
	}
	c.turns = make([]atomic.Int64, len(steps))
	var calls atomic.Int64
	for _, region := range []string{"eu", "us"} {
		w.origin(region).Faults.Hook(func(memstore.Op) error {
			if calls.Add(1)%3 == 0 {
				return errDown // "certainly not applied"
			}
			return nil
		})
	}
	together(len(steps)+1, func(i int) {
		if i == len(steps) {
			c.pass()
			return
		}
		for !c.over.Load() {
			steps[i]()
			c.turns[i].Add(1)
			runtime.Gosched() // otherwise the others wait for the end of a time slice
		}
	})
	for _, region := range []string{"eu", "us"} {
		w.origin(region).Faults.Hook(nil)
	}
	c.settle(t)
	for _, what := range c.wrong.all() {
		t.Error(what)
	}
}

const (
	commotionKeys    = 4
	commotionWindows = 8
	commotionLimit   = 2000
)

// commotion records the requested and the answered cost, by region and cell.
type commotion struct {
	w     *world
	nodes []*node
	start int64 // sequence of the first cell
	over  atomic.Bool
	turns []atomic.Int64 // rounds of every goroutine
	wrong complaints

	begun, finished [2][commotionKeys][commotionWindows + 3]atomic.Int64 // eu, us
}

func regionOf(node int) int { return node / 2 }

func (c *commotion) cell(key int, window int64) window.Cell {
	cell := c.w.cell(fmt.Sprint("k", key))
	cell.Sequence = c.start + window
	return cell
}

// asking spends on random keys, in singles and batches. Only the answer shows the cell of a cost: until then the cost
// may be in the cell of its time or the next.
func (c *commotion) asking(node, seed int) func() {
	rnd := rand.New(rand.NewPCG(uint64(node), uint64(seed)))
	n, region := c.nodes[node], regionOf(node)
	return func() {
		now := c.w.clock.Now()
		at := now.Sub(epoch).Milliseconds() / 60_000
		items := make([]spend, 1+rnd.IntN(3))
		requests := make([]dataplane.Request, len(items))
		for i := range items {
			items[i] = spend{rnd.IntN(commotionKeys), rnd.Int64N(3)}
			requests[i] = ask(fmt.Sprint("k", items[i].key), items[i].cost, commotionLimit)
			c.begun[region][items[i].key][at].Add(items[i].cost)
			c.begun[region][items[i].key][at+1].Add(items[i].cost)
		}
		var decisions []dataplane.Decision
		allowed := false
		if len(items) == 1 {
			d := n.AllowAt(context.Background(), now, requests[0])
			decisions, allowed = []dataplane.Decision{d}, d.Allowed
		} else {
			b := n.AllowManyAt(context.Background(), now, requests)
			decisions, allowed = b.Decisions, b.Allowed
		}
		for i, it := range items {
			in := decisions[i].ResetAt.Sub(epoch).Milliseconds()/60_000 - 1
			if allowed {
				c.finished[region][it.key][in].Add(it.cost)
			}
			for _, maybe := range []int64{at, at + 1} {
				if !allowed || maybe != in {
					c.begun[region][it.key][maybe].Add(-it.cost)
				}
			}
		}
	}
}

// turning runs a node's loops, one after another and as fast as possible.
func (c *commotion) turning(node int) func() {
	n, ctx := c.nodes[node], context.Background()
	return func() {
		for _, step := range []func(context.Context) error{n.ReplayOnce} {
			if err := step(ctx); err != nil && !errors.Is(err, errDown) {
				c.wrong.add("node %d: %v", node, err)
			}
		}
		n.Sweep()
	}
}

// pass advances the clock each time when all goroutines have had ten rounds. So no goroutine stays in a round for
// longer than two steps, and even a busy machine sends enough requests for a meaningful total (some 11,500 by six
// callers in 96 steps).
func (c *commotion) pass() {
	defer c.over.Store(true)
	for c.w.clock.Now().Before(epoch.Add(commotionWindows * time.Minute)) {
		until := make([]int64, len(c.turns))
		for i := range until {
			until[i] = c.turns[i].Load() + 10
		}
		for i := range until {
			for c.turns[i].Load() < until[i] {
				runtime.Gosched()
			}
		}
		c.w.clock.advance(5 * time.Second)
	}
}

// watching checks all layers, over and over.
func (c *commotion) watching() func() {
	type place struct {
		node int
		cell window.Cell
	}
	last := map[place]dataplane.CellState{}
	return func() {
		now := c.w.clock.Now().Sub(epoch).Milliseconds() / 60_000
		for key := range commotionKeys {
			for in := max(0, now-2); in <= now; in++ {
				cell := c.cell(key, in)
				for i, n := range c.nodes {
					s := n.Cell(cell)
					if !s.Held {
						continue
					}
					c.checkBooks(i, cell, last[place{i, cell}], s)
					last[place{i, cell}] = s
					c.checkBounds(fmt.Sprint("node ", i), regionOf(i), key, in, s.Count)
					c.checkBounds(fmt.Sprint("abroad of node ", i), 1-regionOf(i), key, in, s.Foreign)
				}
				for region, name := range []string{"eu", "us"} {
					total, row := totals(c.w.origin(name))[cell], c.w.published(name, cell)
					c.checkBounds("origin of "+name, region, key, in, total)
					c.checkBounds("row of "+name, region, key, in, row)
				}
			}
		}
	}
}

// checkBooks checks a reading of a cell against its invariants, and against the previous reading.
func (c *commotion) checkBooks(node int, cell window.Cell, before, now dataplane.CellState) {
	switch {
	case now.Unsent < 0 || now.Settled < 0:
		c.wrong.add("node %d, %v: 0 <= settled <= C: %+v", node, cell, now)
	case now.Count < before.Count, now.Foreign < before.Foreign, !before.Sending && now.Settled < before.Settled:
		c.wrong.add("node %d, %v: %+v, and before %+v", node, cell, now, before)
	}
}

// checkBounds checks that a count is within its bounds: no node counts more than the requested cost.
func (c *commotion) checkBounds(who string, region, key int, in, count int64) {
	if most := c.begun[region][key][in].Load(); count > most {
		c.wrong.add("%s: %d in key %d, window %d, and %d were begun", who, count, key, in, most)
	}
}

// settle delivers everything, and compares.
func (c *commotion) settle(t *testing.T) {
	for range 3 {
		for _, n := range c.nodes {
			n.AwaitCalls()
			n.replay()
			n.replay()
		}
	}
	w := c.w
	w.converge()
	var total int64
	for key := range commotionKeys {
		for in := range int64(commotionWindows) {
			cell := c.cell(key, in)
			for region, name := range []string{"eu", "us"} {
				accepted := c.finished[region][key][in].Load()
				total += accepted
				if begun := c.begun[region][key][in].Load(); begun != accepted {
					t.Errorf("the test's own books: %d begun, %d finished", begun, accepted)
				}
				if cell.ExpiresAtMs() <= w.clock.Now().UnixMilli() {
					continue
				}
				if row := w.published(name, cell); row != accepted {
					t.Errorf("%s published %d of %d in key %d, window %d", name, row, accepted, key, in)
				}
				if got := totals(w.origin(name))[cell]; got != accepted {
					t.Errorf("the origin of %s has %d of %d in key %d, window %d", name, got, accepted, key, in)
				}
				if got := w.origin([]string{"us", "eu"}[region]).Totals()[cell].Foreign; got != accepted {
					t.Errorf("the other region knows of %d of %d of %s in key %d, window %d", got, accepted, name, key, in)
				}
			}
		}
	}
	for i, n := range c.nodes {
		if h := n.Health(); h.PendingCost != 0 || h.DroppedCost != 0 {
			t.Errorf("node %d: %d pending, %d dropped", i, h.PendingCost, h.DroppedCost)
		}
	}
	if total < commotionKeys*commotionLimit {
		t.Errorf("only %d accepted", total)
	}
	t.Logf("%d accepted", total)
}

// complaints keeps the first few complaints.
type complaints struct {
	count atomic.Int64
	first [5]atomic.Pointer[string]
}

func (c *complaints) add(format string, args ...any) {
	if i := c.count.Add(1) - 1; i < int64(len(c.first)) {
		text := fmt.Sprintf(format, args...)
		c.first[i].Store(&text)
	}
}

func (c *complaints) all() (texts []string) {
	for i := range c.first {
		if text := c.first[i].Load(); text != nil {
			texts = append(texts, *text)
		}
	}
	return texts
}
