// Package holds applies calls about reservations to a group of an origin: see store.Reservations. It keeps the group's
// records and the holds of its cells. It has no clock, no lock and no I/O: callers pass the time, and must not use a
// Group concurrently.
//
//	holds.go   calls, and statements about holds
//	cell.go    the holds of a cell, and their ends
//	record.go  records
//
// memstore keeps a region's reservations with it, and package permits keeps the reservations that a process makes by
// itself.
package holds

import (
	"container/heap"
	"maps"
	"slices"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Counts are the counts of the cells that have the holds.
type Counts interface {
	// Expired reports whether a cell rejects further statements.
	Expired(c window.Cell) bool

	// Used returns the count of a cell in which a new hold must find room. It includes the cell's holds.
	Used(c *window.Cell, held *Cell) int64

	// Grant reports whether the call's i-th hold, a new hold, fits with a.Used and a.UsedBefore. The charge may be nil.
	Grant(i int, h *store.Hold, a *store.HoldAnswer) (c Charge, ok bool)
}

// Charge is the cost that was counted for a hold. In a process that reserves by itself, each hold has a Charge, in the
// table's entry of its key. In memstore it is nil, because a cell's count is computed from the sum of its holds.
type Charge interface {
	// Set changes the cost to the amount that the hold counts now. For example, if a hold of 500 is settled with 120,
	// Set(120) gives back 380.
	Set(cost int64)
}

// Group has the records and holds of a group. A Group must not be used concurrently.
type Group struct {
	lean    bool // forgets a cell together with its last hold
	cells   map[window.Cell]*Cell
	none    Cell // stands for all cells without holds; it is never changed
	due     queue
	records map[string]record
	streams map[uint64]stream
	sweepAt int // number of records and streams at which old entries are removed
}

// stream counts the calls of a stream that the group has applied.
type stream struct {
	number      int64
	forgottenMs int64
}

const sweepMin = 1000

// NewGroup returns an empty group. A lean group forgets a cell together with its last hold. Callers of Cell.Grown need
// a group that is not lean, because Most must outlast the holds.
func NewGroup(lean bool) *Group {
	return &Group{lean: lean, sweepAt: sweepMin, cells: make(map[window.Cell]*Cell), records: make(map[string]record),
		streams: make(map[uint64]stream)}
}

// applying is a call while the group applies it.
type applying struct {
	*Group
	counts Counts
	nowMs  int64

	epoch   store.Epoch
	several bool       // holds, so that a change may have to be taken back
	holds   []replaced // by the changes that were made so far
	record  replacedRecord
}

// Apply makes all changes of a call, or none if any of them is refused. It leaves the totals of the answers and the
// time of the reply to its caller.
func (g *Group) Apply(call *store.HoldCall, counts Counts, epoch store.Epoch, nowMs int64) (reply store.HoldReply) {
	g.End(nowMs)
	reply.Epoch = epoch
	counted := g.streams[call.Stream]
	if counted.forgottenMs <= nowMs {
		counted = stream{}
	}
	if after := call.After; after.Epoch == epoch && counted.number < after.Number {
		reply.Behind, reply.Have = true, counted.number
		return reply
	}
	if reply.Emptied = slices.ContainsFunc(call.Holds, func(h store.Hold) bool {
		return h.As == store.HoldNew && h.Epoch != 0 && h.Epoch != epoch
	}); reply.Emptied {
		return reply
	}
	a := applying{Group: g, counts: counts, epoch: epoch, nowMs: nowMs, several: len(call.Holds) > 1}
	if r := call.Record; r != nil {
		var ok bool
		if reply.Record, ok = a.change(r); !ok {
			reply.Refused = true
			return reply
		}
	}
	reply.Answers = make([]store.HoldAnswer, len(call.Holds))
	for i := range call.Holds {
		refused := !a.state(i, &call.Holds[i], &reply.Answers[i])
		reply.Refused = reply.Refused || refused
	}
	if reply.Refused {
		a.takeBack(call, &reply)
		return reply
	}
	for i := range call.Holds {
		if h := g.find(&call.Holds[i]); h != nil {
			h.charged()
		}
	}
	if call.Record != nil || len(call.Holds) > 0 {
		reply.Number = counted.number + 1
		g.streams[call.Stream] = stream{reply.Number, nowMs + 2*store.HoldKeptFor.Milliseconds()}
	}
	g.sweep(nowMs)
	return reply
}

// takeBack undoes all changes of a refused call.
func (a *applying) takeBack(call *store.HoldCall, reply *store.HoldReply) {
	for _, was := range slices.Backward(a.holds) {
		a.putBack(&was)
	}
	a.putRecordBack()
	for i := range reply.Answers {
		h := a.find(&call.Holds[i])
		reply.Answers[i].Held = h != nil && !h.final
	}
	if call.Record != nil {
		reply.Record = a.stored(call.Record, a.nowMs).answer()
	}
}

// state applies a statement. It returns false for a HoldNew that is refused.
func (a *applying) state(i int, h *store.Hold, answer *store.HoldAnswer) (ok bool) {
	held := a.Cell(h.Cell)
	was, known := hold{}, false
	if stored := held.by[h.Owner]; stored != nil {
		was, known = *stored, true
	}
	answer.Used = max(0, a.counts.Used(&h.Cell, held)-was.counts())
	answer.UsedBefore = a.counts.Used(&h.Before, a.look(&h.Before))
	answer.Open = int64(held.open)
	if was.void && h.As >= store.HoldForced {
		was, known = hold{}, false // the record decides, because the group may not have had the hold
	}
	expired := a.counts.Expired(h.Cell)
	next := hold{amount: h.Amount, after: h.After, endsMs: a.nowMs + h.TTL.Milliseconds(), tentative: h.Tentative,
		charge: was.charge}
	isNew := h.As == store.HoldNew
	switch {
	case isNew && (known || expired):
		answer.Held = known && !was.final && !expired
		answer.Fits = answer.Held
		return answer.Held || h.Optional
	case expired:
		return true
	case isNew && held.open >= store.HoldsMax:
		answer.Total.Err = store.ErrHolds
		return h.Optional
	case isNew:
		if next.charge, ok = a.counts.Grant(i, h, answer); !ok {
			return h.Optional
		}
	case was.final:
		return true
	case h.TTL == 0 && !known && h.As == store.HoldState:
		next = hold{endsMs: a.nowMs, ended: true, final: true, void: true}
	case h.TTL == 0:
		next.amount, next.ended, next.final = h.After, true, true
	case !known && h.As == store.HoldState:
		return true
	case known:
		next.amount, next.after = max(next.amount, was.amount), max(next.after, was.after)
		next.endsMs = max(next.endsMs, was.endsMs)
		next.ended = next.endsMs <= a.nowMs
	}
	answer.Held, answer.Fits = !next.final, isNew
	if a.several {
		a.holds = append(a.holds, replacedOf(held, h.Owner))
	}
	if h.As == store.HoldForced && h.Epoch != 0 && h.Epoch != a.epoch && !known {
		held.Restored += h.Amount
	}
	a.put(held, h.Owner, next)
	return true
}

// Trim forgets the records and holds that have ended before HoldKeptFor has passed, to make room for others.
func (g *Group) Trim(nowMs int64) {
	g.End(nowMs)
	maps.DeleteFunc(g.records, func(_ string, r record) bool { return r.settled || r.endsMs <= nowMs })
	g.due = slices.DeleteFunc(g.due, func(h *hold) bool {
		if h.ended {
			g.detach(h)
		}
		return h.ended
	})
	for i, h := range g.due {
		h.at = i
	}
	heap.Init(&g.due)
}

// sweep forgets records and streams whose time has come.
func (g *Group) sweep(nowMs int64) {
	if len(g.records)+len(g.streams) < g.sweepAt {
		return
	}
	maps.DeleteFunc(g.records, func(_ string, r record) bool { return r.forgottenMs <= nowMs })
	maps.DeleteFunc(g.streams, func(_ uint64, s stream) bool { return s.forgottenMs <= nowMs })
	g.sweepAt = max(sweepMin, 2*(len(g.records)+len(g.streams)))
}

// Clone returns a copy that shares nothing with the group.
func (g *Group) Clone() *Group {
	clone := NewGroup(g.lean)
	maps.Copy(clone.records, g.records)
	maps.Copy(clone.streams, g.streams)
	for c, held := range g.cells {
		of := *held
		of.by = make(map[string]*hold, len(held.by))
		clone.cells[c] = &of
		for owner, h := range held.by {
			copied := *h
			copied.of = &of
			of.by[owner] = &copied
			heap.Push(&clone.due, &copied)
		}
	}
	return clone
}
