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
func (e *Entry) GiveBack(sequence, cost int64) (given int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return 0
	}
	if e.ledger() == nil { // all of it is this node's own, and never sent
		given = min(cost, e.counter.count(slot))
		e.counter.take(slot, given)
		return given
	}
	given = min(cost, e.neverSentLocked(slot))
	e.counter.take(slot, given)
	return given + e.creditLocked(slot, cost-given)
}

// CreditClaim turns what others know of, and is not spent after all, into this node's credit.
func (e *Entry) CreditClaim(sequence, cost int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.creditLocked(slot, cost)
	}
}

// creditLocked turns up to cost that others know of into this node's credit.
func (e *Entry) creditLocked(slot int, cost int64) (credit int64) {
	b := e.ledger()
	credit = max(0, min(cost, e.acceptedLocked(slot)-b.credit(slot), creditMax-b.credit(slot)-b.netted(slot)))
	if credit > 0 {
		b.needExtra().credit[slot] += credit
		e.addOthers(slot, -credit)
	}
	return credit
}

// netLocked pays what this node has accepted and not sent from its credit. What a
// decision reads stays as it is: taking the cost out of the word instead, and the credit
// out of others, would let a word come back to an earlier value while others has
// changed, and a decision that was judged before count after.
func (e *Entry) netLocked(slot int) {
	if n := min(e.ledger().credit(slot), e.neverSentLocked(slot)); n > 0 {
		e.ledger().extra.credit[slot] -= n
		e.ledger().extra.netted[slot] += n
	}
}

// neverSentLocked is own cost that certainly no other node and no origin knows.
func (e *Entry) neverSentLocked(slot int) int64 {
	return max(0, e.unsentLocked(slot))
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
func (e *Entry) SettleUnnamed(sequence, cost int64) {
	if e.ledger() == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.ledger().cells[slot].settled.Add(cost)
		e.ledger().needExtra().unnamed[slot] += cost
	}
}

// LoadUntracked puts own cost of an untracked key on its way. See SettleUnnamed.
func (e *Entry) LoadUntracked(sequence, cost int64, shared bool) store.Cost {
	e.SettleUnnamed(sequence, cost)
	e.mu.Lock()
	defer e.mu.Unlock()
	c := store.Cost{Cell: e.Cell(sequence), Add: cost}
	if slot, ok := e.slotLocked(sequence); ok {
		c.Epoch = e.ledger().epochs[slot]
		if shared {
			c.Limit = e.limitLocked(slot)
		}
	}
	return c
}

// Unpaid is what credit does not pay for of a cost that was counted on an untracked key: claims of batches that failed
// and of callers who left have become that.
func (e *Entry) Unpaid(sequence, cost int64) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return cost
	}
	n := min(e.ledger().credit(slot), cost)
	if n > 0 {
		e.ledger().extra.credit[slot] -= n
		e.ledger().extra.netted[slot] += n
	}
	return cost - n
}
