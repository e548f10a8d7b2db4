// Package synthetic has nodes without a limiter. Scenarios of relays use them for fleets that are too large for real
// limiters.
package synthetic

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/sim/internal/network"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Node sends to its origin as a node must (see store.Origin), but has no limiter. It accepts cost in fixed windows
// while the counts that it has received for the cell are below the limit, and sends once a tick. Its methods may be
// called concurrently.
type Node struct {
	origin store.Origin
	random *rand.Rand
	ledger Ledger

	mu     sync.Mutex
	cells  map[window.Cell]*cell
	dirty  []*cell     // cells with cost to send
	latest window.Cell // the last cell that was counted in
	epoch  store.Epoch
	number int64
	flight *store.Chunk // sent, but not answered yet
}

// Ledger records what a node does.
type Ledger interface {
	// Decided records a decision on a cost, before the node sends the cost.
	Decided(cell window.Cell, cost, limit int64, allowed bool)

	// Refused records that the origin has refused a cost for another reason than its epoch.
	Refused(cost store.Cost, err error)
}

// New returns a node that Run starts. The caller of Run may use random, too.
func New(origin store.Origin, random *rand.Rand, ledger Ledger) *Node {
	return &Node{origin: origin, random: random, ledger: ledger, cells: make(map[window.Cell]*cell)}
}

// cell is a node's record of a cell.
type cell struct {
	name     window.Cell
	limit    int64
	epoch    store.Epoch // 0 before the first answer
	accepted int64       // by this node, ever
	unsent   int64       // part of it in this epoch that may not be at the origin
	region   int64       // highest region total in an answer
	foreign  int64
	dirty    bool

	restoring      bool // restore and known must be sent
	restore, known int64
}

const (
	tick       = 100 * time.Millisecond
	timeout    = time.Second
	chunksMax  = 4   // most chunks of one tick
	sweepEvery = 100 // ticks between two sweeps of expired cells
	askEvery   = 10  // ticks between two checks of the origin's epoch
)

// Run calls generate, which may charge costs, and then sends, once a tick until ctx ends.
func (n *Node) Run(ctx context.Context, generate func()) {
	stream := n.random.Uint64() | 1 // of this incarnation
	timer := time.NewTimer(time.Duration(n.random.Float64() * float64(tick)))
	defer timer.Stop()
	for ticks := 1; ; ticks++ {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(tick)
		generate()
		for range chunksMax {
			n.send(ctx, stream)
		}
		if ticks%askEvery == 0 {
			n.ask(ctx)
		}
		if ticks%sweepEvery == 0 {
			n.sweep()
		}
	}
}

// Charge decides on a cost by the totals that the node has.
func (n *Node) Charge(key *window.Key, cost, limit int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.cellLocked(key)
	allowed := c.region+c.foreign+c.unsent+cost <= limit
	n.ledger.Decided(c.name, cost, limit, allowed)
	if !allowed {
		return false
	}
	c.limit = limit
	c.accepted, c.unsent = c.accepted+cost, c.unsent+cost
	n.markLocked(c)
	return true
}

// cellLocked returns the cell that the key counts in now.
func (n *Node) cellLocked(key *window.Key) *cell {
	name := window.Cell{Key: *key, Sequence: window.Sequence(time.Now().UnixMilli(), key.DurationMs())}
	n.latest = name
	c := n.cells[name]
	if c == nil {
		c = &cell{name: name}
		n.cells[name] = c
	}
	return c
}

func (n *Node) markLocked(c *cell) {
	if !c.dirty {
		c.dirty = true
		n.dirty = append(n.dirty, c)
	}
}

// Visit decides as a node does on first contact with a key: it reads the cell from its origin first.
func (n *Node) Visit(ctx context.Context, key *window.Key, cost, limit int64) bool {
	n.mu.Lock()
	name := n.cellLocked(key).name
	n.mu.Unlock()
	n.read(ctx, []window.Cell{name})
	return n.Charge(key, cost, limit)
}

// ask reads a cell, so that a node without cost to send notices if its origin has lost its counts.
func (n *Node) ask(ctx context.Context) {
	n.mu.Lock()
	latest := n.latest
	n.mu.Unlock()
	if latest.Identifier != "" {
		n.read(ctx, []window.Cell{latest})
	}
}

