package dataplane

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Claims decide where the count is: the origin adds a cost only if the cell's total
// stays within what the limit leaves. Those of all keys of a shard that come up during
// one call go together in the next.

const claimsMax = replayChunk // that one call to the origin carries

// claim asks the origin for c's cost, with spares set for what leaves room for other nodes. With wayMade it is counted.
func (l *Limiter) claim(ctx context.Context, v *cell.Verdict, e *cell.Entry, c *call, outage outagePolicy,
	spares bool) cell.Way {
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
	if sh.enter(c) {
		l.startClaims(sh)
	}
	return c
}

// startClaims has a goroutine take the lead; none does in a limiter that is stopped.
func (l *Limiter) startClaims(sh *shard) {
	if !l.calls.Start(func() { l.claims(sh) }) {
		sh.abandon()
	}
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

// proveIdleClaims is prove for the claims' stream, where no claim is on its way.
func (l *Limiter) proveIdleClaims(ctx context.Context, sh *shard) error {
	if !sh.leadClaims() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.ReadTimeout)
	defer cancel()
	err := l.prove(ctx, sh, &sh.claims)
	if !sh.yieldClaims() {
		l.startClaims(sh)
	}
	return err
}

// claimOnce makes one call. Claims of one key that do not fit beside each other by
// what is known here wait for the next.
func (l *Limiter) claimOnce(sh *shard, waiting []*cell.Claim) (later []*cell.Claim) {
	var claims []store.Claim
	var going []*cell.Claim
	set, nodes, now := l.settings.Load(), l.nodes.Load(), l.clock.ReadSteady()
	for n, c := range waiting {
		if len(claims) == claimsMax {
			later = append(later, waiting[n:]...)
			break
		}
		switch cl, way := c.Entry.PrepareClaim(c, set.shares(c.Entry.Names()), nodes, set.twoTicksMs, now); {
		case way == cell.WayClaim:
			claims, going = append(claims, cl), append(going, c)
		case len(claims) > 0 && c.Entry.Claiming(c.Verdict.Sequence):
			later = append(later, c)
		default:
			c.Finish(way)
		}
	}
	if len(claims) == 0 {
		return later
	}
	reply, err := l.sendClaims(sh, claims)
	now = l.clock.ReadSteady()
	lost := make([]store.Epoch, len(going))
	for i, c := range going {
		answer := claimed{total: store.Total{Err: cmpErr(err, errShortAnswer)}}
		if err == nil && i < len(reply.Totals) && i < len(reply.Added) {
			answer = claimed{reply.Totals[i], reply.Added[i]}
		}
		lost[i] = l.claimed(c, &answer, now)
	}
	if err == nil && len(reply.Totals) >= len(lost) {
		l.lostAll(sh, lost, reply.Totals, func(i int) *cell.Entry { return going[i].Entry })
	}
	for _, c := range going {
		close(c.Done)
	}
	return later
}

// claimed is the answer to one claim.
type claimed struct {
	total store.Total
	added bool
}

// sendClaims makes the call. An error means that none of it left.
func (l *Limiter) sendClaims(sh *shard, claims []store.Claim) (reply store.ClaimReply, err error) {
	end, ok := sh.asks.Begin()
	if !ok {
		return reply, breaker.ErrOpen
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.ReadTimeout)
	defer cancel()
	call := l.ask(sh)
	sh.claims.number++
	reply = l.cfg.Origin.Claim(ctx, store.Claims{Stream: sh.claims.id, Number: sh.claims.number, Claims: claims})
	var first error
	failed := 0
	for i := range reply.Totals {
		if err := reply.Totals[i].Err; err != nil && !errors.Is(err, store.ErrEpoch) {
			failed++
			first = cmpErr(first, err)
		}
	}
	if failed == len(reply.Totals) {
		end(first)
	} else {
		end(nil)
		sh.claims.answered(slices.Contains(reply.Added, true))
	}
	l.metrics.origin(opClaim, len(claims), time.Since(call.began), first)
	l.answered(sh, call, &reply.Reply)
	sh.epochs.countedIn(reply.Totals, func(i int) *window.Cell { return &claims[i].Cell })
	return reply, nil
}

// claimed merges the answer to one claim, and tells its decision what became of it. What an origin that has lost its
// counts has not decided is decided without it, and told to it first.
func (l *Limiter) claimed(c *cell.Claim, answer *claimed, now clock.Steady) (lost store.Epoch) {
	switch err := answer.total.Err; {
	case err != nil:
		c.Entry.EndClaim(c, cell.WayBroken)
		lost = c.Entry.Absorb(&l.metrics.merged, c.Verdict.Sequence, &answer.total, now)
		if errors.Is(err, store.ErrMaybeApplied) {
			l.metrics.ambiguous.Add(c.Cost)
		}
		l.metrics.claims[claimFailed].Add(1)
		if !errors.Is(err, store.ErrEpoch) {
			c.Entry.Rest(now)
		}
		l.repay(c)
		return lost
	case answer.added:
		l.metrics.claims[claimAdded].Add(1)
	default:
		l.metrics.claims[claimRefused].Add(1)
		defer l.repay(c)
	}
	return c.Entry.MergeClaim(&l.metrics.merged, c, &answer.total, answer.added, now)
}

// repay has what a claim's credit has paid for sent, now that it was not added.
func (l *Limiter) repay(c *cell.Claim) {
	if c.Lent {
		l.dirty.Mark(c.Entry, l.marks)
	}
}
