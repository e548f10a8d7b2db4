package cell

import "sync/atomic"

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
	if over := wordCount(e.words[slot].Load()) + e.others[slot].Load() - limit; over > 0 {
		m.Overshoot.Add(min(over, grown))
	}
}

// absorbLocked merges the origin's total for a cell, in answer to a send, which it
// ends, or to a read. Whatever is in the total beyond what is settled was contributed
// by others: what is on its way is settled already, whether or not this total holds
// it. Plain max(count, total) would lose what this node accepted between sending and
// answer, and at hydration what it accepted before.
//
// Whether a total holds claims on their way is unknown. It is taken to: what
// others have contributed, and what the origin has of unnamed cost, is then found a little later, and not twice.
//
// grew is true when others had contributed. lost is true when the total is smaller
// than what the origin has named before and what was added since: it has lost data.
// A read that meets a send cannot tell. (An answer that was overtaken by a later one
// can look like a loss; healing an origin that needs none changes nothing.)
func (e *Entry) absorbLocked(m *Counters, slot int, total int64, sent bool) (grew, lost bool) {
	b := e.ledger
	c := &b.cells[slot]
	sending := e.flags.Load()&(flagSending<<slot) != 0
	if sent {
		e.arriveLocked(slot)
	}
	if others := total - c.settled.Load() - b.claiming(slot); others > 0 {
		added := e.addLocked(slot, others)
		c.settled.Add(added)
		grew = true
		if b.extra != nil {
			b.extra.crowded = 0
		}
		m.exceeded(e, slot, added)
		if b.extra != nil && b.extra.metered != nil {
			b.extra.metered.cover(e.seq.Load(), slot, added)
		}
	}
	if unnamed, without := b.unnamed(slot), total-b.claiming(slot); unnamed > 0 && without > c.settled.Load()-unnamed {
		b.extra.unnamed[slot] = max(0, c.settled.Load()-without)
	}
	return grew, total < c.settled.Load()-b.unnamed(slot) && (sent || !sending)
}

// namedLocked is the largest total that the origin has named, and what it has
// confirmed since.
func (e *Entry) namedLocked(slot int) int64 {
	return e.ledger.cells[slot].settled.Load() - e.ledger.unnamed(slot)
}

// floorLocked raises the count to at least n: the region is known to have counted
// so much. It is no word of the origin's, and does not make an entry fresh.
func (e *Entry) floorLocked(slot int, n int64) {
	if missing := n - e.acceptedLocked(slot); missing > 0 {
		added := e.addLocked(slot, missing)
		e.ledger.cells[slot].settled.Add(added)
		e.ledger.needExtra().unnamed[slot] += added
	}
}
