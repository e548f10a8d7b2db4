package storetest

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/sender"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/window"
)

// An origin that was emptied ends with at least the sum of the cost that the remaining nodes have accepted, and with no
// more than was accepted.
//
// Half of the histories have late chunks and claims. The others have failovers, which lose claims, and in which a chunk
// that another process repeats could hide that an earlier chunk is lost.
func testOriginIsRestored(t *testing.T, open func(t testing.TB) Origin) {
	rapid.Check(t, func(rt *rapid.T) {
		h := keeping(open(t))
		w := newOriginWorld(rt, t, h)
		actions := map[string]func(*rapid.T){
			"accept": w.accept, "accept more": w.accept, "send": w.send, "get": w.get, "wipe": w.wipe, "die": w.die,
		}
		actions["claim"] = w.claim
		if rapid.Bool().Draw(rt, "failovers") && h.State != nil {
			actions["remember"], actions["fail over"] = w.remember, w.failOver
		} else {
			actions["late"] = w.late
		}
		rt.Repeat(actions)
		w.settle(rt)
		w.check(rt)
	})
}

// originWorld is a region: some nodes that share an origin.
type originWorld struct {
	t        testing.TB
	origin   Origin
	cells    []window.Cell
	nodes    []*sender.Node
	accepted map[window.Cell]int64 // by all nodes, including nodes that have died
	sent     []store.Chunk
	rollback func(testing.TB)
}

func newOriginWorld(rt *rapid.T, t testing.TB, h Origin) *originWorld {
	w := &originWorld{t: t, origin: h, cells: originCells(h, suite.FreshWorkspace(), 2),
		accepted: make(map[window.Cell]int64)}
	for range rapid.IntRange(1, 4).Draw(rt, "nodes") {
		w.nodes = append(w.nodes, sender.NewNode(h.Client(t), w.cells))
	}
	return w
}

func (w *originWorld) node(rt *rapid.T) *sender.Node {
	return w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(rt, "node")]
}

func (w *originWorld) cell(rt *rapid.T) window.Cell {
	return rapid.SampledFrom(w.cells).Draw(rt, "cell")
}

func (w *originWorld) accept(rt *rapid.T) {
	c, cost := w.cell(rt), rapid.Int64Range(1, 100).Draw(rt, "cost")
	w.node(rt).Accept(c, cost)
	w.accepted[c] += cost
}

func (w *originWorld) claim(rt *rapid.T) {
	n, c, cost := w.node(rt), w.cell(rt), rapid.Int64Range(1, 100).Draw(rt, "cost")
	total := sendAny(rt, n.Origin, n.Claim(c, cost, 1000))[0]
	if total.Err != nil && !errors.Is(total.Err, store.ErrEpoch) {
		rt.Fatalf("claim: %v", total.Err)
	}
	n.Claimed(c, cost, total)
	if total.Added {
		w.accepted[c] += cost
	}
}

func (w *originWorld) get(rt *rapid.T) {
	n := w.node(rt)
	n.Absorb(get(rt, n.Origin, w.cells...))
}

func (w *originWorld) send(rt *rapid.T) {
	n := w.node(rt)
	chunk := n.Next()
	w.sent = append(w.sent, chunk)
	if rapid.Bool().Draw(rt, "the reply is lost") {
		w.sendLost(rt, n, chunk)
		return
	}
	n.Answered(rt, sendAny(rt, n.Origin, chunk))
}

func (w *originWorld) sendLost(rt *rapid.T, n *sender.Node, chunk store.Chunk) {
	if w.origin.Lose != nil {
		w.origin.Lose(true)
		defer w.origin.Lose(false)
	}
	if _, err := n.Origin.Send(rt.Context(), chunk); err == nil && w.origin.Lose != nil {
		rt.Fatal("there was a reply")
	}
}

// late repeats a chunk after its sender's next chunk, or a dead sender's last chunk.
func (w *originWorld) late(rt *rapid.T) {
	if len(w.sent) == 0 {
		return
	}
	chunk := rapid.SampledFrom(w.sent).Draw(rt, "chunk")
	for _, n := range w.nodes {
		if n.IsLast(&chunk) {
			return
		}
	}
	for i := range chunk.Costs { // as its sender had it stamped at the latest
		if chunk.Costs[i].Epoch == 0 {
			return
		}
	}
	sendAny(rt, w.origin, chunk)
}

func (w *originWorld) wipe(*rapid.T) {
	w.origin.Wipe(w.t)
	w.rollback = nil
}

func (w *originWorld) die(rt *rapid.T) {
	if n := w.node(rt); len(w.nodes) > 1 {
		w.nodes = slices.DeleteFunc(w.nodes, func(other *sender.Node) bool { return other == n })
	}
}

func (w *originWorld) remember(*rapid.T) { w.rollback = w.origin.State(w.t) }

func (w *originWorld) failOver(*rapid.T) {
	if w.rollback != nil {
		w.rollback(w.t)
	}
}

// settle lets the remaining nodes receive the epoch, and send until nothing is left to send.
func (w *originWorld) settle(rt *rapid.T) {
	for _, n := range w.nodes {
		for range 3 { // unanswered chunks, cost to restore, and a chunk that finds out lost chunks
			n.Answered(rt, sendAny(rt, n.Origin, n.Next()))
			sendAny(rt, n.Origin, n.Probe())
			n.Absorb(get(rt, n.Origin, w.cells...))
		}
	}
}

func (w *originWorld) check(rt *rapid.T) {
	for i, total := range get(rt, w.origin, w.cells...) {
		c, left := w.cells[i], int64(0)
		for _, n := range w.nodes {
			left += n.Accepted(c)
			if err := n.Unsettled(c); err != nil {
				rt.Fatal(err)
			}
		}
		if total.Region < left || total.Region > w.accepted[c] {
			rt.Fatalf("%v is %d: the nodes that are left have accepted %d, all nodes %d", c, total.Region, left, w.accepted[c])
		}
	}
}
