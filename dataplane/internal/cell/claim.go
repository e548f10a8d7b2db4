package cell

import (
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Claim is a cost that the origin is to decide, for a caller who waits. Guarded by the lock of queue.Claims until a
// call takes it, and then by that call until Done is closed, except for the fields that Entry.mu guards.
//
// From when a claim is prepared its cost is in the count, where singles, batches and handles
// see it, and in claims.cost. An answer takes it out of that: what was added is own cost that
// the origin has confirmed, what was not is taken back out of the count. What was added for
// a caller who has left is this node's credit: nothing of it is lost, and no other decision pays
// for it.
type Claim struct {
	Entry   *Entry
	Verdict Verdict // what it was judged by; of an added one, what it was counted on
	limit   int64
	Cost    int64

	committed bool        // the cost is in the count; under Entry.mu
	spares    bool        // it leaves room for the shares of other nodes; constant
	lends     bool        // a caller who leaves has the cost as credit; constant
	left      bool        // its caller waits no longer; under Entry.mu
	Lent      bool        // who has left has its cost as credit; under Entry.mu, constant once it is answered
	epoch     store.Epoch // in which it was sent, 0 if the cell had no epoch yet; under Entry.mu
	answered  bool        // way is decided; under Entry.mu
	atMost    int64       // the origin's total that fits the limit, without room for others
	next      *Claim      // in claims.lent; under Entry.mu

	Done chan struct{}
	Way  Way // WayReply: judge again
}

// claims are an entry's claims on their way, by slot. Guarded by Entry.mu.
type claims struct {
	cost [2]int64  // in the count, though not accepted yet, and perhaps in the totals
	lent [2]*Claim // those among them that have lent their cost to callers who have left
	// since when a claim is refused for the room that others may need, while nothing of theirs was heard; 0: not
	overShare clock.Steady
}

// of returns what claims of a cell have in the count.
func (c *claims) of(slot int) int64 { return c.cost[slot] }

func (c *claims) begin(slot int, cost int64) { c.cost[slot] += cost }

// end takes a claim off its way, and returns the cost of the others.
func (c *claims) end(slot int, one *Claim) (left int64) {
	c.takeLent(slot, one)
	c.cost[slot] = max(0, c.cost[slot]-one.Cost)
	return c.cost[slot]
}

func (c *claims) lend(slot int, one *Claim) { one.next, c.lent[slot] = c.lent[slot], one }

// takeLent removes a claim from the list of claims that have lent their cost.
func (c *claims) takeLent(slot int, one *Claim) {
	for at := &c.lent[slot]; *at != nil; at = &(*at).next {
		if *at == one {
			*at = one.next
			return
		}
	}
}

// loseLocked makes the lent cost of claims that were sent in a lost epoch accepted cost like any other, which is
// restored. It leaves out claims that were sent without an epoch: the origin may still add them in the new epoch.
func (c *claims) loseLocked(slot int) {
	for one, next := c.lent[slot], (*Claim)(nil); one != nil; one = next {
		if next = one.next; one.epoch != 0 {
			one.releaseLocked(slot)
		}
	}
}

// refuse notes that a claim was refused for the room of others; heard, that cost of theirs has turned up since.
func (c *claims) refuse(now clock.Steady) {
	if c.overShare == 0 {
		c.overShare = now
	}
}

func (c *claims) heard() { c.overShare = 0 }

// quiet reports whether claims were refused for quietMs, and no cost of others has turned up.
func (c *claims) quiet(now clock.Steady, quietMs int64) bool {
	return c.overShare != 0 && int64(now-c.overShare) >= quietMs
}

func (c *claims) reset(slot int) { c.cost[slot], c.lent[slot] = 0, nil }

// Leave is for a caller that waits no longer. answered is true when it need not have left.
func (c *Claim) Leave() (answered bool) {
	e := c.Entry
	e.mu.Lock()
	defer e.mu.Unlock()
	if !c.answered {
		c.leaveLocked()
	}
	return c.answered
}

// Lose sends the caller of a claim away whose answer is lost. It stays on its way until another call has found out
// what became of it.
func (c *Claim) Lose() (lent bool) {
	e := c.Entry
	e.mu.Lock()
	defer e.mu.Unlock()
	c.leaveLocked()
	c.Way = WayBroken
	return c.Lent
}

// leaveLocked lends the caller the cost that is committed. An untracked key is lent nothing: what it accepts without
// the origin's answer is in the overflow.
func (c *Claim) leaveLocked() {
	e := c.Entry
	if c.left {
		return
	}
	c.left = true
	slot, ok := e.slotLocked(c.Verdict.Sequence)
	if !ok || !c.lends || !c.committed || e.flags.Load()&flagUntracked != 0 {
		return
	}
	if l := e.Ledger(); l.lendLocked(slot, c.Cost) {
		c.Lent = true
		l.needExtra().claims.lend(slot, c)
	}
}

// NewClaim makes a claim of a cost for an entry, with spares set for one that leaves room for other nodes, and lends
// for one whose caller has the cost as credit if it leaves. What it was judged by is v.
func NewClaim(e *Entry, v *Verdict, limit, cost int64, spares, lends bool) *Claim {
	return &Claim{Entry: e, Verdict: *v, limit: limit, Cost: cost, spares: spares, lends: lends, Done: make(chan struct{})}
}

// answer decides the way of a caller who waits. The entry is locked.
func (c *Claim) answer(w Way) {
	if c.answered = true; !c.left {
		c.Way = w
	}
}

// Prepare commits to a claim's cost, and puts it on its way, if it still is one.
func (c *Claim) Prepare(shared bool, nodes, quietMs int64, now clock.Steady) (call store.Cost, w Way) {
	e := c.Entry
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(c.Verdict.Sequence)
	if !ok || c.Verdict.Sequence != e.counter.sequence() || c.left {
		return call, WayReply
	}
	durationMs := e.names.durationMs()
	uncovered := window.Start(c.Verdict.Sequence+1, durationMs) - c.Verdict.AtMs
	for {
		e.counter.awaitRelease(slot)
		word := e.counter.word(slot)
		if e.Ledger().unconfirmedLocked(slot, word) > 0 {
			return call, WayReply // what is unsent goes first: no total holds it
		}
		if e.weigh(&c.Verdict, slot, word, c.limit, c.Cost, uncovered, durationMs); !c.Verdict.Allowed {
			return call, WayReply
		}
		if sum, _ := plus(word, c.Cost, CountMax); wordIsLive(word, c.Verdict.Sequence) &&
			e.counter.swap(slot, word, sum) {
			break
		}
	}
	l := e.Ledger()
	room := c.limit - c.Verdict.carried(durationMs)
	// What the totals hold is what is known here without the claims on their way, and with the
	// credit, which the origin has counted.
	known := c.Verdict.Current - l.claiming(slot) + l.credit(slot)
	c.atMost = room - e.othersIn(slot) - l.netted(slot)
	claims := &l.needExtra().claims
	claims.begin(slot, c.Cost)
	c.committed, c.epoch = true, l.epoch(slot)
	e.flags.Or(flagClaiming << slot)
	atMost := c.atMost
	if c.spares && !claims.quiet(now, quietMs) {
		atMost -= roomForOthers(room-known, c.limit, nodes)
	}
	if atMost <= 0 {
		atMost = -1 // 0 is no bound
	}
	call = store.Cost{Cell: e.Cell(c.Verdict.Sequence), Epoch: c.epoch, Add: c.Cost, AtMost: atMost}
	if shared {
		call.Limit = c.limit
	}
	return call, WayClaim
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

// Claiming is true while a claim of the cell is on its way.
func (l Ledger) Claiming(sequence int64) bool {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	slot, ok := l.e.slotLocked(sequence)
	return ok && l.claiming(slot) > 0
}

// End takes a claim that was not added off its way, and its cost out of the count.
func (c *Claim) End(w Way) {
	e := c.Entry
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(c.Verdict.Sequence); ok {
		c.releaseLocked(slot)
	}
	c.answer(w)
}

func (c *Claim) releaseLocked(slot int) {
	e := c.Entry
	if !c.committed {
		return
	}
	c.unclaimLocked(slot)
	if c.Lent {
		e.Ledger().pay(slot, c.Cost) // what the credit has paid for before becomes unsent
		return
	}
	e.counter.take(slot, c.Cost)
}

// lendLocked turns a claim's cost into credit, if there is room for that.
func (l Ledger) lendLocked(slot int, cost int64) bool {
	if l.credit(slot)+l.netted(slot)+cost > creditMax {
		return false
	}
	l.needExtra().credit[slot] += cost
	l.e.addOthers(slot, -cost)
	return true
}

// unclaimLocked takes a claim off its way.
func (c *Claim) unclaimLocked(slot int) {
	e := c.Entry
	c.committed = false
	if e.Ledger().needExtra().claims.end(slot, c) == 0 {
		e.flags.And(^uint32(flagClaiming << slot))
	}
}

// Merge merges an answer: a cost that was added is own cost, counted and confirmed
// in the same step, so that it is never sent.
func (c *Claim) Merge(m *Counters, total *store.Total, now clock.Steady) (lost store.Epoch) {
	e := c.Entry
	e.mu.Lock()
	defer e.mu.Unlock()
	w := WayReply
	slot, ok := e.slotLocked(c.Verdict.Sequence)
	switch {
	case total.Added:
		w = WayMade
	case ok && total.Region+c.Cost <= c.atMost:
		w = WayOverShare
		e.Ledger().needExtra().claims.refuse(now)
	}
	if ok {
		lost = c.mergeLocked(m, slot, total)
		e.Reads().refreshLocked(c.Verdict.Sequence, total, now)
	}
	c.answer(w)
	return lost
}

func (c *Claim) mergeLocked(m *Counters, slot int, total *store.Total) (lost store.Epoch) {
	e, l := c.Entry, c.Entry.Ledger()
	if total.Added {
		l.needExtra().claims.takeLent(slot, c) // if a new epoch begins, the origin has the cost there
	}
	lost = l.enterLocked(slot, total.Epoch)
	switch {
	case !total.Added:
		c.releaseLocked(slot)
	case c.committed: // otherwise its epoch was lost, and the cost is restored
		c.unclaimLocked(slot)
		if total.Epoch != 0 { // otherwise the epoch of the answer is lost, and the cost is unsent
			l.settleLocked(slot, c.Cost)
		}
		e.lowerMinLimit(slot, c.limit)
	}
	l.mergeLocked(m, slot, total)
	switch {
	case c.Lent:
	case total.Added && c.left:
		e.Ledger().creditLocked(slot, c.Cost)
	case total.Added:
		c.Verdict.Allowed = true
		c.Verdict.Current = max(0, e.countIn(slot)-c.Cost)
	}
	return lost
}

// Finish sends away a claimant that was never prepared.
func (c *Claim) Finish(w Way) {
	c.End(w)
	close(c.Done)
}

// Claimed is cost that the origin has added for a batch: it is in the count of the cell.
type Claimed struct{ Sequence, Cost int64 }

// In is what was claimed in a cell.
func (c *Claimed) In(sequence int64) int64 {
	if c.Sequence != sequence {
		return 0
	}
	return c.Cost
}
