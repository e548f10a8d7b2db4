package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// claimant is a cost that waits for its claim. Guarded by shard.mu until it is taken, then by
// the call that took it until done is closed, except for what entry.mu guards.
//
// From when a claim is prepared its cost is in the count, where singles, batches and handles
// see it, and in rare.claiming. An answer takes it out of that: what was added is own cost that
// the origin has confirmed, what was not is taken back out of the count. What was added for
// a caller who has left is this node's credit: nothing of it is lost, and no other decision pays
// for it.
type claimant struct {
	entry *entry
	v     verdict // what it was judged by; of an added one, what it was counted on
	limit int64
	cost  int64

	committed bool  // the cost is in the count; under entry.mu
	spares    bool  // it leaves room for the shares of other nodes; constant
	left      bool  // its caller waits no longer; under entry.mu
	lent      bool  // who has left has its cost as credit; under entry.mu
	answered  bool  // way is decided; under entry.mu
	atMost    int64 // the origin's total that fits the limit, without room for others

	done chan struct{}
	way  way // wayReply: judge again
}

func (e *entry) leaveClaim(c *claimant, lend bool) (answered bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.answered {
		return true
	}
	c.left = true
	slot, ok := e.slotLocked(c.v.seq)
	if b := e.book; ok && lend && c.committed && b.credit(slot)+b.netted(slot)+c.cost <= creditMax {
		c.lent = true
		b.rarely().credit[slot] += c.cost
		e.foreign(slot).Add(-c.cost)
	}
	return false
}

// claimCall is a claim on its way to the origin, which adds the cost if the total stays at most AtMost.
type claimCall struct {
	Cell         window.Cell
	Cost, AtMost int64
}

// newClaim makes a claim of a cost for an entry, with spares set for one that leaves room for other nodes. What it was
// judged by is v.
func newClaim(e *entry, v *verdict, limit, cost int64, spares bool) *claimant {
	return &claimant{entry: e, v: *v, limit: limit, cost: cost, spares: spares, done: make(chan struct{})}
}

// answer decides the way of those who wait. Called under entry.mu.
func (c *claimant) answer(w way) { c.way, c.answered = w, true }

// prepareClaim commits to a claim's cost, and puts it on its way, if it still is one.
func (e *entry) prepareClaim(c *claimant, nodes, quietMs int64, now clock.Steady) (claimCall, way) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(c.v.seq)
	if !ok || c.v.seq != e.seq.Load() || c.left {
		return claimCall{}, wayReply
	}
	durationMs := e.names.durationMs()
	uncovered := window.Start(c.v.seq+1, durationMs) - c.v.tMs
	for {
		e.awaitRelease(slot)
		word := e.words[slot].Load()
		if e.unconfirmedLocked(slot, word) > 0 {
			return claimCall{}, wayReply // what is unsent goes first: no total holds it
		}
		if e.weigh(&c.v, slot, word, c.limit, c.cost, uncovered, durationMs); !c.v.allowed {
			return claimCall{}, wayReply
		}
		if sum, _ := plus(word, c.cost, countMax); wordIsLive(word, c.v.seq) && e.words[slot].CompareAndSwap(word, sum) {
			break
		}
	}
	r := e.book.rarely()
	room := c.limit - c.v.carried(durationMs)
	// What the totals hold is what is known here without the claims on their way, and with the
	// credit, which the origin has counted.
	known := c.v.current - r.claiming[slot] + r.credit[slot]
	c.atMost = room - e.others[slot].Load() - r.netted[slot]
	r.claiming[slot] += c.cost
	c.committed = true
	e.flags.Or(flagClaiming << slot)
	atMost := c.atMost
	if c.spares && (r.crowded == 0 || int64(now-r.crowded) < quietMs) {
		atMost -= roomForOthers(room-known, c.limit, nodes)
	}
	return claimCall{Cell: e.cell(c.v.seq), Cost: c.cost, AtMost: atMost}, wayClaim
}

