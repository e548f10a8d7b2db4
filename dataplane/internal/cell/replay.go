package cell

import (
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// Confirm merges the answer to a send. It returns whether others had contributed,
// and what the origin should be told because it has lost it.
func (e *Entry) Confirm(m *Counters, sequence, total int64, now clock.Steady) (grew bool, missing []LostTotal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return false, nil
	}
	grew, lost := e.absorbLocked(m, slot, total, true)
	if lost {
		missing = []LostTotal{{e.Cell(sequence), e.namedLocked(slot)}}
	}
	if sequence == e.seq.Load() && e.refreshedAt.Load() != 0 && e.flags.Load()&flagEstimate == 0 { // a reply is no hydration: it does not tell of the previous cell
		e.noteRefresh(now)
	}
	return grew, missing
}

// Rollback ends a send that failed: the cost is unsent again.
func (e *Entry) Rollback(sequence, sent int64) (kept bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if ok {
		e.returnLocked(slot, sent)
	}
	return ok
}

// Loaded is what load has put on its way, by cell: the previous one and the current one.
type Loaded struct {
	Sequence int64    // of the current cell
	Costs    [2]int64 // on its way; 0 for none
	Expired  int64    // unsent cost that can influence no decision any more, and is given up
	Stale    bool     // the previous cell should be read once more
}

// Load takes an entry off the queue, or off those that are kicked, and puts its unsent cost, if any, on the way. The
// previous cell should be read once more, after graceMs, since others may have added to it after the origin last spoke
// of it here.
func (e *Entry) Load(kicked bool, nowMs, graceMs int64) (l Loaded) {
	e.mu.Lock()
	defer e.mu.Unlock()
	from := uint32(flagInReplay)
	if kicked {
		from = flagKicked
	}
	e.flags.And(^from)
	l.Sequence = e.seq.Load()
	durationMs := e.names.durationMs()
	for i, s := range [2]int64{l.Sequence - 1, l.Sequence} {
		slot := slotOf(s)
		e.netLocked(slot)
		cost := e.unsentLocked(slot)
		switch {
		case cost <= 0:
		case expiredAt(s, durationMs, nowMs):
			e.ledger.cells[slot].settled.Add(cost)
			l.Expired += cost
		default:
			e.sendLocked(slot, cost)
			l.Costs[i] = cost
		}
	}
	if kicked {
		return l
	}
	stale := uint32(flagStale) << slotOf(l.Sequence-1)
	l.Stale = e.flags.Load()&stale != 0 && nowMs >= window.Start(l.Sequence, durationMs)+graceMs
	if l.Stale {
		e.flags.And(^stale)
	}
	return l
}

// Unsent is own accepted cost that is neither confirmed nor on its way.
func (e *Entry) Unsent() (cost int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for slot := range e.ledger.cells {
		cost += max(0, e.unsentLocked(slot))
	}
	return cost
}

// MarkKicked puts an entry among those that are sent at once; first is false if it is there.
func (e *Entry) MarkKicked() (first bool) { return e.flags.Or(flagKicked)&flagKicked == 0 }

// Unkick takes it out again.
func (e *Entry) Unkick() { e.flags.And(^uint32(flagKicked)) }
