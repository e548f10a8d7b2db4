package dataplane

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Claims decide where the count is: the origin adds a cost only if the cell's total
// stays within what the limit leaves. Those of all keys of a shard that come up during
// one call go together in the next.

const claimsMax = replayChunk // that one call to the origin carries

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

// claim asks the origin for q's cost, with spares set for what leaves room for other nodes. With wayMade it is counted.
func (l *Limiter) claim(ctx context.Context, v *verdict, e *entry, q *question, outage outagePolicy, spares bool) way {
	if l.outOf(e, l.clock.Steady()) {
		return wayBroken
	}
	began := time.Now()
	c := l.enterClaim(&claimant{entry: e, v: *v, limit: q.limit, cost: q.cost, spares: spares})
	select {
	case <-c.done:
	case <-ctx.Done():
		if !l.leaveClaim(c, outage, began) {
			return wayBroken
		}
	}
	*v = c.v
	return c.way
}

// enterClaim lets c wait for the next call, and sees to it that there is one.
func (l *Limiter) enterClaim(c *claimant) *claimant {
	c.done = make(chan struct{})
	sh := l.shardOf(c.entry)
	if sh.enter(c) && !l.calls.Start(func() { l.claims(sh) }) {
		sh.abandon()
	}
	return c
}

// leaveClaim is for who waits no longer. answered is true when the answer came before. A
// policy that goes on without the origin decides by what is known here, and has the cost
// that is committed as credit: if the claim is added after all, it has paid for it.
func (l *Limiter) leaveClaim(c *claimant, outage outagePolicy, began time.Time) (answered bool) {
	l.shardOf(c.entry).leave(c)
	if answered = c.entry.leaveClaim(c, outage != outageClosed); !answered {
		l.gaveUp(c.entry, nil, began)
	}
	return answered
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

// answer decides the way of those who wait. Called under entry.mu.
func (c *claimant) answer(w way) { c.way, c.answered = w, true }

// claims makes calls until nobody waits for one.
func (l *Limiter) claims(sh *shard) {
	for {
		waiting := sh.takeClaims()
		if len(waiting) == 0 {
			return
		}
		later := l.claimOnce(sh, waiting)
		sh.putBackClaims(later)
	}
}

// claimOnce makes one call. Claims of one key that do not fit beside each other by
// what is known here wait for the next.
func (l *Limiter) claimOnce(sh *shard, waiting []*claimant) (later []*claimant) {
	var claims []store.Claim
	var going []*claimant
	nodes, quietMs, now := l.nodes.Load(), l.settings.Load().twoTicksMs, l.clock.ReadSteady()
	for n, c := range waiting {
		if len(claims) == claimsMax {
			later = append(later, waiting[n:]...)
			break
		}
		switch cl, way := c.entry.prepareClaim(c, nodes, quietMs, now); {
		case way == wayClaim:
			claims, going = append(claims, cl), append(going, c)
		case len(claims) > 0 && c.entry.claiming(c.v.seq):
			later = append(later, c)
		default:
			c.finish(way)
		}
	}
	if len(claims) == 0 {
		return later
	}
	answers, err := l.sendClaims(sh, claims)
	now = l.clock.ReadSteady()
	var lost []store.Add
	var grown []*entry
	for i, c := range going {
		answer := store.Claimed{Err: errShortAnswer}
		if err != nil {
			answer.Err = err
		} else if i < len(answers) {
			answer = answers[i]
		}
		grew, missing := l.claimed(c, answer, now)
		lost = append(lost, missing...)
		if grew {
			grown = append(grown, c.entry)
		}
	}
	l.requeueFlush(grown)
	l.heal(lost)
	for _, c := range going {
		close(c.done)
	}
	return later
}

// sendClaims makes the call. An error means that none of it left.
func (l *Limiter) sendClaims(sh *shard, claims []store.Claim) ([]store.Claimed, error) {
	end, ok := sh.asks.Begin()
	if !ok {
		return nil, breaker.ErrOpen
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.ReadTimeout)
	defer cancel()
	began := time.Now()
	answers := l.cfg.Origin.Claim(ctx, claims)
	var first error
	failed := 0
	for _, a := range answers {
		if a.Err != nil {
			failed++
			first = cmpErr(first, a.Err)
		}
	}
	if failed == len(answers) {
		end(first)
	} else {
		end(nil)
	}
	l.metrics.origin(opClaim, len(claims), time.Since(began), first)
	return answers, nil
}

// claimed merges the answer to one claim, and tells its decision what became of it.
func (l *Limiter) claimed(c *claimant, answer store.Claimed, now clock.Steady) (grew bool, lost []store.Add) {
	switch {
	case answer.Err != nil:
		c.entry.endClaim(c, wayBroken)
		if errors.Is(answer.Err, store.ErrMaybeApplied) {
			l.metrics.ambiguous.Add(c.cost)
		}
		l.metrics.claims[claimFailed].Add(1)
		c.entry.rest(now)
		l.repay(c)
		return false, nil
	case answer.Added:
		l.metrics.claims[claimAdded].Add(1)
	default:
		l.metrics.claims[claimRefused].Add(1)
		defer l.repay(c)
	}
	grew, lost = c.entry.mergeClaim(l.metrics, c, answer, now)
	if answer.Added && c.entry.cross(c.v.seq, answer.Total-c.cost, answer.Total, l.settings.Load().tuning.Floor) {
		grew = true // so its row is looked at
	}
	return grew, lost
}

// repay has what a claim's credit has paid for sent, now that it was not added.
func (l *Limiter) repay(c *claimant) {
	if c.lent {
		l.mark(c.entry, l.marks)
	}
}

// prepareClaim commits to a claim's cost, and puts it on its way, if it still is one.
func (e *entry) prepareClaim(c *claimant, nodes, quietMs int64, now clock.Steady) (store.Claim, way) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(c.v.seq)
	if !ok || c.v.seq != e.seq.Load() || c.left {
		return store.Claim{}, wayReply
	}
	durationMs := e.names.durationMs()
	uncovered := window.Start(c.v.seq+1, durationMs) - c.v.tMs
	for {
		e.awaitRelease(slot)
		word := e.words[slot].Load()
		if e.unconfirmedLocked(slot, word) > 0 {
			return store.Claim{}, wayReply // what is unsent goes first: no total holds it
		}
		if e.weigh(&c.v, slot, word, c.limit, c.cost, uncovered, durationMs); !c.v.allowed {
			return store.Claim{}, wayReply
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
	return store.Claim{Cell: e.cell(c.v.seq), Cost: c.cost, AtMost: atMost}, wayClaim
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
func (e *entry) mergeClaim(m *metrics, c *claimant, answer store.Claimed, now clock.Steady) (grew bool, missing []store.Add) {
	e.mu.Lock()
	defer e.mu.Unlock()
	w := wayReply
	slot, ok := e.slotLocked(c.v.seq)
	switch {
	case answer.Added:
		w = wayMade
	case ok && answer.Total+c.cost <= c.atMost:
		w = wayCrowded
		if r := e.book.rarely(); r.crowded == 0 {
			r.crowded = now
		}
	}
	if ok {
		grew, missing = e.mergeAnswerLocked(m, slot, c, answer)
	}
	c.answer(w)
	if ok && c.v.seq == e.seq.Load() && e.heardAt.Load() != 0 {
		e.hear(now)
	}
	return grew, missing
}

func (e *entry) mergeAnswerLocked(m *metrics, slot int, c *claimant, answer store.Claimed) (grew bool, missing []store.Add) {
	switch {
	case !answer.Added:
		e.releaseClaimLocked(slot, c)
	default:
		c.committed = false
		e.unclaimLocked(slot, c.cost)
		e.book.cells[slot].settled.Add(c.cost)
		e.noteLow(slot, c.limit)
	}
	grew, lost := e.absorbLocked(m, slot, answer.Total, false)
	if lost {
		missing = []store.Add{{Cell: e.cell(c.v.seq), Cost: e.namedLocked(slot)}}
	}
	switch {
	case c.lent:
	case answer.Added && c.left:
		e.creditLocked(slot, c.cost)
	case answer.Added:
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