// roomForOthers is what the other nodes may have accepted, each up to its share, and not sent
// yet, of what is left of a limit. Below a tenth of the limit it is left to the bound that
// shares are; and by a share that holds no cost a node accepts nothing.
func roomForOthers(left, limit, nodes int64) int64 {
	share := left / (2 * nodes)
	if room := (nodes - 1) * share; share >= 2 && 10*room > limit {
		return room
	}
	return 0
}

// claiming is true while a claim of the cell is on its way.
func (e *entry) claiming(sequence int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	return ok && e.book.claiming(slot) > 0
}

// endClaim takes a claim that was not added off its way, and its cost out of the count.
func (e *entry) endClaim(c *claimant, w way) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(c.v.seq); ok {
		e.releaseClaimLocked(slot, c)
	}
	c.answer(w)
}

func (e *entry) releaseClaimLocked(slot int, c *claimant) {
	if !c.committed {
		return
	}
	c.committed = false
	e.unclaimLocked(slot, c.cost)
	if c.lent {
		e.revokeLocked(slot, c.cost)
		return
	}
	e.takeLocked(slot, c.cost)
}

// revokeLocked takes back credit that was lent. The cost in the word stays there, and so does
// what makes up for it in others: see netLocked for why. What the credit has paid for becomes
// unsent.
func (e *entry) revokeLocked(slot int, cost int64) {
	r := e.book.rarely()
	left := min(r.credit[slot], cost)
	r.credit[slot] -= left
	r.netted[slot] += left
}

func (e *entry) unclaimLocked(slot int, cost int64) {
	r := e.book.rarely()
	if r.claiming[slot] -= cost; r.claiming[slot] <= 0 {
		r.claiming[slot] = 0
		e.flags.And(^uint32(flagClaiming << slot))
	}
}

// mergeClaim merges an answer: a cost that was added is own cost, counted and confirmed
// in the same step, so that it is never sent.
func (e *entry) mergeClaim(m *counters, c *claimant, total int64, added bool, now clock.Steady) (grew bool, missing []lostTotal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := wayReply
	slot, ok := e.slotLocked(c.v.seq)
	switch {
	case added:
		w = wayMade
	case ok && total+c.cost <= c.atMost:
		w = wayCrowded
		if r := e.book.rarely(); r.crowded == 0 {
			r.crowded = now
		}
	}
	if ok {
		grew, missing = e.mergeAnswerLocked(m, slot, c, total, added)
	}
	c.answer(w)
	if ok && c.v.seq == e.seq.Load() && e.heardAt.Load() != 0 {
		e.hear(now)
	}
	return grew, missing
}

func (e *entry) mergeAnswerLocked(m *counters, slot int, c *claimant, total int64, added bool) (grew bool, missing []lostTotal) {
	switch {
	case !added:
		e.releaseClaimLocked(slot, c)
	default:
		c.committed = false
		e.unclaimLocked(slot, c.cost)
		e.book.cells[slot].settled.Add(c.cost)
		e.noteLow(slot, c.limit)
	}
	grew, lost := e.absorbLocked(m, slot, total, false)
	if lost {
		missing = []lostTotal{{e.cell(c.v.seq), e.namedLocked(slot)}}
	}
	switch {
	case c.lent:
	case added && c.left:
		e.creditLocked(slot, c.cost)
	case added:
		c.v.allowed = true
		c.v.current = max(0, wordCount(e.words[slot].Load())+e.others[slot].Load()-c.cost)
	}
	return grew, missing
}

// finish sends away a claimant that was never prepared.
func (c *claimant) finish(w way) {
	c.entry.endClaim(c, w)
	close(c.done)
}

// claimed is cost that the origin has added for a batch: it is in the count of the cell.
type claimed struct{ sequence, cost int64 }

// in is what was claimed in a cell.
func (c *claimed) in(sequence int64) int64 {
	if c.sequence != sequence {
		return 0
	}
	return c.cost
}
