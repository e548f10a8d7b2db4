package dataplane

// charge adds own cost to a cell whatever its limit. alive is false when the entry was
// evicted.
func (e *entry) charge(sequence, cost, limit int64) (charged int64, alive bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flags.Load()&flagDead != 0 {
		return 0, false
	}
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return 0, true
	}
	e.noteLow(slot, limit) // past half of it no flood washes the entry away
	return e.addLocked(slot, cost), true
}

// giveBack takes up to cost back from a cell: first what nobody has been told of,
// the rest as credit.
func (e *entry) giveBack(sequence, cost int64) (given int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return 0
	}
	if e.book == nil { // all of it is this node's own, and nobody is told
		given = min(cost, wordCount(e.words[slot].Load()))
		e.takeLocked(slot, given)
		return given
	}
	given = min(cost, e.untoldLocked(slot))
	e.takeLocked(slot, given)
	return given + e.creditLocked(slot, cost-given)
}

// creditClaim turns what others know of, and is not spent after all, into this node's credit.
func (e *entry) creditClaim(sequence, cost int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.creditLocked(slot, cost)
	}
}

// creditLocked turns up to cost that others know of into this node's credit.
func (e *entry) creditLocked(slot int, cost int64) (credit int64) {
	b := e.book
	credit = max(0, min(cost, e.acceptedLocked(slot)-b.credit(slot), creditMax-b.credit(slot)-b.netted(slot)))
	if credit > 0 {
		b.rarely().credit[slot] += credit
		e.foreign(slot).Add(-credit)
	}
	return credit
}

// netLocked pays what this node has accepted and told nobody of from its credit. What a
// decision reads stays as it is: taking the cost out of the word instead, and the credit
// out of others, would let a word come back to an earlier value while others has
// changed, and a decision that was judged before count after.
func (e *entry) netLocked(slot int) {
	if n := min(e.book.credit(slot), e.untoldLocked(slot)); n > 0 {
		e.book.rare.credit[slot] -= n
		e.book.rare.netted[slot] += n
	}
}

// untoldLocked is own cost that certainly neither the origin nor another region knows of.
func (e *entry) untoldLocked(slot int) int64 {
	if e.flags.Load()&(flagOffered<<slot) != 0 {
		return 0
	}
	return max(0, min(e.unsentLocked(slot), e.acceptedLocked(slot)-max(e.book.cells[slot].flushed, e.book.told(slot))))
}

// force counts cost in a cell whatever its limit; false if the entry has moved on.
func (e *entry) force(sequence, limit, cost int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if ok {
		e.noteLow(slot, limit)
		e.addLocked(slot, cost)
	}
	return ok
}

// settleUnnamed takes own cost of a guest for settled, though the origin has not named it: it is
// on its way there, or in the overflow. No claim waits for it to be sent, and no total that lacks
// it is taken for a loss.
func (e *entry) settleUnnamed(sequence, cost int64) {
	if e.book == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.book.cells[slot].settled.Add(cost)
		e.book.rarely().unnamed[slot] += cost
	}
}

// arrived merges the total of a cell after a guest's cost was added to it.
func (e *entry) arrived(m *counters, sequence, total int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(sequence); ok {
		e.absorbLocked(m, slot, total, false)
	}
}

// unpaid is what credit does not pay for of a cost that was counted on a guest: claims of batches that failed and of
// callers who left have become that.
func (e *entry) unpaid(sequence, cost int64) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	if !ok {
		return cost
	}
	n := min(e.book.credit(slot), cost)
	if n > 0 {
		e.book.rare.credit[slot] -= n
		e.book.rare.netted[slot] += n
	}
	return cost - n
}
