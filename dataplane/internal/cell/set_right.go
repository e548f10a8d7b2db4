package cell

import (
	"math"

	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/shared/window"
)

// A clock that was ahead, and is put right, leaves entries whose current cells have not begun. Time would stand still
// for their keys until the clock shows those cells again: a limited caller would be locked out for as long as the clock
// was ahead. So such an entry makes way for one in the cell that the clock shows, in which all counts that still matter
// are carried over: the step returns no budget, and locks nobody out for longer than two windows.
//
// The carried counts are this node's knowledge alone. They are never sent: the origin has them under the cells in which
// they were accepted.

// aheadMs is how much of a cell's lead over the clock is left alone: readings of a clock differ a little.
const aheadMs = 200

// Before reports whether a time lies before the entry's current cell.
func (e *Entry) Before(tMs, durationMs int64) bool {
	return tMs < window.Start(e.seq.Load(), durationMs)
}

// isAhead reports whether the entry's current cell begins later than a time that the clock has shown, and later than
// callers who bring times of their own have led the clock by.
func (t *Table) isAhead(e *Entry, clockMs int64) bool {
	return e.Before(clockMs+t.wall.LeadMs()+aheadMs, e.names.durationMs())
}

// SetRight replaces an entry that is ahead of the clock; ok is false if it is not. It returns the own cost that was
// never sent, and will not be.
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

// Renumber replaces an entry that was made before the clock to follow was known by one in the cell of a time by this
// clock, if its cell is over by that, or has not begun. The entry has counted nothing that the origin knows.
func (t *Table) Renumber(e *Entry, h *Horizon, tMs int64) (replaced bool) {
	p := t.part(&e.id)
	p.mu.Lock()
	defer p.mu.Unlock()
	clockMs := t.wall.ReadMs()
	if e.seq.Load() >= window.Sequence(min(tMs, clockMs), e.DurationMs()) && !t.isAhead(e, clockMs) {
		return false
	}
	if place := p.array.Load().find(e); place != nil {
		t.renewLocked(place, e, h.Bound(tMs))
	}
	return true
}

// setRightLocked is SetRight for the entry at a place, under its part's lock.
func (t *Table) setRightLocked(place spot, e *Entry) (unsent int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// The clock is read now that the entry moves on no more: its time may have come meanwhile.
	clockMs := t.wall.ReadMs()
	if !t.isAhead(e, clockMs) {
		return 0
	}
	fresh, unsent := t.replaceLocked(e, clockMs)
	if fresh != e {
		place.Store(fresh) // identity and tag are the same
	}
	return unsent
}

// renewLocked replaces the entry at a place by one in the cell of a time.
func (t *Table) renewLocked(place spot, e *Entry, tMs int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if fresh, _ := t.replaceLocked(e, tMs); fresh != e {
		place.Store(fresh)
	}
}

// setGuestRight is SetRight for a guest, under its hall's lock: while a key without room is decided again and again,
// its guest stays.
func (t *Table) setGuestRight(g *guest) {
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

// replaceLocked makes the entry that takes the place of another one, in the cell of a time, and ends that; it returns e
// if that is dead or in this cell.
func (t *Table) replaceLocked(e *Entry, tMs int64) (fresh *Entry, unsent int64) {
	seq, to := e.seq.Load(), window.Sequence(tMs, e.names.durationMs())
	if e.flags.Load()&flagDead != 0 || to == seq {
		return e, 0
	}
	current, before := slotOf(seq), slotOf(seq-1)
	e.sealLocked(current)
	flags := e.flags.Or(flagDead)
	e.flags.And(^uint32(flagStale | flagStale1)) // nothing reads its closed cell once more
	estimates := flags&flagEstimate != 0
	carried := min(e.countLocked(current)+e.countLocked(before), mergedMax)
	if to > seq {
		carried = 0 // it was behind
	}
	fresh = newEntry(&e.id, e.names, to, t.Fleet)
	if e.ledger() != nil {
		unsent = e.giveUpLocked(0) + e.giveUpLocked(1)
	}
	if estimates {
		fresh.beEstimate()
		fresh.carryReading(e, carried)
	}
	if t.Fleet && to == seq-1 { // a cell that the origin has
		carried -= fresh.carryCell(e, before)
		carried = max(0, carried)
	}
	if carried > 0 {
		fresh.foreign(slotOf(to)).Add(carried)
		if b := fresh.ledger(); b != nil {
			b.needExtra().carried[slotOf(to)] += carried
		}
	}
	if limit := min(e.minLimits.get(0), e.minLimits.get(1)); limit != math.MaxInt64 {
		fresh.noteMinLimit(slotOf(to), limit)
	}
	if flags&(flagPressed|flagPressed1) != 0 {
		fresh.flags.Or(Pressed(to))
	}
	fresh.flags.Or(flags & (Touched | flagStrict | flagShared))
	fresh.strictUntil.Store(e.strictUntil.Load())
	if f := e.flight; f != nil && f.restUntil.Load() != 0 {
		fresh.flight = f
	}
	if flags&flagGuest != 0 {
		fresh.flags.Or(flagInReplay | flagGuest)
		return fresh, 0 // what it has accepted is at the origin, or in the overflow, or on its way there
	}
	if e.names.family.Value().Mode == window.Estimate {
		t.Tiers.Keys[e.tier()].Add(-1)
		t.Tiers.Keys[level.Idle].Add(1)
	}
	return fresh, unsent
}

// countLocked is what a cell of the entry counts, in this region and in others.
func (e *Entry) countLocked(slot int) int64 {
	return max(0, wordCount(e.words[slot].Load())+e.others[slot].Load())
}

// carryCell takes over this one's current cell from another entry of the key, with nothing unsent, so that the origin's
// totals of it are merged as before. It returns what the cell counts.
func (e *Entry) carryCell(of *Entry, slot int) int64 {
	count := wordCount(of.words[slot].Load())
	e.words[slot].Store(liveWord(e.seq.Load(), count))
	b, was := e.ledger(), of.ledger()
	b.cells[slot].settled.Store(count - was.netted(slot))
	b.cells[slot].peers, b.epochs[slot] = was.cells[slot].peers, was.epochs[slot]
	if was.extra != nil {
		x := b.needExtra()
		x.unnamed[slot], x.credit[slot], x.netted[slot] = was.unnamed(slot), was.credit(slot), was.netted(slot)
		x.carried[slot] = was.carried(slot)
	}
	if others := of.others[slot].Load(); others != 0 {
		e.foreign(slot).Store(others)
	}
	return of.countLocked(slot)
}

// carryReading takes over what the origin last told of another entry of the key: the leaky level drains on by the
// steady clock, and what no sync has covered stays pending.
func (e *Entry) carryReading(of *Entry, carried int64) {
	r := of.ledger().meter().reading.Load()
	if r == nil {
		return
	}
	covered := r.at(of.seq.Load()).covered
	pending := max(0, of.countLocked(0)+of.countLocked(1)-covered[0]-covered[1])
	// As taken at the start of the cell: its own time may be one that is long to come, and the previous cell is read.
	next := reading{sequence: e.seq.Load(), steady: r.steady, known: r.known}
	next.atMs = min(r.atMs, window.Start(next.sequence, e.names.durationMs()))
	next.covered[slotOf(next.sequence)] = carried - pending
	e.ledger().meter().reading.Store(&next)
}
