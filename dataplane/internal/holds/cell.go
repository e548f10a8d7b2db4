package holds

import (
	"container/heap"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Cell has the holds of a cell.
type Cell struct {
	Sum      int64 // of the amounts that all holds count, with ended and forgotten holds
	Most     int64 // the largest sum so far, without tentative and restored amounts
	Restored int64 // the sum of the amounts that were restored

	cell      window.Cell
	tentative int64 // part of Sum
	open      int   // holds that have not ended
	by        map[string]*hold
}

// Grown raises Most to the present sum, and returns by how much.
func (c *Cell) Grown() int64 {
	grown := max(0, c.Sum-c.tentative-c.Restored-c.Most)
	c.Most += grown
	return grown
}

// hold is the hold of an owner.
type hold struct {
	amount, after int64
	endsMs        int64 // Unix ms
	ended         bool  // after counts, not amount
	final         bool  // it has ended for good: no HoldState changes it
	void          bool  // the cell had ended when the hold was made, and it counts nothing
	tentative     bool
	charge        Charge

	owner string
	of    *Cell
	at    int // index in the group's queue
}

func (h *hold) counts() int64 {
	if h.ended {
		return h.after
	}
	return h.amount
}

// charged sets the hold's charge to the amount that the hold counts.
func (h *hold) charged() {
	if h.charge != nil {
		h.charge.Set(h.counts())
	}
}

// dueMs returns the time at which the hold ends, or is forgotten.
func (h *hold) dueMs() int64 {
	if h.ended {
		return h.endsMs + store.HoldKeptFor.Milliseconds()
	}
	return h.endsMs
}

// count adds a hold to the sums, or subtracts it with -1.
func (h *hold) count(by int) {
	c := h.of
	c.Sum += int64(by) * h.counts()
	if h.tentative {
		c.tentative += int64(by) * h.counts()
	}
	if !h.ended {
		c.open += by
	}
}

// Cell returns the holds of a cell. The group keeps them once there is a hold.
func (g *Group) Cell(c window.Cell) *Cell {
	if held := g.cells[c]; held != nil {
		return held
	}
	return &Cell{cell: c}
}

// look is Cell for a cell that is only read.
func (g *Group) look(c *window.Cell) *Cell {
	if held := g.cells[*c]; held != nil {
		return held
	}
	return &g.none
}

// Counts returns the amount that a hold counts, or 0 for an unknown hold, and whether it has not ended for good.
func (g *Group) Counts(h *store.Hold) (cost int64, held bool) {
	if is := g.find(h); is != nil {
		return is.counts(), !is.final
	}
	return 0, false
}

func (g *Group) find(h *store.Hold) *hold { return g.look(&h.Cell).by[h.Owner] }

// put stores a hold in place of the owner's last hold.
func (g *Group) put(c *Cell, owner string, h hold) {
	g.remove(c, owner)
	if c.by == nil {
		c.by = make(map[string]*hold)
	}
	h.owner, h.of = owner, c
	c.by[owner] = &h
	h.count(1)
	g.cells[c.cell] = c
	heap.Push(&g.due, &h)
}

// replaced is an owner's hold before a call changes it, and the call's change of the cell.
type replaced struct {
	of             *Cell
	owner          string
	hold           *hold // nil: there was none
	most, restored int64
}

func replacedOf(c *Cell, owner string) replaced {
	return replaced{of: c, owner: owner, hold: c.by[owner], most: c.Most, restored: c.Restored}
}

// putBack restores an owner's hold to its state before the call.
func (g *Group) putBack(was *replaced) {
	was.of.Most, was.of.Restored = was.most, was.restored
	if g.remove(was.of, was.owner); was.hold != nil {
		g.put(was.of, was.owner, *was.hold)
	}
}

// remove takes an owner's hold out of the cell's sums.
func (g *Group) remove(c *Cell, owner string) {
	if h := c.by[owner]; h != nil {
		h.count(-1)
		g.forget(h)
	}
}

// forget removes a hold. The amount that it counts stays in the sum.
func (g *Group) forget(h *hold) {
	heap.Remove(&g.due, h.at)
	g.detach(h)
}

// detach removes a hold from its cell.
func (g *Group) detach(h *hold) {
	if delete(h.of.by, h.owner); g.lean && len(h.of.by) == 0 {
		delete(g.cells, h.of.cell)
	}
}

// End ends holds whose time has come, and forgets holds that ended HoldKeptFor ago.
func (g *Group) End(nowMs int64) {
	for len(g.due) > 0 && g.due[0].dueMs() <= nowMs {
		h := g.due[0]
		if h.ended {
			g.forget(h)
			continue
		}
		h.count(-1)
		h.ended, h.tentative = true, false
		h.count(1)
		heap.Fix(&g.due, h.at)
		h.charged()
	}
}

// NextMs returns the time at which End next has work. ok is false if there are no holds.
func (g *Group) NextMs() (nextMs int64, ok bool) {
	if len(g.due) == 0 {
		return 0, false
	}
	return g.due[0].dueMs(), true
}

// ForgetCells forgets the holds of cells that are gone.
func (g *Group) ForgetCells(gone func(c window.Cell) bool) {
	for c, held := range g.cells {
		if !gone(c) {
			continue
		}
		for _, h := range held.by {
			heap.Remove(&g.due, h.at)
		}
		delete(g.cells, c)
	}
}

// queue is a heap of holds. The first hold is due first.
type queue []*hold

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool { return q[i].dueMs() < q[j].dueMs() }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *queue) Push(h any) {
	h.(*hold).at = len(*q)
	*q = append(*q, h.(*hold))
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	h := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return h
}
