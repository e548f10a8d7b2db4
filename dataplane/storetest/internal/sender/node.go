package sender

import (
	"errors"
	"fmt"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/window"
)

// Node makes the calls about some cells that a limiter must make, in sequence.
type Node struct {
	Origin store.Origin

	cells   []window.Cell
	of      map[window.Cell]*cell
	stream  Stream
	claims  Stream
	pending *store.Chunk
}

// cell is a node's state of a cell.
type cell struct {
	accepted int64 // by this node, ever
	epoch    store.Epoch
	unsent   int64 // accepted since it received the epoch, and perhaps not at the origin
	known    int64 // highest region total of any answer

	restoring            bool // these are to be sent
	restore, restoreWith int64
}

// NewNode returns a node that has accepted nothing.
func NewNode(o store.Origin, cells []window.Cell) *Node {
	n := &Node{Origin: o, cells: cells, of: make(map[window.Cell]*cell), stream: NewStream(), claims: NewStream()}
	for _, c := range cells {
		n.of[c] = &cell{}
	}
	return n
}

// Accept accepts a cost.
func (n *Node) Accept(c window.Cell, cost int64) {
	of := n.of[c]
	of.accepted, of.unsent = of.accepted+cost, of.unsent+cost
}

// Accepted returns the cost that the node has ever accepted.
func (n *Node) Accepted(c window.Cell) int64 { return n.of[c].accepted }

// Claim returns a chunk with a bounded cost. Claimed must be called with its answer.
func (n *Node) Claim(c window.Cell, cost, atMost int64) store.Chunk {
	return n.claims.Chunk(n.Origin, store.Cost{Cell: c, Epoch: n.of[c].epoch, Add: cost, AtMost: atMost})
}

// Claimed records the answer to a bounded cost.
func (n *Node) Claimed(c window.Cell, cost int64, total store.Total) {
	n.of[c].absorb(total)
	if total.Added {
		n.of[c].accepted += cost
	}
}

// Probe returns a chunk of the claims' stream without costs, which finds out whether the origin has lost chunks.
func (n *Node) Probe() store.Chunk {
	probe := n.claims.Chunk(n.Origin)
	probe.Shard = n.Origin.ShardOf(&n.cells[0].Key)
	return probe
}

// Next returns the chunk that was not answered, or a new chunk.
func (n *Node) Next() store.Chunk {
	if n.pending != nil {
		return *n.pending
	}
	var costs []store.Cost
	for _, c := range n.cells {
		of := n.of[c]
		cost := store.Cost{Cell: c, Epoch: of.epoch, Add: of.unsent}
		if of.restoring {
			cost.Restore, cost.Known = of.restore, of.restoreWith
		}
		costs = append(costs, cost)
	}
	chunk := n.stream.Chunk(n.Origin, costs...)
	n.pending = &chunk
	return chunk
}

// IsLast reports whether the chunk is the last that Next has returned.
func (n *Node) IsLast(chunk *store.Chunk) bool {
	return n.stream.ID == chunk.Stream && n.stream.Number == chunk.Number
}

// Answered records the answers to the chunk of Next.
func (n *Node) Answered(t suite.Reporter, totals []store.Total) {
	for i, total := range totals {
		cost := n.pending.Costs[i]
		of := n.of[cost.Cell]
		switch {
		case errors.Is(total.Err, store.ErrEpoch) && cost.Epoch == 0 && !of.restoring:
			// It was first sent in an epoch in which others may have been answered with it.
			of.restoring, of.restore, of.unsent = true, of.unsent, 0
		case total.Err == nil && (cost.Epoch == of.epoch ||
			cost.Epoch == 0 && (of.epoch == 0 || of.epoch == total.Epoch)):
			of.unsent -= cost.Add
			of.restoring = false
		case total.Err != nil && !errors.Is(total.Err, store.ErrEpoch):
			t.Fatalf("%+v: %v", cost, total.Err)
		}
		of.absorb(total)
	}
	n.pending = nil
}

// Absorb merges the totals of all cells, as the origin was read.
func (n *Node) Absorb(totals []store.Total) {
	for i, total := range totals {
		n.of[n.cells[i]].absorb(total)
	}
}

// Unsettled returns an error if the node has something left to send of a cell.
func (n *Node) Unsettled(c window.Cell) error {
	if of := n.of[c]; of.unsent != 0 || of.restoring {
		return fmt.Errorf("a node has not settled: %+v", *of)
	}
	return nil
}

// absorb merges an answer. An answer with an error has no counts, but can have an epoch.
func (c *cell) absorb(t store.Total) {
	if t.Epoch != c.epoch && t.Epoch != 0 {
		if c.epoch != 0 {
			c.begin(t.Epoch)
		}
		c.epoch = t.Epoch
	}
	c.known = max(c.known, t.Region)
}

// begin starts a new epoch: all that was accepted so far is to be restored.
func (c *cell) begin(epoch store.Epoch) {
	*c = cell{
		accepted: c.accepted, known: c.known, epoch: epoch,
		restoring: true, restore: c.accepted, restoreWith: c.known,
	}
}
