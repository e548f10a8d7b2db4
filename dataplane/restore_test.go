package dataplane_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/window"
)

// R6: an origin that was emptied ends with no less than the cost that the remaining nodes have accepted, and with no
// more than the accepted cost. That holds in any history of replays, lost replies, late chunks, outages, wipes,
// failovers and deaths.
//
// Half of the histories have late chunks. The others have failovers, in which another process's repeated chunks could
// hide that an earlier chunk is lost.
func TestAnyHistoryOfAnOriginThatForgetsEndsWithWhatWasAccepted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newForgetful(rt, t)
		actions := map[string]func(*rapid.T){
			"take": h.take, "take more": h.take, "replay": h.replay, "wipe": h.wipe, "die": h.die, "faults": h.faults,
		}
		if rapid.Bool().Draw(rt, "failovers") {
			actions["remember"], actions["fail over"] = h.remember, h.failOver
		} else {
			actions["late"] = h.late
		}
		rt.Repeat(actions)
		h.settle()
		h.check(rt)
	})
}

// forgetful is a region whose origin loses data.
type forgetful struct {
	w        *world
	nodes    []*forgottenNode
	accepted map[string]int64 // by identifier, also by nodes that have died
	state    *memstore.OriginState
}

type forgottenNode struct {
	*dataplane.Limiter
	way      *memstore.Origin
	accepted map[string]int64
}

var forgettable = []string{"k0", "k1", "k2"}

func newForgetful(rt *rapid.T, t *testing.T) *forgetful {
	h := &forgetful{w: newWorld(t), accepted: map[string]int64{}}
	for i := range rapid.IntRange(1, 3).Draw(rt, "nodes") {
		h.nodes = append(h.nodes, h.w.forgotten(fmt.Sprint("n", i)))
	}
	return h
}

// forgotten returns a node with its own way to the region's origin.
func (w *world) forgotten(id string) *forgottenNode {
	n := &forgottenNode{way: w.origin("eu").Client(), accepted: map[string]int64{}}
	n.Limiter = w.node("eu", id, func(c *dataplane.Config) { c.Origin = n.way }).Limiter
	return n
}

// accept makes the node accept a cost; every cost fits.
func (n *forgottenNode) accept(identifier string, cost int64) bool {
	n.accepted[identifier] += cost
	d := n.Allow(context.Background(), dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: identifier,
		Duration: time.Hour, Limit: heldLimit, Cost: cost})
	n.AwaitCalls()
	return d.Allowed
}

func (h *forgetful) accept(n *forgottenNode, identifier string, cost int64) {
	h.accepted[identifier] += cost
	if !n.accept(identifier, cost) {
		h.w.t.Fatalf("%d of %s was denied", cost, identifier)
	}
}

func (h *forgetful) node(rt *rapid.T) *forgottenNode {
	return rapid.SampledFrom(h.nodes).Draw(rt, "node")
}

func (h *forgetful) take(rt *rapid.T) {
	h.accept(h.node(rt), rapid.SampledFrom(forgettable).Draw(rt, "key"), rapid.Int64Range(1, 100).Draw(rt, "cost"))
}

func (h *forgetful) replay(rt *rapid.T) {
	n := h.node(rt)
	_ = n.ReplayOnce(context.Background()) // its way may be down
	n.AwaitCalls()
}

func (h *forgetful) wipe(*rapid.T) {
	h.w.origin("eu").Wipe()
	h.state = nil
}

func (h *forgetful) die(rt *rapid.T) {
	if i := rapid.IntRange(0, len(h.nodes)-1).Draw(rt, "node"); len(h.nodes) > 1 {
		h.nodes = append(h.nodes[:i:i], h.nodes[i+1:]...)
	}
}

func (h *forgetful) faults(rt *rapid.T) {
	n := h.node(rt)
	n.heal()
	switch rapid.IntRange(0, 2).Draw(rt, "fault") {
	case 1:
		n.way.Faults.Fail(errDown)
	case 2:
		n.way.Faults.LoseReplies(true)
	}
}

func (n *forgottenNode) heal() {
	n.way.Faults.Fail(nil)
	n.way.Faults.LoseReplies(false)
}

// late makes a node's next chunk arrive after others, and perhaps after a wipe; its answer is lost.
func (h *forgetful) late(rt *rapid.T) {
	if n := h.node(rt); rapid.Bool().Draw(rt, "hold") {
		n.way.HoldChunks()
	} else {
		n.way.DeliverChunks()
	}
}

func (h *forgetful) remember(*rapid.T) {
	state := h.w.origin("eu").State()
	h.state = &state
}

func (h *forgetful) failOver(*rapid.T) {
	if h.state != nil {
		h.w.origin("eu").Rollback(*h.state)
	}
}

