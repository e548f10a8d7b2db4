package cell

import (
	"errors"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Confirm merges the answer to what was sent of a cell, and ends the send. It returns whether the cost is unsent again,
// and the epoch that the origin has lost, 0 for none.
func (e *Entry) Confirm(m *Counters, sent *store.Cost, total *store.Total,
	now clock.Steady) (failed bool, lost store.Epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sent.Cell.Sequence)
	if !ok {
		return total.Err != nil, 0
	}
	was := e.ledger().epochs[slot]
	lost = e.absorbLocked(m, slot, total)
	e.Reads().refreshLocked(sent.Cell.Sequence, total, now)
	if e.flags.Load()&(flagSending<<slot) == 0 {
		return e.flags.Load()&(flagRestore<<slot) != 0, lost // a new epoch has begun since, and all of it is restored
	}
	switch {
	case total.Err == nil:
		e.arriveLocked(slot)
		if sent.Restore > 0 || sent.Known > 0 {
			e.restoredLocked(slot)
		}
		return false, lost
	case errors.Is(total.Err, store.ErrEpoch) && sent.Epoch == 0 && was != 0:
		e.refusedLocked(slot, sent)
	case errors.Is(total.Err, store.ErrEpoch): // the cell was in no epoch here: others may know the refused cost
		e.beginLocked(slot)
	default:
		e.returnLocked(slot, sent.Add)
	}
	return true, lost
}

func (e *Entry) restoredLocked(slot int) {
	e.flags.And(^uint32(flagRestore << slot))
	if extra := e.ledger().extra; extra != nil { // else it was given up while it was on its way
		extra.restore[slot] = restoring{}
	}
}

// Loaded is what load has put on its way.
type Loaded struct {
	Sequence int64         // of the current cell
	Costs    [2]store.Cost // of the previous cell and the current one
	Sends    [2]bool       // which of them are to be sent
	Expired  int64         // unsent cost that can influence no decision any more, and is given up
	Stale    bool          // the previous cell should be read once more
}

// Load takes an entry off the queue, or off those that are flushed, and puts its unsent cost, if any, on the way. With
// shared set other regions are to hear of it. The previous cell should be read once more, after graceMs, since others
// may have added to it after the origin last spoke of it here.
func (e *Entry) Load(h *Horizon, flushing, shared bool, nowMs, graceMs int64) (l Loaded) {
	e.mu.Lock()
	defer e.mu.Unlock()
	nowMs = h.Bound(nowMs) // or what is unsent of a cell that the clock shows again would be given up
	from := uint32(flagInReplay)
	if flushing {
		from = flagFlush
	}
	e.flags.And(^from)
	l.Sequence = e.counter.sequence()
	durationMs := e.names.durationMs()
	for i, s := range [2]int64{l.Sequence - 1, l.Sequence} {
		if !expiredAt(s, durationMs, nowMs) {
			l.Costs[i], l.Sends[i] = e.loadLocked(s, shared)
		} else {
			l.Expired += e.giveUpLocked(slotOf(s))
		}
	}
	if flushing {
		return l
	}
	stale := uint32(flagStale) << slotOf(l.Sequence-1)
	l.Stale = e.flags.Load()&stale != 0 && nowMs >= window.Start(l.Sequence, durationMs)+graceMs
	if l.Stale {
		e.flags.And(^stale)
	}
	return l
}

// giveUpLocked has nothing more of a cell sent or restored.
func (e *Entry) giveUpLocked(slot int) (unsent int64) {
	if e.flags.Load()&(flagRestore<<slot) != 0 {
		e.restoredLocked(slot)
	}
	unsent = max(0, e.unsentLocked(slot))
	e.ledger().cells[slot].settled.Add(unsent)
	return unsent
}

// loadLocked puts what is unsent of a cell on its way, and what is to be restored.
func (e *Entry) loadLocked(sequence int64, shared bool) (c store.Cost, sends bool) {
	slot := slotOf(sequence)
	flags := e.flags.Load()
	if flags&(flagSending<<slot) != 0 {
		return c, false
	}
	e.netLocked(slot)
	unsent, restores := max(0, e.unsentLocked(slot)), flags&(flagRestore<<slot) != 0
	if unsent == 0 && !restores {
		return c, false
	}
	c = store.Cost{Cell: e.Cell(sequence), Epoch: e.ledger().epochs[slot], Add: unsent}
	if restores {
		r := e.ledger().extra.restore[slot]
		c.Restore, c.Known = r.own, r.known
	}
	if shared {
		c.Limit = e.limitLocked(slot)
	}
	e.sendLocked(slot, unsent)
	return c, true
}

// limitLocked is the lowest limit that a cell's cost was counted against, 0 for none.
func (e *Entry) limitLocked(slot int) int64 {
	if limit := e.minLimits.get(slot); limit <= window.LimitMax {
		return limit
	}
	return 0
}

// Unsent is own accepted cost that is neither confirmed nor on its way, and what is to be restored and is not on its
// way.
func (e *Entry) Unsent() (cost int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for slot := range e.ledger().cells {
		cost += max(0, e.unsentLocked(slot))
		if e.restoresLocked(slot) {
			cost += max(1, e.ledger().extra.restore[slot].own)
		}
	}
	return cost
}

// MarkFlush puts an entry among those that are sent at once; first is false if it is there.
func (e *Entry) MarkFlush() (first bool) { return e.flags.Or(flagFlush)&flagFlush == 0 }

// UnmarkFlush takes it out again.
func (e *Entry) UnmarkFlush() { e.flags.And(^uint32(flagFlush)) }
