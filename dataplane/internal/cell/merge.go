package cell

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
)

// Counters are the counters that merges increment.
type Counters struct {
	Overshoot atomic.Int64 // cost above the limit, found when others' counts were merged
}

// exceeded records other nodes' cost that was merged into a cell, as far as it exceeds the lowest limit that cost was
// counted against there: the node that accepted it had not received all of the rest. The previous cell counts towards
// the limit too but is left out, so the true excess can be higher than the recorded excess, never lower. Estimates may
// pass their limits.
func (m *Counters) exceeded(e *Entry, slot int, grown int64) {
	if e.flags.Load()&flagEstimate != 0 {
		return
	}
	limit := e.minLimits.most(slot)
	if over := e.countIn(slot) - limit; over > 0 {
		m.Overshoot.Add(min(over, grown))
	}
}

// Absorb merges the origin's answer about a cell. Every answer must go through Absorb or an operation that ends the
// call it answers. Absorb returns the epoch that the origin has lost, or 0.
func (l Ledger) Absorb(m *Counters, sequence int64, total *store.Total, now clock.Steady) (lost store.Epoch) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if slot, ok := l.e.slotLocked(sequence); ok {
		lost = l.absorbLocked(m, slot, total)
		l.e.Reads().refreshLocked(sequence, total, now)
	}
	return lost
}

// absorbLocked records the epoch of an answer, and merges the totals.
func (l Ledger) absorbLocked(m *Counters, slot int, total *store.Total) (lost store.Epoch) {
	lost = l.enterLocked(slot, total.Epoch)
	l.mergeLocked(m, slot, total)
	return lost
}

// mergeLocked merges the region's total and the total of all other regions.
//
// The region's total beyond settled was contributed by the region's other nodes. Cost on its way is settled already,
// whether or not this total holds it. A plain max(count, total) would lose cost that this node accepted between sending
// and answer, and at hydration the cost that it accepted before. For example, a node sends 5, accepts 2 more, and gets
// a total of 12: its count is then 14, because other nodes contributed 7. The foreign total is merged by maximum.
//
// A total may or may not hold claims on their way. mergeLocked assumes that it does. So it finds the cost of other
// nodes, and the origin's part of unnamed cost, a little later, but never twice.
func (l Ledger) mergeLocked(m *Counters, slot int, total *store.Total) {
	if total.Err != nil {
		return
	}
	c := &l.cells[slot]
	if others := total.Region - c.settled.Load() - l.claiming(slot); others > 0 {
		added := l.e.counter.add(slot, others)
		c.settled.Add(added)
		c.peers += added
		if l.extra != nil {
			l.extra.claims.heard()
		}
		m.exceeded(l.e, slot, added)
		if l.extra != nil && l.extra.metered != nil {
			l.extra.metered.cover(l.e.counter.sequence(), slot, added)
		}
	}
	if unnamed, without := l.unnamed(slot), total.Region-l.claiming(slot); unnamed > 0 &&
		without > c.settled.Load()-unnamed {
		l.extra.unnamed[slot] = max(0, c.settled.Load()-without)
	}
	l.applyForeignLocked(m, slot, total.Foreign)
	l.e.Histories().mergeLocked(slot, total.History)
}

// applyForeignLocked raises the cost that all other regions have counted in a cell.
func (l Ledger) applyForeignLocked(m *Counters, slot int, foreign int64) {
	foreign = min(foreign, CountMax)
	before := l.foreignLocked(slot)
	if foreign <= before {
		return
	}
	l.e.addOthers(slot, foreign-before)
	m.exceeded(l.e, slot, foreign-before)
}

// ApplyForeign merges the announced cost of all other regions in a cell.
func (l Ledger) ApplyForeign(m *Counters, h *Horizon, current, sequence, foreign int64) (agedOut int64) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if sequence > l.e.counter.sequence() {
		agedOut, _ = l.e.rotateLocked(h, current)
	}
	if slot, ok := l.e.slotLocked(sequence); ok {
		l.applyForeignLocked(m, slot, foreign)
	}
	return agedOut
}
