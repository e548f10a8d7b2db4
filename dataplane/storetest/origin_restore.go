package storetest

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
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
	nodes    []*originNode
	accepted map[window.Cell]int64 // by all nodes, including nodes that have died
	sent     []store.Chunk
	rollback func(testing.TB)
}

func newOriginWorld(rt *rapid.T, t testing.TB, h Origin) *originWorld {
	w := &originWorld{t: t, origin: h, cells: originCells(h, suite.FreshWorkspace(), 2),
		accepted: make(map[window.Cell]int64)}
	for range rapid.IntRange(1, 4).Draw(rt, "nodes") {
		n := &originNode{origin: h.Client(t), stream: newOriginStream(), claims: newOriginStream(),
			cells: make(map[window.Cell]*nodeCell)}
		for _, c := range w.cells {
			n.cells[c] = &nodeCell{}
		}
		w.nodes = append(w.nodes, n)
	}
	return w
}

func (w *originWorld) node(rt *rapid.T) *originNode {
	return w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(rt, "node")]
}

func (w *originWorld) cell(rt *rapid.T) window.Cell {
	return rapid.SampledFrom(w.cells).Draw(rt, "cell")
}

func (w *originWorld) accept(rt *rapid.T) {
	c, cost := w.cell(rt), rapid.Int64Range(1, 100).Draw(rt, "cost")
	n := w.node(rt).cells[c]
	n.accepted, n.unsent = n.accepted+cost, n.unsent+cost
	w.accepted[c] += cost
}

func (w *originWorld) claim(rt *rapid.T) {
	n, c, cost := w.node(rt), w.cell(rt), rapid.Int64Range(1, 100).Draw(rt, "cost")
	cell := n.cells[c]
	bound := store.Cost{Cell: c, Epoch: cell.epoch, Add: cost, AtMost: 1000}
	total := sendAny(rt, n.origin, n.claims.chunk(n.origin, bound))[0]
	if total.Err != nil && !errors.Is(total.Err, store.ErrEpoch) {
		rt.Fatalf("claim: %v", total.Err)
	}
	cell.absorb(total)
	if total.Added {
		cell.accepted += cost
		w.accepted[c] += cost
	}
}

func (w *originWorld) get(rt *rapid.T) {
	n := w.node(rt)
	for i, total := range get(rt, n.origin, w.cells...) {
		n.cells[w.cells[i]].absorb(total)
	}
}

func (w *originWorld) send(rt *rapid.T) {
	n := w.node(rt)
	chunk := n.next(w.cells)
	w.sent = append(w.sent, chunk)
	if rapid.Bool().Draw(rt, "the reply is lost") {
		w.sendLost(rt, n, chunk)
		return
	}
	n.answered(rt, sendAny(rt, n.origin, chunk))
}

func (w *originWorld) sendLost(rt *rapid.T, n *originNode, chunk store.Chunk) {
	if w.origin.Lose != nil {
		w.origin.Lose(true)
		defer w.origin.Lose(false)
	}
	if _, err := n.origin.Send(rt.Context(), chunk); err == nil && w.origin.Lose != nil {
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
		if n.stream.id == chunk.Stream && n.stream.number == chunk.Number {
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
		w.nodes = without(w.nodes, n)
	}
}

func without(nodes []*originNode, dead *originNode) (left []*originNode) {
	for _, n := range nodes {
		if n != dead {
			left = append(left, n)
		}
	}
	return left
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
			n.answered(rt, sendAny(rt, n.origin, n.next(w.cells)))
			probe := n.claims.chunk(n.origin)
			probe.Shard = n.origin.ShardOf(&w.cells[0].Key)
			sendAny(rt, n.origin, probe)
			for i, total := range get(rt, n.origin, w.cells...) {
				n.cells[w.cells[i]].absorb(total)
			}
		}
	}
}

func (w *originWorld) check(rt *rapid.T) {
	for i, total := range get(rt, w.origin, w.cells...) {
		c, left := w.cells[i], int64(0)
		for _, n := range w.nodes {
			left += n.cells[c].accepted
			if cell := n.cells[c]; cell.unsent != 0 || cell.restoring {
				rt.Fatalf("a node has not settled: %+v", *cell)
			}
		}
		if total.Region < left || total.Region > w.accepted[c] {
			rt.Fatalf("%v is %d: the nodes that are left have accepted %d, all nodes %d", c, total.Region, left, w.accepted[c])
		}
	}
}

// originNode makes the calls that a limiter must make, in sequence.
type originNode struct {
	origin  store.Origin
	stream  originStream
	claims  originStream
	cells   map[window.Cell]*nodeCell
	pending *store.Chunk
}

// nodeCell is a node's state of a cell.
type nodeCell struct {
	accepted int64 // by this node, ever
	epoch    store.Epoch
	unsent   int64 // accepted since it received the epoch, and perhaps not at the origin
	known    int64 // highest region total of any answer

	restoring            bool // these are to be sent
	restore, restoreWith int64
}

// next returns the chunk that was not answered, or a new chunk.
func (n *originNode) next(cells []window.Cell) store.Chunk {
	if n.pending != nil {
		return *n.pending
	}
	var costs []store.Cost
	for _, c := range cells {
		cell := n.cells[c]
		cost := store.Cost{Cell: c, Epoch: cell.epoch, Add: cell.unsent}
		if cell.restoring {
			cost.Restore, cost.Known = cell.restore, cell.restoreWith
		}
		costs = append(costs, cost)
	}
	chunk := n.stream.chunk(n.origin, costs...)
	n.pending = &chunk
	return chunk
}

func (n *originNode) answered(t suite.Reporter, totals []store.Total) {
	for i, total := range totals {
		cost := n.pending.Costs[i]
		cell := n.cells[cost.Cell]
		switch {
		case errors.Is(total.Err, store.ErrEpoch) && cost.Epoch == 0 && !cell.restoring:
			// It was first sent in an epoch in which others may have been answered with it.
			cell.restoring, cell.restore, cell.unsent = true, cell.unsent, 0
		case total.Err == nil && (cost.Epoch == cell.epoch ||
			cost.Epoch == 0 && (cell.epoch == 0 || cell.epoch == total.Epoch)):
			cell.unsent -= cost.Add
			cell.restoring = false
		case total.Err != nil && !errors.Is(total.Err, store.ErrEpoch):
			t.Fatalf("%+v: %v", cost, total.Err)
		}
		cell.absorb(total)
	}
	n.pending = nil
}

// absorb merges an answer. An answer with an error has no counts, but can have an epoch.
func (c *nodeCell) absorb(t store.Total) {
	if t.Epoch != c.epoch && t.Epoch != 0 {
		if c.epoch != 0 {
			c.begin(t.Epoch)
		}
		c.epoch = t.Epoch
	}
	c.known = max(c.known, t.Region)
}

// begin starts a new epoch: all that was accepted so far is to be restored.
func (c *nodeCell) begin(epoch store.Epoch) {
	*c = nodeCell{
		accepted: c.accepted, known: c.known, epoch: epoch,
		restoring: true, restore: c.accepted, restoreWith: c.known,
	}
}
