package dataplane

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Claims decide where the count is: the origin adds a cost only if the cell's total
// stays within what the limit leaves. Those of all keys of a shard that come up during
// one call go together in the next.

const claimsMax = replayChunk // that one call to the origin carries

// claimant is one decision that waits for its claim. Guarded by shard.mu until it is
// taken, then by whoever took it until done is closed.
type claimant struct {
	entry *entry
	v     verdict // what it was judged by; of an added one, what it was counted on
	limit int64
	cost  int64

	done chan struct{}
	way  way // wayReply: judge again
}

// claim asks the origin for q's cost. With wayMade it is counted.
func (l *Limiter) claim(ctx context.Context, v *verdict, e *entry, q *question) way {
	if l.outOf(e, l.clock.steadyMs()) {
		return wayBroken
	}
	c := &claimant{entry: e, v: *v, limit: q.limit, cost: q.cost, done: make(chan struct{})}
	sh := l.shardOf(e)
	if sh.enter(c) && !l.calls.start(func() { l.claims(sh) }) {
		sh.abandon()
	}
	select {
	case <-c.done:
		*v = c.v
		return c.way
	case <-ctx.Done():
		// If it has left it may still be added; then its cost counts although the
		// decision was made without it: on the safe side.
		sh.leave(c)
		e.rest(l.clock.readSteadyMs())
		return wayBroken
	}
}

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
	var claims []Claim
	var going []*claimant
	for _, c := range waiting {
		cl, way := c.entry.prepareClaim(c)
		switch {
		case way == wayClaim && len(claims) < claimsMax:
			claims, going = append(claims, cl), append(going, c)
		case way == wayClaim:
			c.entry.endClaim(c)
			later = append(later, c)
		case way == wayReply && len(claims) > 0 && c.entry.claiming(c.v.seq):
			later = append(later, c)
		default:
			c.finish(way)
		}
	}
	if len(claims) == 0 {
		return later
	}
	answers, err := l.sendClaims(sh, claims)
	now := l.clock.readSteadyMs()
	var lost []Add
	var grown []*entry
	for i, c := range going {
		answer := Claimed{Err: errShortAnswer}
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
func (l *Limiter) sendClaims(sh *shard, claims []Claim) ([]Claimed, error) {
	end, ok := sh.asks.begin()
	if !ok {
		return nil, errBreakerOpen
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
func (l *Limiter) claimed(c *claimant, answer Claimed, now steadyMs) (grew bool, lost []Add) {
	switch {
	case answer.Err != nil:
		c.entry.endClaim(c)
		if errors.Is(answer.Err, ErrMaybeApplied) {
			l.metrics.ambiguous.Add(c.cost)
		}
		l.metrics.claims[claimFailed].Add(1)
		c.entry.rest(now)
		c.way = wayBroken
		return false, nil
	case answer.Added:
		l.metrics.claims[claimAdded].Add(1)
		c.way = wayMade
	default:
		l.metrics.claims[claimRefused].Add(1)
		c.way = wayReply
	}
	grew, lost = c.entry.mergeClaim(l.metrics, c, answer, now)
	if answer.Added && c.entry.cross(c.v.seq, answer.Total-c.cost, answer.Total, l.settings.Load().tuning.Floor) {
		grew = true // so its row is looked at
	}
	return grew, lost
}

// prepareClaim puts a claim on its way, if it still is one.
func (e *entry) prepareClaim(c *claimant) (Claim, way) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(c.v.seq)
	if !ok || c.v.seq != e.seq.Load() {
		return Claim{}, wayReply
	}
	word := e.words[slot].Load()
	if e.unconfirmedLocked(slot, word) > 0 {
		return Claim{}, wayReply // what is unsent goes first: no total holds it
	}
	durationMs := e.names.durationMs()
	uncovered := window.Start(c.v.seq+1, durationMs) - c.v.tMs
	e.weigh(&c.v, slot, word, c.limit, c.cost, uncovered, durationMs)
	if !window.Fits(c.v.current+e.book.claiming(slot), c.v.previous, c.cost, c.limit, uncovered, durationMs) {
		return Claim{}, wayReply
	}
	room := c.limit - c.v.carried(durationMs)
	e.book.rarely().claiming[slot] += c.cost
	foreign := c.v.current - wordCount(word) + e.book.netted(slot)
	return Claim{Cell: e.cell(c.v.seq), Cost: c.cost, AtMost: room - foreign}, wayClaim
}

// claiming is true while a claim of the cell is on its way.
func (e *entry) claiming(sequence int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(sequence)
	return ok && e.book.claiming(slot) > 0
}

// endClaim takes a claim off its way.
func (e *entry) endClaim(c *claimant) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slot, ok := e.slotLocked(c.v.seq); ok {
		e.endClaimLocked(slot, c.cost)
	}
}

func (e *entry) endClaimLocked(slot int, cost int64) {
	if r := e.book.rare; r != nil {
		r.claiming[slot] = max(0, r.claiming[slot]-cost)
	}
}

// mergeClaim merges an answer: a cost that was added is own cost, counted and confirmed
// in the same step, so that it is never sent.
func (e *entry) mergeClaim(m *metrics, c *claimant, answer Claimed, now steadyMs) (grew bool, missing []Add) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slot, ok := e.slotLocked(c.v.seq)
	if !ok {
		return false, nil // counted where it counts; here the cell is over
	}
	e.endClaimLocked(slot, c.cost)
	if answer.Added {
		e.book.cells[slot].settled.Add(e.addLocked(slot, c.cost))
	}
	grew, lost := e.absorbLocked(m, slot, answer.Total, false)
	if lost {
		missing = []Add{{e.cell(c.v.seq), e.namedLocked(slot)}}
	}
	if answer.Added {
		c.v.allowed = true
		c.v.current = max(0, wordCount(e.words[slot].Load())+e.others[slot].Load()-c.cost)
	}
	if c.v.seq == e.seq.Load() && e.heardAt.Load() != 0 {
		e.hear(now)
	}
	return grew, missing
}

func (c *claimant) finish(w way) {
	c.way = w
	close(c.done)
}
