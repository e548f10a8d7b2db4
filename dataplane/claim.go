package dataplane

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Claims decide where the count is: the origin adds a cost only if the cell's total
// stays within what the limit leaves. Those of all keys of a shard that come up during
// one call go together in the next.

const claimsMax = replayChunk // that one call to the origin carries

// claim asks the origin for c's cost, with spares set for what leaves room for other nodes. With wayMade it is counted.
func (l *Limiter) claim(ctx context.Context, v *cell.Verdict, e *cell.Entry, c *call, outage rules.Outage,
	spares bool) cell.Way {
	if l.outOf(e, l.clock.Steady()) {
		return cell.WayBroken
	}
	began := time.Now()
	claim := l.enterClaim(e, cell.NewClaim(e, v, c.limit, c.cost, spares, outage != rules.OutageClosed))
	select {
	case <-claim.Done:
	case <-ctx.Done():
		if !l.leaveClaim(claim, began) {
			return cell.WayBroken
		}
	}
	*v = claim.Verdict
	return claim.Way
}

// enterClaim lets c wait for the next call, and sees to it that there is one.
func (l *Limiter) enterClaim(e *cell.Entry, c *cell.Claim) *cell.Claim {
	sh := l.shardOf(e)
	if sh.claimants.Enter(c) {
		l.startClaims(sh)
	}
	return c
}

// startClaims has a goroutine take the lead; none does in a limiter that is stopped.
func (l *Limiter) startClaims(sh *shard) {
	if !l.calls.Start(func() { l.claims(sh) }) {
		sh.claimants.Abandon()
	}
}

// leaveClaim is for who waits no longer. answered is true when the answer came before. A
// policy that goes on without the origin decides by what is known here, and has the cost
// that is committed as credit: if the claim is added after all, it has paid for it.
func (l *Limiter) leaveClaim(c *cell.Claim, began time.Time) (answered bool) {
	l.shardOf(c.Entry).claimants.Leave(c)
	if answered = c.Entry.LeaveClaim(c); !answered {
		l.gaveUp(c.Entry, nil, began)
	}
	return answered
}

// claims makes calls until no claim waits for one.
func (l *Limiter) claims(sh *shard) {
	for {
		waiting := sh.claimants.Take(claimsMax)
		if len(waiting) == 0 {
			return
		}
		if l.recallClaims(context.Background(), sh, sh.asks, l.cfg.ReadTimeout) != nil {
			l.breakClaims(append(waiting, sh.claimants.TakeAll()...))
			continue
		}
		later := l.claimOnce(sh, waiting)
		sh.claimants.PutBack(later)
	}
}

// breakClaims sends claimants away that no call can be made for.
func (l *Limiter) breakClaims(waiting []*cell.Claim) {
	now := l.clock.ReadSteady()
	for _, c := range waiting {
		l.metrics.claims[claimFailed].Add(1)
		c.Entry.Rest(now)
		c.Finish(cell.WayBroken)
	}
}

// proveIdleClaims is recallClaims, or prove for the claims' stream, where no claim is on its way.
func (l *Limiter) proveIdleClaims(ctx context.Context, sh *shard) error {
	if !sh.claimants.Lead() {
		return nil
	}
	err := l.recallClaims(ctx, sh, sh.sends, replayTimeout)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, l.cfg.ReadTimeout)
		defer cancel()
		err = l.prove(ctx, sh, &sh.claims.stream)
	}
	if !sh.claimants.Yield() {
		l.startClaims(sh)
	}
	return err
}

// claimOnce makes one call. Claims of one key that do not fit beside each other by
// what is known here wait for the next.
func (l *Limiter) claimOnce(sh *shard, waiting []*cell.Claim) (later []*cell.Claim) {
	call, later := l.prepareClaims(waiting)
	if len(call.claims) == 0 {
		return later
	}
	reply, err := l.sendClaims(context.Background(), sh, sh.asks, l.cfg.ReadTimeout, call)
	going := slices.Clone(call.of)
	l.claimed(sh, call, &reply, err)
	for i, c := range going {
		if call.of[i] != nil {
			sh.claims.keep(call, c.Entry.LoseClaim(c), c.Cost)
		}
		close(c.Done)
	}
	return later
}

