package cell

// An origin whose clock is set ahead expires its cells. If the clock is then set back, it shows some of these cells
// again, and the origin has no counts of them. The epoch is the same, so nodes restore nothing: their own counts go on
// limiting callers, and all cost that nodes accept from then on is sent.
//
// Credit must not pay for any of that cost. It stands for cost that the origin has counted and no caller has spent. If
// the origin has forgotten this cost, the cost that the credit pays for would be unknown to all other nodes. So the
// cost that was named before is marked as forgotten, and gives no credit. It is taken out of settled instead. If the
// origin does have the cost, its next answer shows it as other nodes' cost, and this node counts it until the cell's
// end.

// Forget records that a shard of the origin may have forgotten each cell that had expired by latestMs, the latest time
// that the shard's clock showed before it was set back. belongs reports whether an entry's key is in the shard.
func (t *Table) Forget(latestMs int64, belongs func(*Entry) bool) {
	visit := func(e *Entry) {
		if expiredAt(e.counter.sequence()-1, e.names.durationMs(), latestMs) && belongs(e) {
			forget(e, latestMs)
		}
	}
	t.Each(visit)
	t.UntrackedKeys.each(visit)
}

func forget(e *Entry, latestMs int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	seq, flags, b := e.counter.sequence(), e.flags.Load(), e.keeps()
	if b == nil || flags&flagDead != 0 {
		return
	}
	for _, s := range [2]int64{seq - 1, seq} {
		if slot := slotOf(s); expiredAt(s, e.names.durationMs(), latestMs) {
			b.forget(slot, flags&(flagSending<<slot) != 0)
		}
	}
}

// forget marks all cost of a cell that the origin has named. sends reports whether cost of the cell is on its way.
func (b *books) forget(slot int, sends bool) {
	if named := b.named(slot); named > 0 {
		b.needExtra().forgotten[slot] = named
		b.dropCredit(slot, sends)
	}
}

// dropCredit ends credit that stands for forgotten cost. The cost stays in the word, and others keeps the amount that
// balances it, as after pay. While cost of the cell is on its way, dropCredit does nothing: the origin can still refuse
// that cost, which then leaves settled. Confirm calls dropCredit after that.
func (b *books) dropCredit(slot int, sends bool) {
	if b.extra == nil || sends {
		return
	}
	x, c := b.extra, &b.cells[slot]
	gone := min(x.credit[slot], x.forgotten[slot], b.named(slot))
	if gone <= 0 {
		return
	}
	x.credit[slot] -= gone
	x.netted[slot] += gone
	x.forgotten[slot] -= gone
	c.settled.Add(-gone)
	c.peers = min(c.peers, c.settled.Load())
}