// settle makes each remaining node read the epoch, and send until nothing is unsent.
func (h *forgetful) settle() {
	for _, n := range h.nodes {
		n.heal()
		n.way.DeliverChunks()
	}
	for range 4 {
		for _, n := range h.nodes {
			for _, key := range forgettable {
				h.accept(n, key, 1)
			}
			if err := n.ReplayOnce(context.Background()); err != nil && n.Health().PendingCost == 0 {
				h.w.t.Fatal(err)
			}
			n.AwaitCalls()
		}
	}
	for range 4 {
		for _, n := range h.nodes {
			_ = n.ReplayOnce(context.Background())
			n.AwaitCalls()
		}
	}
}

func (h *forgetful) check(rt *rapid.T) {
	for _, n := range h.nodes {
		if pending := n.Health().PendingCost; pending != 0 {
			rt.Fatalf("a node has not settled: %d are pending", pending)
		}
	}
	for _, key := range forgettable {
		left := int64(0)
		for _, n := range h.nodes {
			left += n.accepted[key]
		}
		if got := totals(h.w.origin("eu"))[h.w.hourly(key)]; got < left || got > h.accepted[key] {
			rt.Fatalf("%s is %d: the nodes that are left have accepted %d, all nodes %d", key, got, left, h.accepted[key])
		}
	}
}

// hourly returns cell for a window of an hour.
func (w *world) hourly(identifier string) window.Cell {
	c := w.cell(identifier)
	c.Duration = time.Hour
	c.Sequence = window.Sequence(w.clock.Now().UnixMilli(), c.DurationMs())
	return c
}

// Two nodes that accept 600 a second each go on while their origin is emptied, at each moment between their sends,
// with lost replies: nothing is lost, and nothing is counted twice.
func TestAnOriginEmptiedUnderLoadLosesNothing(t *testing.T) {
	for _, moment := range []string{"before a sends", "between", "with a's reply lost", "with both replies lost"} {
		w := newWorld(t)
		a, b := w.forgotten("a"), w.forgotten("b")
		for tick := range 40 {
			for i := range 10 {
				a.accept(fmt.Sprint("k", i), 6)
				b.accept(fmt.Sprint("k", i), 6)
			}
			now := tick%10 == 9 && tick < 30
			a.way.Faults.LoseReplies(now && (moment == "with a's reply lost" || moment == "with both replies lost"))
			b.way.Faults.LoseReplies(now && moment == "with both replies lost")
			if now && moment == "before a sends" {
				w.origin("eu").Wipe()
			}
			_ = a.ReplayOnce(t.Context())
			if now && moment != "before a sends" {
				w.origin("eu").Wipe()
			}
			_ = b.ReplayOnce(t.Context())
			w.clock.advance(100 * time.Millisecond)
		}
		for range 3 {
			_, _ = a.ReplayOnce(t.Context()), b.ReplayOnce(t.Context())
			a.AwaitCalls()
			b.AwaitCalls()
		}
		for i := range 10 {
			key := fmt.Sprint("k", i)
			if got, want := totals(w.origin("eu"))[w.hourly(key)], a.accepted[key]+b.accepted[key]; got != want {
				t.Errorf("%s, %s: the origin has %d of %d", moment, key, got, want)
			}
		}
	}
}

// If the node finds that an epoch is lost while it merges an answer of that epoch, the answer must not hide the key:
// its cost is restored with the next answer.
func TestWhatALateAnswerTellsOfALostEpochIsRestored(t *testing.T) {
	w := newWorld(t)
	b := w.node("eu", "b")
	b.take("k", 5, 10)
	b.replay()
	var late atomic.Pointer[func()]
	n := w.node("eu", "a", func(c *dataplane.Config) {
		clock := c.Clock
		c.ReadTimeout = 10 * time.Second // the first decision waits for all later events
		c.Clock = func() time.Time {
			if meanwhile := late.Swap(nil); meanwhile != nil {
				(*meanwhile)()
			}
			return clock()
		}
	})
	n.take("other", 1, 10)
	n.replay()
	n.take("other", 1, 10)
	meanwhile := func() {
		w.origin("eu").Wipe()
		_ = n.ReplayOnce(context.Background())
		await.True(t, "the other key is restored", func() bool { return gather(t, n.Limiter)["weir_origin_restored_keys_total"] == 1 })
	}
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpRead {
			late.Store(&meanwhile) // the next reader of the clock is the goroutine that merges the answer
		}
		return nil
	})
	n.take("k", 0, 10)
	w.origin("eu").Faults.Hook(nil)
	w.clock.advance(10 * time.Second)
	n.take("k", 0, 10)
	n.AwaitCalls()
	n.replay()
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 5 {
		t.Errorf("the origin has %d of 5", got)
	}
}
