package cell

import (
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Claim is a cost on which the origin must decide, for a waiting caller. Guarded by the lock of queue.Claims until a
// call takes it, and then by that call until Done is closed, except for the fields that Entry.mu guards.
//
// Once a claim is prepared, its cost is in the count, where singles, batches and handles see it, and in claims.cost.
// The answer removes it from claims.cost. Added cost is then own cost that the origin has confirmed; other cost is
// taken back out of the count. A caller that leaves before the answer can keep the cost: then the cost is accepted,
// stays in the count, and is sent if the claim was not added. If the caller kept nothing, a cost that was added becomes
// this node's credit.
type Claim struct {
	Entry   *Entry
	Verdict Verdict // the verdict by which it was judged; of an added claim, by which it was counted
	limit   int64
	Cost    int64

	committed bool        // the cost is in the count; under Entry.mu
	spares    bool        // it leaves room for the shares of other nodes; constant
	keeps     bool        // a caller that leaves keeps the cost; constant
	left      bool        // its caller waits no longer; under Entry.mu
	kept      int64       // accepted by the caller that has left, and not given back before the answer; under Entry.mu
	epoch     store.Epoch // in which it was sent, 0 if the cell had no epoch yet; under Entry.mu
	answered  bool        // way is decided; under Entry.mu
	atMost    int64       // the origin's total that fits the limit, without room for others
	leftRoom  bool        // it was sent with a lower bound, which leaves room for others
	next      *Claim      // in claims.kept; under Entry.mu

	Done chan struct{}
	Way  Way // WayReply: judge again
}

// claims are an entry's claims on their way, by slot. Guarded by Entry.mu.
type claims struct {
	cost [2]int64  // in the count, though not accepted yet or kept, and perhaps in the totals
	kept [2]*Claim // claims among them whose callers have left and kept the cost
	// since when claims are refused to leave room for other nodes, none of whose cost has arrived since; 0: not refused
	overShare clock.Steady
	unused    bool // a claim was refused for that room, and no other node had sent cost of the cell
}

// of returns the cost that claims of a cell have in the count.
func (c *claims) of(slot int) int64 { return c.cost[slot] }

func (c *claims) begin(slot int, cost int64) { c.cost[slot] += cost }

// end takes a claim off its way, and returns the cost of the others.
func (c *claims) end(slot int, one *Claim) (left int64) {
	c.takeKept(slot, one)
	c.cost[slot] = max(0, c.cost[slot]-one.Cost)
	return c.cost[slot]
}

func (c *claims) keep(slot int, one *Claim) { one.next, c.kept[slot] = c.kept[slot], one }

// takeKept removes a claim from the list of claims whose cost is kept.
func (c *claims) takeKept(slot int, one *Claim) {
	for at := &c.kept[slot]; *at != nil; at = &(*at).next {
		if *at == one {
			*at = one.next
			return
		}
	}
}

// giveBack takes up to cost back from the cost that callers kept. It becomes this node's credit if its claim was added.
func (c *claims) giveBack(slot int, cost int64) (given int64) {
	for one := c.kept[slot]; one != nil && given < cost; one = one.next {
		part := min(one.kept, cost-given)
		one.kept -= part
		given += part
	}
	return given
}

// loseLocked makes the kept cost of claims that were sent in a lost epoch accepted cost like any other, which is
// restored. It leaves out claims that were sent without an epoch: the origin may still add them in the new epoch.
func (c *claims) loseLocked(slot int) {
	for one, next := c.kept[slot], (*Claim)(nil); one != nil; one = next {
		if next = one.next; one.epoch != 0 {
			one.releaseLocked(slot)
		}
	}
}

// refuse records that the origin refused a claim to leave room for other nodes, and returns the Way of its caller. If
// no other node has sent cost of the cell, the caller claims again without that room; otherwise it is denied.
func (c *claims) refuse(now clock.Steady, unused bool) Way {
	if c.unused = unused; unused {
		return WayReply
	}
	if c.overShare == 0 {
		c.overShare = now
	}
	return WayOverShare
}

// heard records that cost of other nodes has arrived.
func (c *claims) heard() { c.overShare, c.unused = 0, false }

// quiet reports whether claims leave no room: no other node has sent cost of the cell, or none has for quietMs in which
// claims were refused.
func (c *claims) quiet(now clock.Steady, quietMs int64) bool {
	return c.unused || c.overShare != 0 && int64(now-c.overShare) >= quietMs
}

func (c *claims) reset(slot int) { c.cost[slot], c.kept[slot], c.unused = 0, nil, false }

// Leave must be called if the caller stops waiting. It returns the way of the decision: by the answer if it has come,
// or without it.
func (c *Claim) Leave() (w Way) {
	e := c.Entry
	e.mu.Lock()
	defer e.mu.Unlock()
	if !c.answered {
		c.leaveLocked()
	}
	return c.Way
}

// Lose ends the wait of a claim's caller because the answer is lost. The claim stays on its way until another call has
// read its outcome. kept is the cost that the caller has accepted.
func (c *Claim) Lose() (kept int64) {
	e := c.Entry
	e.mu.Lock()
	defer e.mu.Unlock()
	c.leaveLocked()
	return c.kept
}

// leaveLocked lets the caller keep a committed cost, because it fits by all counts of this node. For an untracked key
// the caller keeps nothing: cost that is accepted without the origin's answer goes into the overflow.
func (c *Claim) leaveLocked() {
	e := c.Entry
	if c.left {
		return
	}
	c.left, c.Way = true, WayBroken
	slot, ok := e.slotLocked(c.Verdict.Sequence)
	if !ok || !c.keeps || !c.committed || e.flags.Load()&flagUntracked != 0 {
		return
	}
	e.lowerMinLimit(slot, c.limit)
	c.kept, c.Way = c.Cost, WayKept
	e.Ledger().needExtra().claims.keep(slot, c)
}

// NewClaim makes a claim of a cost for an entry, which v has judged. With spares, the claim leaves room for other
// nodes. With keeps, the caller keeps the cost if it leaves.
func NewClaim(e *Entry, v *Verdict, limit, cost int64, spares, keeps bool) *Claim {
	return &Claim{Entry: e, Verdict: *v, limit: limit, Cost: cost, spares: spares, keeps: keeps, Done: make(chan struct{})}
}

// answer sets the way of a waiting caller. The entry must be locked.
func (c *Claim) answer(w Way) {
	if c.answered = true; !c.left {
		c.Way = w
	}
}

// Prepare commits to a claim's cost and puts the claim on its way, if it still has to be claimed.
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
			return call, WayReply // unsent cost goes first: no total holds it
		}
		if e.weigh(&c.Verdict, slot, word, c.limit, c.Cost, uncovered, durationMs); !c.Verdict.Allowed {
			return call, WayReply
		}
		e.Histories().begin(slot, &c.Verdict, durationMs, c.limit)
		if sum, _ := plus(word, c.Cost, CountMax); wordIsLive(word, c.Verdict.Sequence) &&
			e.counter.swap(slot, word, sum) {
			break
		}
	}
	l := e.Ledger()
	room := c.limit - c.Verdict.carried(durationMs)
	// The totals hold the counts of this node without the claims on their way, and with the credit, which the origin has
	// counted.
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
	c.leftRoom = atMost < c.atMost
	if atMost <= 0 {
		atMost = -1 // 0 is no bound
	}
	call = store.Cost{Cell: e.Cell(c.Verdict.Sequence), Epoch: c.epoch, Add: c.Cost, AtMost: atMost,
		History: e.Histories().sentLocked(slot)}
	if shared {
		call.Limit = c.limit
	}
	return call, WayClaim
}

