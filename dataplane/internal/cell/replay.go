package cell

import (
	"errors"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Confirm merges the answer to a cost that was sent, and ends the send. It reports whether the cost is unsent again,
// and returns the epoch that the origin has lost, or 0. If the origin has refused the cost and the entry no longer
// holds the cell, the cost can't be sent again, and gone returns it.
func (l Ledger) Confirm(m *Counters, sent *store.Cost, total *store.Total,
	now clock.Steady) (failed bool, gone int64, lost store.Epoch) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	slot, ok := l.e.slotLocked(sent.Cell.Sequence)
	switch {
	case !ok && total.Err != nil:
		return true, sent.Add, 0
	case !ok:
		return false, 0, 0
	}
	if l.epochs[slot] == 0 { // the cost was the cell's first; enterLocked would keep extra for it
		l.epochs[slot] = total.Epoch
	}
	lost = l.absorbLocked(m, slot, total)
	l.e.Reads().refreshLocked(sent.Cell.Sequence, total, now)
	if l.e.flags.Load()&(flagSending<<slot) == 0 {
		return l.restoresLocked(slot), 0, lost // a new epoch has begun since, and all of it is restored
	}
	l.arriveLocked(slot)
	defer l.dropCredit(slot, false)
	switch {
	case total.Err == nil:
		if sent.Restore > 0 || sent.Known > 0 {
			l.restoredLocked(slot, sent.Restore)
		}
		return l.restoresLocked(slot), 0, lost
	case errors.Is(total.Err, store.ErrEpoch) && sent.Epoch == 0:
		l.restoreLocked(slot, sent.Add)
	default:
		l.settleLocked(slot, -sent.Add)
	}
	return true, 0, lost
}

// Loaded is the result of Load.
type Loaded struct {
	Sequence int64         // of the current cell
	Costs    [2]store.Cost // of the previous cell and of the current cell
	Sends    [2]bool       // which of them are to be sent
	Expired  int64         // unsent cost that can influence no decision any more, and is given up
	Stale    bool          // the previous cell should be read once more
}

// Load takes an entry off the queue, or off the list of flushed entries, and puts its unsent cost, if any, on its way.
// With shared set, the cost goes to other regions. The previous cell should be read once more after graceMs, because
// other nodes may have added to it after the origin's last answer.
func (l Ledger) Load(h *Horizon, flushing, shared bool, nowMs, graceMs int64) (x Loaded) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	nowMs = h.Bound(nowMs) // otherwise unsent cost of a cell that the clock shows again would be given up
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

// giveUpLocked stops sending and restoring a cell.
func (l Ledger) giveUpLocked(slot int) (unsent int64) {
	if l.e.flags.Load()&(flagRestore<<slot) != 0 {
		l.restoredLocked(slot, l.extra.restore[slot].own)
	}
	unsent = max(0, l.unsentLocked(slot))
	l.cells[slot].settled.Add(unsent)
	return unsent
}

// loadLocked puts a cell's unsent cost on its way, and its cost to restore.
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
	c = store.Cost{Cell: l.e.Cell(sequence), Epoch: l.epochs[slot], Add: unsent,
		History: l.e.Histories().sentLocked(slot)}
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

// Unsent returns own accepted cost that is neither confirmed nor on its way, and cost to restore that is not on its
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

// MarkFlush adds an entry to the list of entries that are sent at once. first is false if the list had it already.
func (l Ledger) MarkFlush() (first bool) { return l.e.flags.Or(flagFlush)&flagFlush == 0 }

// UnmarkFlush takes it out again.
func (l Ledger) UnmarkFlush() { l.e.flags.And(^uint32(flagFlush)) }
