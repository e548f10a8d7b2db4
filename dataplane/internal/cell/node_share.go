package cell

import "github.com/weirhq/weir/shared/window"

// Way is how to make a decision in a namespace that waits for its share.
type Way uint8

// Ways of a decision.
const (
	WayMade      Way = iota // decided: the verdict stands, and an allowed cost was counted
	WayReply                // after the reply to unsent cost has arrived
	WayRead                 // once the key was read
	WayClaim                // at the origin
	WayOverShare            // denied for now: it leaves too little room for cost that other nodes may have accepted
	WayBroken               // by the outage policy: the origin does not answer, or the caller waits no longer
	WayKept                 // as WayBroken; the claimed cost fits by all counts of this node, and is counted
)

// NodeShare is the part of an entry by which a node decides within its share of a limit: the part of the remaining
// limit that the node may use unseen. Other costs wait for the origin's answer.
//
// It has no data of its own, but flagWaits.
type NodeShare struct{ e *Entry }

// NodeShare returns the part of the entry by which a node decides within its share of a limit.
func (e *Entry) NodeShare() NodeShare { return NodeShare{e} }

// Judge judges a cost, and counts it if it fits both the limit and the node's share. It is one step for all requests
// that wait for their share, and against other requests by the word's compare-and-swap. Without fresh, a cost within
// the share is not counted either, because the key must be read first.
func (n NodeShare) Judge(v *Verdict, h *Horizon, tMs, durationMs, limit, cost int64, count, fresh bool,
	nodes int64) (w Way, alive bool) {
	for {
		if !n.e.Judge(v, h, tMs, durationMs, limit, cost, false) {
			return WayMade, false
		}
		if !count || !v.Allowed && n.e.flags.Load()&(flagClaiming<<slotOf(v.Sequence)) == 0 {
			return WayMade, true
		}
		n.e.mu.Lock()
		w, done := n.judgeLocked(v, durationMs, limit, cost, fresh, nodes)
		n.e.mu.Unlock()
		if done {
			return w, true
		}
	}
}

func (n NodeShare) judgeLocked(v *Verdict, durationMs, limit, cost int64, fresh bool, nodes int64) (w Way, done bool) {
	slot, ok := n.e.slotLocked(v.Sequence)
	if !ok || v.Sequence != n.e.counter.sequence() {
		return WayMade, false
	}
	word := n.e.counter.word(slot)
	if !wordIsLive(word, v.Sequence) {
		n.e.counter.awaitRelease(slot)
		return WayMade, false
	}
	uncovered := window.Start(v.Sequence+1, durationMs) - v.AtMs
	n.e.weigh(v, slot, word, limit, cost, uncovered, durationMs)
	if w = n.wayLocked(v, slot, word, limit, cost, durationMs, nodes); v.Allowed && w == WayMade && !fresh {
		return WayRead, true
	}
	if v.Allowed && w == WayMade {
		n.e.lowerMinLimit(slot, limit)
		n.e.Histories().begin(slot, v, durationMs, limit)
	}
	if v.Allowed && w == WayMade && !n.e.counter.swap(slot, word, word+uint64(cost)) {
		return WayMade, false
	}
	return w, true
}

// wayLocked returns the way of a cost that was weighed. All cost that this node is committed to, including claims on
// their way, is treated as a single quantity. The origin has already counted cost that the credit covers. A cost that
// fits only if claims on their way are refused must wait for them.
func (n NodeShare) wayLocked(v *Verdict, slot int, word uint64, limit, cost, durationMs, nodes int64) Way {
	claiming := n.e.Ledger().claiming(slot)
	if !v.Allowed {
		if claiming > 0 && window.Fits(max(0, v.Current-claiming), v.Previous, cost, limit, v.UncoveredMs(durationMs),
			durationMs) {
			return WayClaim
		}
		return WayMade
	}
	unconfirmed := n.e.Ledger().unconfirmedLocked(slot, word)
	committed := unconfirmed + claiming - n.e.Ledger().credit(slot)
	left := limit - (v.Current - committed) - v.carried(durationMs)
	switch share := left / (2 * nodes); {
	case committed+cost <= 0, share > cost && committed+cost <= share:
		return WayMade
	case unconfirmed > 0:
		return WayReply
	}
	return WayClaim
}

// Mark records that a request for the entry came in a namespace that waits for its share.
func (n NodeShare) Mark() {
	if n.e.flags.Load()&flagWaits == 0 {
		n.e.flags.Or(flagWaits)
	}
}

// OverHalf reports whether own cost that is neither sent nor on its way, or flushed, exceeds half of the node's share
// of the limit's rest. ahead is the cost of a batch's earlier requests on the same key.
func (n NodeShare) OverHalf(v *Verdict, durationMs, limit, ahead, cost, nodes int64) bool {
	slot := slotOf(v.Sequence)
	if n.e.flags.Load()&(flagFlush|flagSending<<slot) != 0 {
		return false
	}
	unsent := n.e.Ledger().UnsentIn(v.Sequence)
	left := limit - (v.Current + ahead + cost - unsent) - v.carried(durationMs)
	return 2*unsent > max(cost, left/(2*nodes))
}

// WayOfBatch returns the way of all cost that a batch wants of the entry and has not claimed. sum adds up this cost, by
// the counts in v, whose current count leaves out the batch's own claims.
func (n NodeShare) WayOfBatch(v *Verdict, h *Horizon, tMs, durationMs, limit, nodes int64, untracked bool, own *Claimed,
	sum func(v *Verdict, uncoveredMs int64) (limit, cost int64)) (Way, int64, int64) {
	n.Mark()
	if !n.e.Judge(v, h, tMs, durationMs, limit, 0, false) {
		return WayMade, 0, 0
	}
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	slot, ok := n.e.slotLocked(v.Sequence)
	if !ok {
		return WayMade, 0, 0
	}
	word, uncovered := n.e.counter.word(slot), window.Start(v.Sequence+1, durationMs)-v.AtMs
	mine := own.In(v.Sequence)
	n.e.weigh(v, slot, word, limit, 0, uncovered, durationMs)
	v.Current = max(0, v.Current-mine)
	limit, cost := sum(v, v.UncoveredMs(durationMs))
	if cost <= mine {
		return WayMade, limit, cost
	}
	cost -= mine
	n.e.weigh(v, slot, word, limit, cost, uncovered, durationMs)
	if v.Allowed && untracked {
		return n.untrackedWayLocked(slot, word, cost), limit, cost
	}
	return n.wayLocked(v, slot, word, limit, cost, durationMs, nodes), limit, cost
}

// untrackedWayLocked returns the way of a cost that fits. An untracked key has no share, and seldom has credit.
func (n NodeShare) untrackedWayLocked(slot int, word uint64, cost int64) Way {
	if n.e.Ledger().credit(slot)-n.e.Ledger().unconfirmedLocked(slot, word) >= cost {
		return WayMade
	}
	return WayClaim
}
