package cell

import (
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
)

// Counters are what merges count.
type Counters struct {
	Overshoot atomic.Int64 // cost above the limit that turned up when others' counts were merged
}

// exceeded takes note of others' cost that was merged into a cell, as far as it lies above
// the lowest limit that cost was counted against there: the node that accepted it did
// not know all the rest. The cell before, which weighs on the limit too, is left out, so more may
// have been accepted than this tells, and not less. Estimates may pass their limits.
func (m *Counters) exceeded(e *Entry, slot int, grown int64) {
	if e.flags.Load()&flagEstimate != 0 {
		return
	}
	limit := e.minLimits.most(slot)
	if over := e.countIn(slot) - limit; over > 0 {
		m.Overshoot.Add(min(over, grown))
	}
}

// Absorb merges the origin's answer about a cell: every answer comes through here or through
// an operation that ends what asked for it. It returns the epoch that the origin has lost, 0 for none.
func (l Ledger) Absorb(m *Counters, sequence int64, total *store.Total, now clock.Steady) (lost store.Epoch) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if slot, ok := l.e.slotLocked(sequence); ok {
		lost = l.absorbLocked(m, slot, total)
		l.e.Reads().refreshLocked(sequence, total, now)
	}
	return lost
}

// absorbLocked notes the epoch of an answer, and merges the totals.
func (l Ledger) absorbLocked(m *Counters, slot int, total *store.Total) (lost store.Epoch) {
	lost = l.enterLocked(slot, total.Epoch)
	l.mergeLocked(m, slot, total)
	return lost
}

// mergeLocked merges the region's total and that of all other regions.
//
// Whatever is in the region's total beyond what is settled was contributed by the region's
// other nodes: what is on its way is settled already, whether or not this total holds it.
// Plain max(count, total) would lose what this node accepted between sending and answer, and
// at hydration what it accepted before. The foreign total is merged by maximum.
//
// Whether a total holds claims on their way is unknown. It is taken to: what
// others have contributed, and what the origin has of unnamed cost, is then found a little later, and not twice.
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
}

// applyForeignLocked raises what all other regions are known to have counted in a cell.
func (l Ledger) applyForeignLocked(m *Counters, slot int, foreign int64) {
	foreign = min(foreign, CountMax)
	before := l.foreignLocked(slot)
	if foreign <= before {
		return
	}
	l.e.addOthers(slot, foreign-before)
	m.exceeded(l.e, slot, foreign-before)
}

// ApplyForeign merges what all other regions have counted in a cell, as it is announced.
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