// prepareClaims puts those claims on their way that one call carries.
func (l *Limiter) prepareClaims(waiting []*cell.Claim) (call *claimCall, later []*cell.Claim) {
	call = &claimCall{}
	set, now := l.rules.InForce(), l.clock.ReadSteady()
	for _, c := range waiting {
		if l.table.HoldsBack(c.Entry, true, set.Nodes) {
			l.metrics.claims[claimFailed].Add(1)
			c.Finish(cell.WayBroken)
			continue
		}
		switch cl, way := c.Entry.PrepareClaim(c, set.Shares(c.Entry.Names()), set.Nodes, set.TwoTicksMs, now); {
		case way == cell.WayClaim:
			call.claims, call.of = append(call.claims, cl), append(call.of, c)
		case len(call.of) > 0 && c.Entry.Claiming(c.Verdict.Sequence):
			later = append(later, c)
		default:
			c.Finish(way)
		}
	}
	return call, later
}

// sendClaims makes the call. An error means that none of it left.
func (l *Limiter) sendClaims(ctx context.Context, sh *shard, by *breaker.Breaker, within time.Duration,
	call *claimCall) (reply store.ClaimReply, err error) {
	end, ok := by.Begin()
	if !ok {
		return reply, breaker.ErrOpen
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	asking := l.ask(sh)
	if call.number == 0 {
		sh.claims.number++
		call.number = sh.claims.number
	}
	reply = l.cfg.Origin.Claim(ctx, store.Claims{Stream: sh.claims.id, Number: call.number, Claims: call.claims})
	failed, first := call.failures(&reply)
	if failed == len(reply.Totals) {
		end(first)
	} else {
		end(nil)
		sh.claims.answered(slices.Contains(reply.Added, true) || reply.Repeated)
	}
	l.metrics.origin.Called(collect.OpClaim, len(call.claims), time.Since(asking.began), first)
	l.answered(sh, asking, &reply.Reply)
	sh.epochs.CountedIn(reply.Totals, func(i int) *window.Cell { return &call.claims[i].Cell })
	return reply, nil
}

// claimed hands answers to the claims of a call, and takes them off it: all of a call that is made for the first time,
// except for those whose answers are lost.
func (l *Limiter) claimed(sh *shard, call *claimCall, reply *store.ClaimReply, err error) {
	now, going := l.clock.ReadSteady(), slices.Clone(call.of)
	lost := make([]store.Epoch, len(going))
	for i, c := range going {
		answer := claimAnswer{total: store.Total{Err: cmp.Or(err, errShortAnswer)}}
		if err == nil && i < len(reply.Totals) && i < len(reply.Added) {
			answer = claimAnswer{reply.Totals[i], reply.Added[i]}
		}
		switch {
		case c == nil:
			continue
		case !call.recalled:
			l.countClaim(c, &answer, now)
			if errors.Is(answer.total.Err, store.ErrMaybeApplied) {
				continue
			}
		case !answer.decides():
			continue
		}
		call.of[i] = nil
		lost[i] = l.endClaim(sh, c, &answer, now)
	}
	if err == nil && len(reply.Totals) >= len(lost) {
		l.lostAll(sh, lost, reply.Totals, func(i int) *cell.Entry { return going[i].Entry })
	}
}

// claimAnswer is the answer to one claim.
type claimAnswer struct {
	total store.Total
	added bool
}

// countClaim counts what came of a claim for its caller. A key that the origin has not decided on rests.
func (l *Limiter) countClaim(c *cell.Claim, answer *claimAnswer, now clock.Steady) {
	switch err := answer.total.Err; {
	case err != nil:
		l.metrics.claims[claimFailed].Add(1)
		if !errors.Is(err, store.ErrEpoch) {
			c.Entry.Rest(now)
		}
	case answer.added:
		l.metrics.claims[claimAdded].Add(1)
	default:
		l.metrics.claims[claimRefused].Add(1)
	}
}

// endClaim merges the answer to one claim, and tells its decision what became of it. What an origin that has lost its
// counts has not decided is decided without it, and told to it first. What the credit of a claim that was not added has
// paid for is sent.
func (l *Limiter) endClaim(sh *shard, c *cell.Claim, answer *claimAnswer, now clock.Steady) (lost store.Epoch) {
	if answer.total.Err != nil {
		c.Entry.EndClaim(c, cell.WayBroken)
		lost = c.Entry.Absorb(&l.metrics.merged, c.Verdict.Sequence, &answer.total, now)
	} else {
		lost = c.Entry.MergeClaim(&l.metrics.merged, c, &answer.total, answer.added, now)
	}
	if c.Lent && !answer.added {
		l.requeue(sh, []*cell.Entry{c.Entry})
	}
	return lost
}
