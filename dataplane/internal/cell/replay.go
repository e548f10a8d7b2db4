package cell

import (
	"errors"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Confirm merges the answer to what was sent of a cell, and ends the send. It returns whether the cost is unsent again,
// and the epoch that the origin has lost, 0 for none.
func (l Ledger) Confirm(m *Counters, sent *store.Cost, total *store.Total,
	now clock.Steady) (failed bool, lost store.Epoch) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	slot, ok := l.e.slotLocked(sent.Cell.Sequence)
	if !ok {
		return total.Err != nil, 0
	}
	if l.epochs[slot] == 0 { // the cost was the cell's first, and its answer has the cell's first epoch
		l.epochs[slot] = total.Epoch
	}
	lost = l.absorbLocked(m, slot, total)
	l.e.Reads().refreshLocked(sent.Cell.Sequence, total, now)
	if l.e.flags.Load()&(flagSending<<slot) == 0 {
		return l.restoresLocked(slot), lost // a new epoch has begun since, and all of it is restored
	}
	l.arriveLocked(slot)
	switch {
	case total.Err == nil:
		if sent.Restore > 0 || sent.Known > 0 {
			l.restoredLocked(slot)
		}
		return l.restoresLocked(slot), lost
	case errors.Is(total.Err, store.ErrEpoch) && sent.Epoch == 0:
		l.refusedLocked(slot, sent)
	default:
		l.settleLocked(slot, -sent.Add)
	}
	return true, lost
}

func (l Ledger) restoredLocked(slot int) {
	l.e.flags.And(^uint32(flagRestore << slot))
	if extra := l.extra; extra != nil { // else it was given up while it was on its way
		extra.restore[slot] = restoring{}
	}
}

// Loaded is the result of Load.
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
func (l Ledger) Load(h *Horizon, flushing, shared bool, nowMs, graceMs int64) (x Loaded) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	nowMs = h.Bound(nowMs) // or what is unsent of a cell that the clock shows again would be given up
	from := uint32(flagInReplay)
	if flushing {
		from = flagFlush
	}
	l.e.flags.And(^from)
	x.Sequence = l.e.counter.sequence()
	durationMs := l.e.names.durationMs()
	for i, s := range [2]int64{x.Sequence - 1, x.Sequence} {
		if !expiredAt(s, durationMs, nowMs) {
			x.Costs[i], x.Sends[i] = l.loadLocked(s, shared)
		} else {
			x.Expired += l.giveUpLocked(slotOf(s))
		}
	}
	if flushing {
		return x
	}
	stale := uint32(flagStale) << slotOf(x.Sequence-1)
	flags := l.e.flags.Load() & (stale | flagDead) // an entry that was evicted needs no answer any more
	x.Stale = flags == stale && nowMs >= window.Start(x.Sequence, durationMs)+graceMs
	if x.Stale {
		l.e.flags.And(^stale)
	}
	return x
}

// giveUpLocked has nothing more of a cell sent or restored.
func (l Ledger) giveUpLocked(slot int) (unsent int64) {
	if l.e.flags.Load()&(flagRestore<<slot) != 0 {
		l.restoredLocked(slot)
	}
	unsent = max(0, l.unsentLocked(slot))
	l.cells[slot].settled.Add(unsent)
	return unsent
}

// loadLocked puts what is unsent of a cell on its way, and what is to be restored.
func (l Ledger) loadLocked(sequence int64, shared bool) (c store.Cost, sends bool) {
	slot := slotOf(sequence)
	flags := l.e.flags.Load()
	if flags&(flagSending<<slot) != 0 {
		return c, false
	}
	l.netLocked(slot)
	unsent, restores := max(0, l.unsentLocked(slot)), flags&(flagRestore<<slot) != 0
	if unsent == 0 && !restores {
		return c, false
	}
	c = store.Cost{Cell: l.e.Cell(sequence), Epoch: l.epochs[slot], Add: unsent}
	if restores {
		r := l.extra.restore[slot]
		c.Restore, c.Known = r.own, r.known
	}
	if shared {
		c.Limit = l.e.minLimits.lowest(slot)
	}
	l.sendLocked(slot, unsent)
	return c, true
}

// Unsent is own accepted cost that is neither confirmed nor on its way, and what is to be restored and is not on its
// way.
func (l Ledger) Unsent() (cost int64) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	for slot := range l.cells {
		cost += max(0, l.unsentLocked(slot))
		if l.restoresLocked(slot) {
			cost += max(1, l.extra.restore[slot].own)
		}
	}
	return cost
}

// MarkFlush puts an entry among those that are sent at once; first is false if it is there.
func (l Ledger) MarkFlush() (first bool) { return l.e.flags.Or(flagFlush)&flagFlush == 0 }

// UnmarkFlush takes it out again.
func (l Ledger) UnmarkFlush() { l.e.flags.And(^uint32(flagFlush)) }
