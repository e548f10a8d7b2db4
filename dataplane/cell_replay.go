package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// confirm merges the answer to a send. It returns whether others had contributed,
// and what the origin should be told because it has lost it.
func (e *entry) confirm(m *counters, sequence, total int64, now clock.Steady) (grew bool, missing []lostTotal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return false, nil
	}
	grew, lost := e.absorbLocked(m, slot, total, true)
	if lost {
		missing = []lostTotal{{e.cell(sequence), e.namedLocked(slot)}}
	}
	if sequence == e.seq.Load() && e.heardAt.Load() != 0 && e.flags.Load()&flagEstimate == 0 { // a reply is no hydration: it does not tell of the previous cell
		e.hear(now)
	}
	return grew, missing
}

// takeBack ends a send that failed: the cost is unsent again.
func (e *entry) takeBack(sequence, sent int64) (kept bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if ok {
		e.returnLocked(slot, sent)
	}
	return ok
}

// loaded is what load has put on its way, by cell: the previous one and the current one.
type loaded struct {
	sequence int64    // of the current cell
	costs    [2]int64 // on its way; 0 for none
	expired  int64    // unsent cost that can influence no decision any more, and is given up
	stale    bool     // the previous cell should be read once more
}

// load takes an entry off the queue, or off those that are kicked, and puts its unsent cost, if any, on the way. The
// previous cell should be read once more, after graceMs, since others may have added to it after the origin last spoke
// of it here.
func (e *entry) load(kicked bool, nowMs, graceMs int64) (l loaded) {
	e.mu.Lock()
	defer e.mu.Unlock()
	from := uint32(flagInReplay)
	if kicked {
		from = flagKicked
	}
	e.flags.And(^from)
	l.sequence = e.seq.Load()
	durationMs := e.names.durationMs()
	for i, s := range [2]int64{l.sequence - 1, l.sequence} {
		slot := slotOf(s)
		e.netLocked(slot)
		cost := e.unsentLocked(slot)
		switch {
		case cost <= 0:
		case expiredAt(s, durationMs, nowMs):
			e.book.cells[slot].settled.Add(cost)
			l.expired += cost
		default:
			e.sendLocked(slot, cost)
			l.costs[i] = cost
		}
	}
	if kicked {
		return l
	}
	stale := uint32(flagStale) << slotOf(l.sequence-1)
	l.stale = e.flags.Load()&stale != 0 && nowMs >= window.Start(l.sequence, durationMs)+graceMs
	if l.stale {
		e.flags.And(^stale)
	}
	return l
}

// unsent is own accepted cost that is neither confirmed nor on its way.
func (e *entry) unsent() (cost int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for slot := range e.book.cells {
		cost += max(0, e.unsentLocked(slot))
	}
	return cost
}

// markKicked puts an entry among those that are sent at once; first is false if it is there.
func (e *entry) markKicked() (first bool) { return e.flags.Or(flagKicked)&flagKicked == 0 }

// unkick takes it out again.
func (e *entry) unkick() { e.flags.And(^uint32(flagKicked)) }
