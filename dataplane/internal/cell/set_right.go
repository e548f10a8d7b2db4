package cell

import (
	"math"

	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/shared/window"
)

// When a clock was ahead and is corrected, it leaves entries whose current cells lie in the future. Time would stand
// still for their keys until the clock reaches those cells, and limited callers would be locked out for as long as the
// clock was ahead. So SetRight replaces such an entry by an entry in the cell that the clock shows, and carries over
// all counts that still matter. The correction returns no budget, and locks no caller out for longer than two windows.
//
// Only this node has the carried counts. It never sends them, because the origin has them under the cells in which they
// were accepted. Until the node has the origin's clock, the origin has none of them: then the replacement has them as
// unsent cost.

// aheadMs is how far a cell may be ahead of the clock without being replaced, because readings of a
// clock differ a little.
const aheadMs = 200

// Before reports whether a time lies before the entry's current cell.
func (e *Entry) Before(tMs, durationMs int64) bool {
	return tMs < window.Start(e.counter.sequence(), durationMs)
}

// isAhead reports whether the entry's current cell begins after the time that the clock shows, plus
// the lead of times that callers have passed.
func (t *Table) isAhead(e *Entry, clockMs int64) bool {
	return e.Before(clockMs+t.wall.LeadMs()+aheadMs, e.names.durationMs())
}

// SetRight replaces an entry that is ahead of the clock; ok is false if it is not ahead. It returns
// this node's cost in the entry that was never sent and now never will be.
func (t *Table) SetRight(e *Entry) (unsent int64, ok bool) {
	if !t.isAhead(e, t.wall.ReadMs()) {
		return 0, false
	}
	p := t.part(&e.id)
	p.mu.Lock()
	defer p.mu.Unlock()
	if place := p.array.Load().find(e); place != nil {
		unsent = t.setRightLocked(place, e)
	}
	return unsent, true
}

// Renumber prepares an entry for a decision that began before the node had the origin's clock, and has read the entry's
// cells since. again reports whether the decision must look the key up and read it once more, because the entry was
// replaced or has to be, or its current cell has ended by the origin's clock. In the last case Renumber moves the entry
// on, with its counts, and marks it as not read yet. tMs is the decision's time by the origin's clock. unsent is cost
// that never was sent, and that no later decision depends on.
func (t *Table) Renumber(e *Entry, h *Horizon, tMs int64) (unsent int64, again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	clockMs := t.wall.ReadMs()
	to := window.Sequence(min(tMs, clockMs), e.DurationMs())
	switch {
	case e.flags.Load()&flagDead != 0 || t.isAhead(e, clockMs):
		return 0, true
	case e.counter.sequence() >= to:
		return 0, e.Reads().RefreshedAt() == 0 // another decision has moved the entry on, and nothing has read it since
	}
	unsent, _ = e.rotateLocked(h, to)
	e.Reads().forgetLocked()
	return unsent, true
}

// setRightLocked is SetRight for the entry at a place. The caller holds the lock of its part.
func (t *Table) setRightLocked(place spot, e *Entry) (unsent int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// Read the clock only now that the entry can't move on: the clock may have reached its cell.
	clockMs := t.wall.ReadMs()
	if !t.isAhead(e, clockMs) {
		return 0
	}
	if !t.wall.Known() {
		_, unsent = t.moveLocked(place, e, clockMs, clockMs)
		return unsent
	}
	fresh, unsent := t.replaceLocked(e, clockMs)
	if fresh != e {
		place.Store(fresh) // no lookup changes: identity and tag are the same
	}
	return unsent
}

// setUntrackedRight is SetRight for an untracked key, under its stripe's lock: its temporary entry stays as long as
// decisions about the key overlap.
func (t *Table) setUntrackedRight(g *temporary) {
	if !t.isAhead(g.entry, t.wall.ReadMs()) {
		return
	}
	e := g.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	if clockMs := t.wall.ReadMs(); t.isAhead(e, clockMs) {
		g.entry, _ = t.replaceLocked(e, clockMs)
	}
}

