package dataplane_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirhq/weir/dataplane"
)

// Concurrent singles and batches on a few keys are linearizable: there is an order of all calls, in which each call
// is between its start and its return, that a limiter deciding one call at a time could have produced. The clock
// stands still, so a key is one cell.
func TestSinglesAndBatchesAreLinearizable(t *testing.T) {
	for _, fleet := range []bool{false, true} {
		t.Run(fmt.Sprintf("fleet %v", fleet), func(t *testing.T) {
			var n *node
			histories := 0
			for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); histories++ {
				if histories%10_000 == 0 { // otherwise its table would fill up
					n = timeless(t, fleet)
				}
				h := newSpending(uint64(histories))
				h.run(func(items []spend) bool { return n.spend(histories, items) })
				if !porcupine.CheckOperations(spendingModel, h.operations()) {
					t.Fatalf("no order explains history %d:\n%s", histories, h)
				}
			}
			t.Logf("%d histories", histories)
		})
	}
}

// timeless returns a node whose clock stands still.
func timeless(t *testing.T, fleet bool) *node {
	w := newWorld(t)
	return w.alone(func(c *dataplane.Config) {
		c.Clock = func() time.Time { return epoch }
		if fleet {
			c.Region, c.NodeID, c.Settings = "eu", "a", w.counts
		}
	})
}

// The same check detects a limiter that checks first and counts afterwards.
func TestLookingFirstIsNotLinearizable(t *testing.T) {
	deadline := time.Now().Add(10 * time.Second)
	for seed := uint64(0); time.Now().Before(deadline); seed++ {
		var counts [spendKeys]atomic.Int64
		h := newSpending(seed)
		h.run(func(items []spend) bool {
			for _, it := range items {
				if counts[it.key].Load()+it.cost > spendLimit {
					return false
				}
			}
			runtime.Gosched()
			for _, it := range items {
				counts[it.key].Add(it.cost)
			}
			return true
		})
		if !porcupine.CheckOperations(spendingModel, h.operations()) {
			return
		}
	}
	t.Error("no history was found out")
}

const (
	spendKeys  = 3
	spendLimit = 9
)

// spend is a cost on one of the keys. A single spend is a single request, several are a batch.
type spend struct {
	key  int
	cost int64
}

func (n *node) spend(history int, items []spend) bool {
	requests := make([]dataplane.Request, len(items))
	for i, it := range items {
		requests[i] = ask(fmt.Sprint("h", history, "k", it.key), it.cost, spendLimit)
	}
	if len(requests) == 1 {
		return n.Allow(context.Background(), requests[0]).Allowed
	}
	return n.AllowMany(context.Background(), requests).Allowed
}

// spending is a history: concurrent requests of a few clients, and the answers.
type spending struct {
	clients [][]spent
	time    atomic.Int64 // orders calls and returns
}

type spent struct {
	items            []spend
	allowed          bool
	called, returned int64
}

func newSpending(seed uint64) *spending {
	rnd := rand.New(rand.NewPCG(seed, 11))
	h := &spending{clients: make([][]spent, 2+rnd.IntN(3))}
	for c := range h.clients {
		h.clients[c] = make([]spent, 3+rnd.IntN(5))
		for i := range h.clients[c] {
			items := make([]spend, max(1, rnd.IntN(5)-1))
			for j := range items {
				items[j] = spend{rnd.IntN(spendKeys), 1 + rnd.Int64N(3)}
			}
			h.clients[c][i].items = items
		}
	}
	return h
}

// run starts the clients, all at the same moment.
func (h *spending) run(decide func([]spend) bool) {
	var ready atomic.Int64
	together(len(h.clients), func(c int) {
		for ready.Add(1); int(ready.Load()) < len(h.clients); {
			runtime.Gosched()
		}
		for i := range h.clients[c] {
			s := &h.clients[c][i]
			s.called = h.time.Add(1)
			s.allowed = decide(s.items)
			s.returned = h.time.Add(1)
		}
	})
}

func (h *spending) operations() []porcupine.Operation {
	var ops []porcupine.Operation
	for c := range h.clients {
		for i := range h.clients[c] {
			s := &h.clients[c][i]
			ops = append(ops, porcupine.Operation{ClientId: c, Input: s.items, Output: s.allowed, Call: s.called, Return: s.returned})
		}
	}
	return ops
}

func (h *spending) String() (text string) {
	for c, calls := range h.clients {
		for _, s := range calls {
			text += fmt.Sprintf("client %d, %d to %d: %v -> %v\n", c, s.called, s.returned, s.items, s.allowed)
		}
	}
	return text
}

// spendingModel is a limiter that decides one call at a time: all items or none.
var spendingModel = porcupine.Model{
	Init: func() any { return [spendKeys]int64{} },
	Step: func(state, input, output any) (bool, any) {
		counts, fits := state.([spendKeys]int64), true
		for _, it := range input.([]spend) {
			counts[it.key] += it.cost
			fits = fits && counts[it.key] <= spendLimit
		}
		if output.(bool) {
			return fits, counts
		}
		return !fits, state
	},
}
