package cell

import "github.com/weirhq/weir/shared/window"

// Way is how a decision in a namespace that waits is to be made.
type Way uint8

// Ways of a decision.
const (
	WayMade      Way = iota // it is: the verdict stands, and was counted if it allows
	WayReply                // once the reply to what is unsent is here
	WayClaim                // at the origin
	WayOverShare            // denied for now: it leaves too little room for what other nodes may have accepted
	WayBroken               // by the outage policy: the origin does not answer, or the caller waits no longer
)

// NodeShare is the part of an entry by which a node decides within its share of a limit: the part of the remaining
// limit that the node may use unseen. Other costs wait for the origin's answer.
//
// It has no data of its own, but flagWaits.
type NodeShare struct{ e *Entry }

// NodeShare returns the part of the entry by which a node decides within its share of a limit.
func (e *Entry) NodeShare() NodeShare { return NodeShare{e} }

// Judge judges, and counts what fits both the limit and the node's share: in one
// step for all who wait for their share, and against other requests by the word's
// compare-and-swap.
func (n NodeShare) Judge(v *Verdict, h *Horizon, tMs, durationMs, limit, cost int64, count bool,
	nodes int64) (w Way, alive bool) {
	for {
		if !n.e.Judge(v, h, tMs, durationMs, limit, cost, false) {
			return WayMade, false
		}
		if !count || !v.Allowed && n.e.flags.Load()&(flagClaiming<<slotOf(v.Sequence)) == 0 {
			return WayMade, true
		}
		n.e.mu.Lock()
		w, done := n.judgeLocked(v, durationMs, limit, cost, nodes)
		n.e.mu.Unlock()
		if done {
			return w, true
		}
	}
}

func (n NodeShare) judgeLocked(v *Verdict, durationMs, limit, cost, nodes int64) (w Way, done bool) {
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
	w = n.wayLocked(v, slot, word, limit, cost, durationMs, nodes)
	if v.Allowed && w == WayMade {
		n.e.lowerMinLimit(slot, limit)
	}
	if v.Allowed && w == WayMade && !n.e.counter.swap(slot, word, word+uint64(cost)) {
		return WayMade, false
	}
	return w, true
}

// wayLocked is the way of a cost that was weighed. What this node is committed to, cost on
// its way in claims included, is one quantity; what its credit covers, the origin has
// counted already. A cost that fits if claims on their way are refused waits for them.
func (n NodeShare) wayLocked(v *Verdict, slot int, word uint64, limit, cost, durationMs, nodes int64) Way {
	claiming := n.e.Ledger().claiming(slot)
	if !v.Allowed {
		uncovered := window.Start(v.Sequence+1, durationMs) - v.AtMs
		if claiming > 0 && window.Fits(max(0, v.Current-claiming), v.Previous, cost, limit, uncovered, durationMs) {
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

// Mark notes that the entry is asked about in a namespace that waits for its share.
func (n NodeShare) Mark() {
	if n.e.flags.Load()&flagWaits == 0 {
		n.e.flags.Or(flagWaits)
	}
}

// OverHalf is true when own cost that is neither sent nor on its way, or flushed, is more than half of the
// node's share of what the counts leave of the limit. ahead is cost of a batch before v's on the same key.
func (n NodeShare) OverHalf(v *Verdict, durationMs, limit, ahead, cost, nodes int64) bool {
	slot := slotOf(v.Sequence)
	if n.e.flags.Load()&(flagFlush|flagSending<<slot) != 0 {
		return false
	}
	unsent := n.e.Ledger().UnsentIn(v.Sequence)
	left := limit - (v.Current + ahead + cost - unsent) - v.carried(durationMs)
	return 2*unsent > max(cost, left/(2*nodes))
}

// WayOfBatch is the way of all that a batch asks of the entry and has not claimed: sum adds up what it asks, by what
// counts, v, which is current without what the batch has claimed.
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
	limit, cost := sum(v, uncovered)
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

// untrackedWayLocked is the way of a cost that fits: an untracked key has no share, and credit only by chance.
func (n NodeShare) untrackedWayLocked(slot int, word uint64, cost int64) Way {
	if n.e.Ledger().credit(slot)-n.e.Ledger().unconfirmedLocked(slot, word) >= cost {
		return WayMade
	}
	return WayClaim
}
