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
func (e *Entry) Absorb(m *Counters, sequence int64, total *store.Total, now clock.Steady) (lost store.Epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		lost = e.absorbLocked(m, slot, total)
		e.Reads().refreshLocked(sequence, total, now)
	}
	return lost
}

// absorbLocked merges the region's total and that of all other regions, and notes the epoch.
//
// Whatever is in the region's total beyond what is settled was contributed by the region's
// other nodes: what is on its way is settled already, whether or not this total holds it.
// Plain max(count, total) would lose what this node accepted between sending and answer, and
// at hydration what it accepted before. The foreign total is merged by maximum.
//
// Whether a total holds claims on their way is unknown. It is taken to: what
// others have contributed, and what the origin has of unnamed cost, is then found a little later, and not twice.
func (e *Entry) absorbLocked(m *Counters, slot int, total *store.Total) (lost store.Epoch) {
	b := e.ledger()
	c := &b.cells[slot]
	if was := b.epochs[slot]; total.Epoch != 0 && total.Epoch != was {
		if was != 0 {
			e.beginLocked(slot)
			lost = was
		}
		b.epochs[slot] = total.Epoch
	}
	if total.Err != nil {
		return lost
	}
	if others := total.Region - c.settled.Load() - b.claiming(slot); others > 0 {
		added := e.counter.add(slot, others)
		c.settled.Add(added)
		c.peers += added
		if b.extra != nil {
			b.extra.overShare = 0
		}
		m.exceeded(e, slot, added)
		if b.extra != nil && b.extra.metered != nil {
			b.extra.metered.cover(e.counter.sequence(), slot, added)
		}
	}
	if unnamed, without := b.unnamed(slot), total.Region-b.claiming(slot); unnamed > 0 &&
		without > c.settled.Load()-unnamed {
		b.extra.unnamed[slot] = max(0, c.settled.Load()-without)
	}
	e.applyForeignLocked(m, slot, total.Foreign)
	return lost
}

// applyForeignLocked raises what all other regions are known to have counted in a cell.
func (e *Entry) applyForeignLocked(m *Counters, slot int, foreign int64) {
	foreign = min(foreign, CountMax)
	before := e.foreignLocked(slot)
	if foreign <= before {
		return
	}
	e.addOthers(slot, foreign-before)
	m.exceeded(e, slot, foreign-before)
}

// ApplyForeign merges what all other regions have counted in a cell, as it is announced.
func (e *Entry) ApplyForeign(m *Counters, h *Horizon, current, sequence, foreign int64) (agedOut int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if sequence > e.counter.sequence() {
		agedOut, _ = e.rotateLocked(h, current)
	}
	if slot, ok := e.slotLocked(sequence); ok {
		e.applyForeignLocked(m, slot, foreign)
	}
	return agedOut
}