// replaceLocked ends an entry and returns its replacement in the cell of tMs. It returns e itself
// if e is dead or already in this cell.
func (t *Table) replaceLocked(e *Entry, tMs int64) (fresh *Entry, unsent int64) {
	seq, to := e.counter.sequence(), window.Sequence(tMs, e.names.durationMs())
	if e.flags.Load()&flagDead != 0 || to == seq {
		return e, 0
	}
	current, before := slotOf(seq), slotOf(seq-1)
	e.counter.seal(current)
	flags := e.flags.Or(flagDead)
	e.flags.And(^uint32(flagStale | flagStale1)) // the new entry has no closed cell to read again
	estimates := flags&flagEstimate != 0
	carried := min(max(0, e.countIn(current))+max(0, e.countIn(before)), mergedMax)
	fresh = newEntry(&e.id, e.names, to, t.Fleet, flags&flagHistories != 0)
	if e.Ledger().books != nil {
		unsent = e.Ledger().giveUpLocked(0) + e.Ledger().giveUpLocked(1)
	}
	if estimates {
		fresh.Estimates().begin()
		fresh.Estimates().carryLocked(e, carried)
	}
	if t.Fleet && to == seq-1 { // the origin has this cell
		carried -= fresh.Ledger().carryLocked(e, before)
		carried = max(0, carried)
	}
	if carried > 0 {
		fresh.Ledger().carryOthersLocked(slotOf(to), carried)
	}
	fresh.inheritLocked(e, flags)
	if flags&flagUntracked != 0 {
		fresh.flags.Or(flagInReplay | flagUntracked)
		return fresh, 0 // its cost is at the origin, in the overflow, or being sent
	}
	if e.names.family.Value().Mode == window.Estimate {
		t.Tiers.Keys[e.Estimates().tier()].Add(-1)
		t.Tiers.Keys[level.Idle].Add(1)
	}
	return fresh, unsent
}

// inheritLocked takes over the state, other than counts, of the entry that e replaces: how close to its limit the key
// is, and the deadlines that its decisions wait for. flags are that entry's.
func (e *Entry) inheritLocked(of *Entry, flags uint32) {
	seq := e.counter.sequence()
	if limit := min(of.minLimits.get(0), of.minLimits.get(1)); limit != math.MaxInt64 {
		e.lowerMinLimit(slotOf(seq), limit)
	}
	if flags&(flagDenied|flagDenied1) != 0 {
		e.flags.Or(Denied(seq))
	}
	e.flags.And(^uint32(flagPrecise))
	e.flags.Or(flags & (Used | flagStrict | flagWaits | flagPrecise))
	e.Reads().inheritLocked(of.Reads())
}

// carryLocked copies the current cell from another entry of the key, without unsent cost, so that the
// origin's totals merge as before. It returns the cell's cost.
func (l Ledger) carryLocked(of *Entry, slot int) int64 {
	count := of.counter.count(slot)
	l.e.counter.put(slot, liveWord(l.e.counter.sequence(), count))
	was := of.Ledger()
	l.cells[slot].settled.Store(count - was.netted(slot))
	l.cells[slot].peers, l.epochs[slot] = was.cells[slot].peers, was.epochs[slot]
	if was.extra != nil {
		x := l.needExtra()
		x.unnamed[slot], x.credit[slot], x.netted[slot] = was.unnamed(slot), was.credit(slot), was.netted(slot)
		x.carried[slot], x.forgotten[slot] = was.carried(slot), was.extra.forgotten[slot]
	}
	l.e.Histories().giveBackLocked(slot, of.Histories().givenBack(slot))
	if others := of.othersIn(slot); others != 0 {
		l.e.addOthers(slot, others)
	}
	return max(0, of.countIn(slot))
}

// carryOthersLocked adds cost of cells that became future cells to the others.
func (l Ledger) carryOthersLocked(slot int, cost int64) {
	l.e.addOthers(slot, cost)
	if l.books != nil {
		l.needExtra().carried[slot] += cost
	}
}

// carryLocked copies the last sync's result from another entry of the key. The leaky level drains
// on by the steady clock, and cost that no sync has covered stays pending.
func (es Estimates) carryLocked(of *Entry, carried int64) {
	r := of.Ledger().meter().reading.Load()
	if r == nil {
		return
	}
	covered := r.at(of.counter.sequence()).covered
	pending := max(0, max(0, of.countIn(0))+max(0, of.countIn(1))-covered[0]-covered[1])
	// Date it to the start of the cell: its own time may lie in the future, and the previous cell
	// is read.
	next := reading{sequence: es.e.counter.sequence(), steady: r.steady, known: r.known}
	next.atMs = min(r.atMs, window.Start(next.sequence, es.e.names.durationMs()))
	next.covered[slotOf(next.sequence)] = carried - pending
	es.e.Ledger().meter().reading.Store(&next)
}