// roomForOthers returns the cost that the other nodes may have accepted of the rest of a limit, each up to its share,
// and not sent yet. It returns 0 instead of a room of a tenth of the limit or less, because then the shares bound the
// excess. For example, with 5 nodes and 80 left of a limit of 100, each share is 8 and the room is 32. A node accepts
// nothing by a share that holds no cost.
func roomForOthers(left, limit, nodes int64) int64 {
	share := left / (2 * nodes)
	if room := (nodes - 1) * share; share >= 2 && 10*room > limit {
		return room
	}
	return 0
}

// Claiming reports whether a claim of the cell is on its way.
func (l Ledger) Claiming(sequence int64) bool {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	slot, ok := l.e.slotLocked(sequence)
	return ok && l.claiming(slot) > 0
}

// End takes a claim that was not added off its way. If its caller has kept the cost, unsent is that cost, or gone if
// the entry no longer holds the cell, so that nothing can be sent.
func (c *Claim) End(w Way) (unsent, gone int64) {
	e := c.Entry
	e.mu.Lock()
	defer e.mu.Unlock()
	defer c.answer(w)
	slot, ok := e.slotLocked(c.Verdict.Sequence)
	if !ok {
		return 0, c.kept
	}
	c.releaseLocked(slot)
	return c.kept, 0
}

// releaseLocked ends a claim that was not added. Its cost leaves the count, and the cost that its caller kept becomes
// unsent.
func (c *Claim) releaseLocked(slot int) {
	if !c.committed {
		return
	}
	c.unclaimLocked(slot)
	c.Entry.counter.take(slot, c.Cost-c.kept)
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
// in the same step, so that it is never sent. If it was not added, unsent and gone are as End returns them.
func (c *Claim) Merge(m *Counters, total *store.Total, now clock.Steady) (lost store.Epoch, unsent, gone int64) {
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
	}
	if ok {
		lost = c.mergeLocked(m, slot, total)
		e.Reads().refreshLocked(c.Verdict.Sequence, total, now)
	}
	if w == WayOverShare {
		w = e.Ledger().needExtra().claims.refuse(now, c.leftRoom && e.Ledger().peersIn(slot) == 0)
	}
	c.answer(w)
	switch {
	case total.Added:
		return lost, 0, 0
	case !ok:
		return lost, 0, c.kept
	}
	return lost, c.kept, 0
}

func (c *Claim) mergeLocked(m *Counters, slot int, total *store.Total) (lost store.Epoch) {
	e, l := c.Entry, c.Entry.Ledger()
	lost = l.enterLocked(slot, total.Epoch)
	settles := total.Added && c.committed // if not, its epoch was lost, and the kept cost is restored
	switch {
	case !total.Added:
		c.releaseLocked(slot)
	case settles:
		c.unclaimLocked(slot)
		if l.settleLocked(slot, c.Cost); total.Epoch == 0 { // the epoch of the answer is lost
			l.restoreLocked(slot, c.Cost)
		}
		e.lowerMinLimit(slot, c.limit)
	}
	l.mergeLocked(m, slot, total)
	switch {
	case settles && c.left:
		l.creditLocked(slot, c.Cost-c.kept)
	case settles:
		c.Verdict.Allowed = true
		c.Verdict.Current = max(0, e.countIn(slot)-c.Cost)
	}
	return lost
}

// Finish ends a claim that was never prepared, with the way of its decision.
func (c *Claim) Finish(w Way) {
	c.End(w)
	close(c.Done)
}

// Claimed is cost that was claimed for a batch, and added or kept: it is in the count of the cell.
type Claimed struct{ Sequence, Cost int64 }

// In returns the claimed cost in a cell.
func (c *Claimed) In(sequence int64) int64 {
	if c.Sequence != sequence {
		return 0
	}
	return c.Cost
}
