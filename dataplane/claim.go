package dataplane

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
)

// Claims decide where the count is: the origin adds a cost only if the cell's total
// stays within what the limit leaves. Those of all keys of a shard that come up during
// one call go together in the next.

const claimsMax = replayChunk // that one call to the origin carries

// claim asks the origin for c's cost, with spares set for what leaves room for other nodes. With wayMade it is counted.
func (l *Limiter) claim(ctx context.Context, v *cell.Verdict, e *cell.Entry, c *call, outage outagePolicy, spares bool) cell.Way {
	if l.outOf(e, l.clock.Steady()) {
		return cell.WayBroken
	}
	began := time.Now()
	claim := l.enterClaim(e, cell.NewClaim(e, v, c.limit, c.cost, spares))
	select {
	case <-claim.Done:
	case <-ctx.Done():
		if !l.leaveClaim(claim, outage, began) {
			return cell.WayBroken
		}
	}
	*v = claim.Verdict
	return claim.Way
}

// enterClaim lets c wait for the next call, and sees to it that there is one.
func (l *Limiter) enterClaim(e *cell.Entry, c *cell.Claim) *cell.Claim {
	sh := l.shardOf(e)
	if sh.enter(c) && !l.calls.Start(func() { l.claims(sh) }) {
		sh.abandon()
	}
	return c
}

// leaveClaim is for who waits no longer. answered is true when the answer came before. A
// policy that goes on without the origin decides by what is known here, and has the cost
// that is committed as credit: if the claim is added after all, it has paid for it.
func (l *Limiter) leaveClaim(c *cell.Claim, outage outagePolicy, began time.Time) (answered bool) {
	l.shardOf(c.Entry).leave(c)
	if answered = c.Entry.LeaveClaim(c, outage != outageClosed); !answered {
		l.gaveUp(c.Entry, nil, began)
	}
	return answered
}

// claims makes calls until no claim waits for one.
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
func (l *Limiter) claimOnce(sh *shard, waiting []*cell.Claim) (later []*cell.Claim) {
	var claims []store.Claim
	var going []*cell.Claim
	nodes, quietMs, now := l.nodes.Load(), l.settings.Load().twoTicksMs, l.clock.ReadSteady()
	for n, c := range waiting {
		if len(claims) == claimsMax {
			later = append(later, waiting[n:]...)
			break
		}
		switch cl, way := c.Entry.PrepareClaim(c, nodes, quietMs, now); {
		case way == cell.WayClaim:
			claims, going = append(claims, store.Claim(cl)), append(going, c)
		case len(claims) > 0 && c.Entry.Claiming(c.Verdict.Sequence):
			later = append(later, c)
		default:
			c.Finish(way)
		}
	}
	if len(claims) == 0 {
		return later
	}
	answers, err := l.sendClaims(sh, claims)
	now = l.clock.ReadSteady()
	var lost []cell.LostTotal
	var grown []*cell.Entry
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
			grown = append(grown, c.Entry)
		}
	}
	l.requeueFlush(grown)
	l.heal(lost)
	for _, c := range going {
		close(c.Done)
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
func (l *Limiter) claimed(c *cell.Claim, answer store.Claimed, now clock.Steady) (grew bool, lost []cell.LostTotal) {
	switch {
	case answer.Err != nil:
		c.Entry.EndClaim(c, cell.WayBroken)
		if errors.Is(answer.Err, store.ErrMaybeApplied) {
			l.metrics.ambiguous.Add(c.Cost)
		}
		l.metrics.claims[claimFailed].Add(1)
		c.Entry.Rest(now)
		l.repay(c)
		return false, nil
	case answer.Added:
		l.metrics.claims[claimAdded].Add(1)
	default:
		l.metrics.claims[claimRefused].Add(1)
		defer l.repay(c)
	}
	grew, lost = c.Entry.MergeClaim(&l.metrics.merged, c, answer.Total, answer.Added, now)
	if answer.Added && c.Entry.Cross(c.Verdict.Sequence, answer.Total-c.Cost, answer.Total, l.settings.Load().tuning.Floor) {
		grew = true // so its row is looked at
	}
	return grew, lost
}

// repay has what a claim's credit has paid for sent, now that it was not added.
func (l *Limiter) repay(c *cell.Claim) {
	if c.Lent {
		l.dirty.Mark(c.Entry, l.marks)
	}
}