func (n *Node) read(ctx context.Context, cells []window.Cell) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := n.origin.Read(ctx, cells)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, total := range reply.Totals {
		n.absorbLocked(n.cells[cells[i]], total)
	}
}

// send sends the chunk that was not answered, or a new chunk.
func (n *Node) send(ctx context.Context, stream uint64) {
	chunk := n.chunk(stream)
	if chunk == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := n.origin.Send(ctx, *chunk)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.flight = nil
	for i, total := range reply.Totals {
		n.answeredLocked(&chunk.Costs[i], total)
	}
}

func (n *Node) chunk(stream uint64) *store.Chunk {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.flight != nil || len(n.dirty) == 0 {
		return n.flight
	}
	n.number++
	n.flight = &store.Chunk{Stream: stream, Number: n.number}
	most := min(len(n.dirty), store.ChunkMax)
	for _, c := range n.dirty[:most] {
		c.dirty = false
		cost := store.Cost{Cell: c.name, Epoch: c.epoch, Add: c.unsent, Limit: c.limit}
		if c.restoring {
			cost.Restore, cost.Known = c.restore, c.known
		}
		n.flight.Costs = append(n.flight.Costs, cost)
	}
	n.dirty = n.dirty[most:]
	if len(n.dirty) == 0 {
		n.dirty = nil
	}
	return n.flight
}

// answeredLocked applies the answer to a cost.
func (n *Node) answeredLocked(sent *store.Cost, total store.Total) {
	c := n.cells[sent.Cell]
	if c == nil {
		return // the cell has expired
	}
	switch {
	case errors.Is(total.Err, store.ErrEpoch):
		// the cost may have been counted in the epoch in which it was first sent
		if sent.Epoch == 0 && !c.restoring {
			c.restoring, c.restore, c.unsent = true, c.unsent, 0
		}
		n.absorbLocked(c, total)
		n.markLocked(c)
		return
	case total.Err != nil:
		n.ledger.Refused(*sent, total.Err)
		return
	case sent.Epoch == c.epoch, sent.Epoch == 0 && c.epoch == total.Epoch:
		c.unsent -= sent.Add
		c.restoring = false
	}
	n.absorbLocked(c, total)
	if c.unsent > 0 || c.restoring {
		n.markLocked(c)
	}
}

// absorbLocked applies an answer. All cells of an origin share its epoch: if the epoch is new, every cell begins it.
func (n *Node) absorbLocked(c *cell, total store.Total) {
	if c == nil || total.Epoch == 0 {
		return
	}
	if n.epoch != total.Epoch {
		for _, other := range n.cells {
			if other.epoch != 0 && other.epoch != total.Epoch {
				other.begin(total.Epoch)
				n.markLocked(other)
			}
		}
		n.epoch = total.Epoch
	}
	c.epoch = total.Epoch
	c.region, c.foreign = max(c.region, total.Region), max(c.foreign, total.Foreign)
}

// begin starts a new epoch, in which all accepted cost must be restored.
func (c *cell) begin(epoch store.Epoch) {
	c.epoch, c.unsent = epoch, 0
	c.restoring, c.restore, c.known = true, c.accepted, c.region
}

// Listen receives foreign totals until ctx ends.
func (n *Node) Listen(ctx context.Context) {
	for ctx.Err() == nil {
		_ = n.origin.Listen(ctx, 0, n.applyForeign)
		_ = network.Pause(ctx, timeout, "listen again")
	}
}

func (n *Node) applyForeign(totals []store.Foreign) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range totals {
		if c := n.cells[totals[i].Cell]; c != nil {
			c.foreign = max(c.foreign, totals[i].Count)
		}
	}
}

// sweep forgets cells that have expired, except cells with unsent cost.
func (n *Node) sweep() {
	nowMs := time.Now().UnixMilli()
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.cells, func(name window.Cell, c *cell) bool {
		return name.ExpiresAtMs() < nowMs && !c.dirty && c.unsent == 0
	})
}
