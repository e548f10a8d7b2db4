package dataplane

import "github.com/weirhq/weir/shared/window"

// way is how a decision in a namespace that waits is to be made.
type way uint8

const (
	wayMade    way = iota // it is: the verdict stands, and was counted if it allows
	wayReply              // once the reply to what is unsent is here
	wayClaim              // at the origin
	wayCrowded            // denied for now: it leaves too little room for what other nodes may have accepted
	wayBroken             // by the outage policy: the origin does not answer, or the caller waits no longer
)

// judgeShare judges, and counts what fits both the limit and the node's share: in one
// step for all who wait for their share, and against other requests by the word's
// compare-and-swap.
func (e *entry) judgeShare(v *verdict, tMs, durationMs, limit, cost int64, count bool, nodes int64) (w way, alive bool) {
	for {
		if !e.judge(v, tMs, durationMs, limit, cost, false) {
			return wayMade, false
		}
		if !count || !v.allowed && e.flags.Load()&(flagClaiming<<slotOf(v.seq)) == 0 {
			return wayMade, true
		}
		e.mu.Lock()
		w, done := e.shareLocked(v, durationMs, limit, cost, nodes)
		e.mu.Unlock()
		if done {
			return w, true
		}
	}
}

func (e *entry) shareLocked(v *verdict, durationMs, limit, cost, nodes int64) (w way, done bool) {
	slot, ok := e.slotLocked(v.seq)
	if !ok || v.seq != e.seq.Load() {
		return wayMade, false
	}
	word := e.words[slot].Load()
	if !wordIsLive(word, v.seq) {
		e.awaitRelease(slot)
		return wayMade, false
	}
	uncovered := window.Start(v.seq+1, durationMs) - v.tMs
	e.weigh(v, slot, word, limit, cost, uncovered, durationMs)
	w = e.wayLocked(v, slot, word, limit, cost, durationMs, nodes)
	if v.allowed && w == wayMade {
		e.noteLow(slot, limit)
	}
	if v.allowed && w == wayMade && !e.words[slot].CompareAndSwap(word, word+uint64(cost)) {
		return wayMade, false
	}
	return w, true
}

// wayLocked is the way of a cost that was weighed. What this node is committed to, cost on
// its way in claims included, is one quantity; what its credit covers, the origin has
// counted already. A cost that would fit but for claims on their way waits for them.
func (e *entry) wayLocked(v *verdict, slot int, word uint64, limit, cost, durationMs, nodes int64) way {
	claiming := e.book.claiming(slot)
	if !v.allowed {
		uncovered := window.Start(v.seq+1, durationMs) - v.tMs
		if claiming > 0 && window.Fits(max(0, v.current-claiming), v.previous, cost, limit, uncovered, durationMs) {
			return wayClaim
		}
		return wayMade
	}
	unconfirmed := e.unconfirmedLocked(slot, word)
	committed := unconfirmed + claiming - e.book.credit(slot)
	left := limit - (v.current - committed) - v.carried(durationMs)
	switch share := left / (2 * nodes); {
	case committed+cost <= 0, share > cost && committed+cost <= share:
		return wayMade
	case unconfirmed > 0:
		return wayReply
	}
	return wayClaim
}

// unconfirmedLocked is own cost that was accepted and that the origin has not confirmed, on
// its way or not.
func (e *entry) unconfirmedLocked(slot int, word uint64) int64 {
	b := e.book
	return max(0, wordCount(word)-b.netted(slot)-b.claiming(slot)-b.cells[slot].settled.Load()) + b.inFlight(slot)
}

// beShared notes that the entry is asked about in a namespace that waits for its share.
func (e *entry) beShared() {
	if e.flags.Load()&flagShared == 0 {
		e.flags.Or(flagShared)
	}
}

// overHalfShare is true when own cost that is neither sent nor on its way, or kicked, is more than half of the node's
// share of what the counts leave of the limit. ahead is cost of a batch before v's on the same key.
func (e *entry) overHalfShare(v *verdict, durationMs, limit, ahead, cost, nodes int64) bool {
	slot := slotOf(v.seq)
	if e.flags.Load()&(flagKicked|flagSending<<slot) != 0 {
		return false
	}
	unsent := wordCount(e.words[slot].Load()) - e.book.cells[slot].settled.Load()
	left := limit - (v.current + ahead + cost - unsent) - v.carried(durationMs)
	return 2*unsent > max(cost, left/(2*nodes))
}

// wayOfMany is the way of all that a batch asks of the entry and has not claimed: sum adds up what it asks, by what
// counts, v, which is current without what the batch has claimed.
func (e *entry) wayOfMany(v *verdict, tMs, durationMs, limit, nodes int64, guest bool, own *claimed,
	sum func(v *verdict, uncoveredMs int64) (limit, cost int64)) (way, int64, int64) {
	e.beShared()
	if !e.judge(v, tMs, durationMs, limit, 0, false) {
		return wayMade, 0, 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(v.seq)
	if !ok {
		return wayMade, 0, 0
	}
	word, uncovered := e.words[slot].Load(), window.Start(v.seq+1, durationMs)-v.tMs
	mine := own.in(v.seq)
	e.weigh(v, slot, word, limit, 0, uncovered, durationMs)
	v.current = max(0, v.current-mine)
	limit, cost := sum(v, uncovered)
	if cost <= mine {
		return wayMade, limit, cost
	}
	cost -= mine
	e.weigh(v, slot, word, limit, cost, uncovered, durationMs)
	if v.allowed && guest {
		return e.guestWayLocked(slot, word, cost), limit, cost
	}
	return e.wayLocked(v, slot, word, limit, cost, durationMs, nodes), limit, cost
}

// guestWayLocked is the way of a cost that fits: a guest has no share, and credit only by chance.
func (e *entry) guestWayLocked(slot int, word uint64, cost int64) way {
	if e.book.credit(slot)-e.unconfirmedLocked(slot, word) >= cost {
		return wayMade
	}
	return wayClaim
}
