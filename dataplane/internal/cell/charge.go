package cell

import "github.com/weirhq/weir/dataplane/store"

// Charge adds this node's cost to a cell, whatever its limit. alive is false if the entry was evicted. If the cell now
// lies in the future because the clock was set back, the cost counts in the current cell, like other carried cost.
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

// GiveBack takes up to cost back from a cell: first from unsent cost, then from the cost that callers kept of claims on
// their way. The rest becomes credit. For example, of a cost of 10 of which 3 are unsent, 7 become credit.
func (l Ledger) GiveBack(sequence, cost int64) (given int64) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	slot, ok := l.e.slotLocked(sequence)
	if !ok {
		return 0
	}
	if l.books == nil { // all of it is this node's own, and never sent
		given = min(cost, l.e.counter.count(slot))
		l.e.Histories().giveBackLocked(slot, given)
		l.e.counter.take(slot, given)
		return given
	}
	return l.giveBackLocked(slot, cost)
}

func (l Ledger) giveBackLocked(slot int, cost int64) (given int64) {
	given = min(cost, l.neverSentLocked(slot))
	l.e.Histories().giveBackLocked(slot, given)
	l.e.counter.take(slot, given)
	if l.extra != nil {
		given += l.extra.claims.giveBack(slot, cost-given)
	}
	return given + l.creditLocked(slot, cost-given)
}

// Return takes back the claimed cost of a batch that did not spend it. For an untracked key the cost becomes credit,
// because unsent cost of that key can belong to other decisions and be in the overflow.
func (l Ledger) Return(sequence, cost int64) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	slot, ok := l.e.slotLocked(sequence)
	switch {
	case !ok:
	case l.e.flags.Load()&flagUntracked != 0:
		l.creditLocked(slot, cost)
	default:
		l.giveBackLocked(slot, cost)
	}
}

// creditLocked turns up to cost of the accepted cost that was already sent into this node's credit. Cost that the
// origin has forgotten gives no credit: see Forget.
func (l Ledger) creditLocked(slot int, cost int64) (credit int64) {
	credit = max(0, min(cost, l.acceptedLocked(slot)-l.credit(slot), creditMax-l.credit(slot)-l.netted(slot)))
	if credit > 0 {
		l.e.Histories().giveBackLocked(slot, credit)
		l.needExtra().credit[slot] += credit
		l.e.addOthers(slot, -credit)
		l.dropCredit(slot, l.e.flags.Load()&(flagSending<<slot) != 0)
	}
	return credit
}

// netLocked pays accepted cost that was not sent from the node's credit.
func (l Ledger) netLocked(slot int) { l.payLocked(slot, l.neverSentLocked(slot)) }

// payLocked pays from credit for cost that is then not sent to the origin. With a precise window it pays nothing: the
// origin's history has the credit's cost at the earlier time at which that cost was accepted. Other nodes would drop it
// from the window at that time, although the cost that it paid for came later.
func (l Ledger) payLocked(slot int, cost int64) (paid int64) {
	l.dropCredit(slot, l.e.flags.Load()&(flagSending<<slot) != 0)
	if l.e.flags.Load()&flagPrecise != 0 {
		return 0
	}
	return l.pay(slot, cost)
}

// neverSentLocked returns own cost that certainly no other node and no origin has received.
func (l Ledger) neverSentLocked(slot int) int64 {
	return max(0, l.unsentLocked(slot))
}

// Force counts cost in a cell whatever its limit. It returns false if the entry no longer holds the cell.
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

// SettleUnnamed counts own cost of an untracked key as settled, although the origin has not named it, because it is on
// its way there, or in the overflow. So no claim waits for it to be sent, and a total that lacks it does not count as a
// loss.
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
		c.History = l.e.Histories().sentLocked(slot)
		c.Epoch = l.epochs[slot]
		if shared {
			c.Limit = l.e.minLimits.lowest(slot)
		}
	}
	return c
}

// Unpaid returns the part of a cost counted on an untracked key that its credit does not pay for. Claims of failed
// batches, and of callers who left, become credit.
func (l Ledger) Unpaid(sequence, cost int64) int64 {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	slot, ok := l.e.slotLocked(sequence)
	if !ok {
		return cost
	}
	return cost - l.payLocked(slot, cost)
}
