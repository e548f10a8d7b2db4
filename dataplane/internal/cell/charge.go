package cell

import "github.com/weirhq/weir/dataplane/store"

// Charge adds this node's cost to a cell, whatever its limit. alive is false if the entry was
// evicted. If the cell now lies in the future because the clock was set back, the cost counts in
// the current cell, like the other carried cost.
func (e *Entry) Charge(sequence, cost, limit int64) (charged int64, alive bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flags.Load()&flagDead != 0 {
		return 0, false
	}
	slot, ok := e.slotLocked(min(sequence, e.counter.sequence()))
	if !ok {
		return 0, true
	}
	e.lowerMinLimit(slot, limit) // past half of it no flood washes the entry away
	return e.counter.add(slot, cost), true
}

// GiveBack takes up to cost back from a cell: first what was not sent yet,
// the rest as credit.
func (l Ledger) GiveBack(sequence, cost int64) (given int64) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	slot, ok := l.e.slotLocked(sequence)
	if !ok {
		return 0
	}
	if l.books == nil { // all of it is this node's own, and never sent
		given = min(cost, l.e.counter.count(slot))
		l.e.counter.take(slot, given)
		return given
	}
	given = min(cost, l.neverSentLocked(slot))
	l.e.counter.take(slot, given)
	return given + l.creditLocked(slot, cost-given)
}

// Credit turns what others know of, and is not spent after all, into this node's credit.
func (l Ledger) Credit(sequence, cost int64) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if slot, ok := l.e.slotLocked(sequence); ok {
		l.creditLocked(slot, cost)
	}
}

// creditLocked turns up to cost that others know of into this node's credit.
func (l Ledger) creditLocked(slot int, cost int64) (credit int64) {
	credit = max(0, min(cost, l.acceptedLocked(slot)-l.credit(slot), creditMax-l.credit(slot)-l.netted(slot)))
	if credit > 0 {
		l.needExtra().credit[slot] += credit
		l.e.addOthers(slot, -credit)
	}
	return credit
}

// netLocked pays what this node has accepted and not sent from its credit.
func (l Ledger) netLocked(slot int) { l.pay(slot, l.neverSentLocked(slot)) }

// neverSentLocked is own cost that certainly no other node and no origin knows.
func (l Ledger) neverSentLocked(slot int) int64 {
	return max(0, l.unsentLocked(slot))
}

// Force counts cost in a cell whatever its limit; false if the entry has moved on.
func (e *Entry) Force(sequence, limit, cost int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if ok {
		e.lowerMinLimit(slot, limit)
		e.counter.add(slot, cost)
	}
	return ok
}

// SettleUnnamed takes own cost of an untracked key for settled, though the origin has not named it: it is
// on its way there, or in the overflow. No claim waits for it to be sent, and no total that lacks
// it is taken for a loss.
func (l Ledger) SettleUnnamed(sequence, cost int64) {
	if l.books == nil {
		return
	}
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	if slot, ok := l.e.slotLocked(sequence); ok {
		l.cells[slot].settled.Add(cost)
		l.needExtra().unnamed[slot] += cost
	}
}

// LoadUntracked puts own cost of an untracked key on its way. See SettleUnnamed.
func (l Ledger) LoadUntracked(sequence, cost int64, shared bool) store.Cost {
	l.SettleUnnamed(sequence, cost)
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	c := store.Cost{Cell: l.e.Cell(sequence), Add: cost}
	if slot, ok := l.e.slotLocked(sequence); ok {
		c.Epoch = l.epochs[slot]
		if shared {
			c.Limit = l.e.minLimits.lowest(slot)
		}
	}
	return c
}

// Unpaid is what credit does not pay for of a cost that was counted on an untracked key: claims of batches that failed
// and of callers who left have become that.
func (l Ledger) Unpaid(sequence, cost int64) int64 {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	slot, ok := l.e.slotLocked(sequence)
	if !ok {
		return cost
	}
	return cost - l.pay(slot, cost)
}
