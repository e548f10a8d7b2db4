package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/queue"
	"github.com/weirhq/weir/dataplane/store"
)

// claims decide where the count is: the origin adds a cost only if the cell's total
// stays within what the limit leaves. Those of all keys of a shard that come up during
// one call go together in the next. Only the goroutine that leads may use the stream: see
// queue.GroupCommit.
type claims struct {
	stream
	queue.GroupCommit[*cell.Claim]
	sh   *Shard
	lost *claimCall // that was sent, and has claims without an answer; nil: none
}

func (q *claims) init(sh *Shard) {
	q.stream.init(sh, sh.asks)
	q.sh = sh
}

// Claim claims a cost at the origin, and waits for the answer. With cell.WayMade it is counted.
// spares leaves room for other nodes; lends has the cost as this node's credit if ctx ends before
// the answer. v is the verdict so far, and then the claim's.
func (o *Outbox) Claim(ctx context.Context, v *cell.Verdict, e *cell.Entry, limit, cost int64,
	spares, lends bool) cell.Way {
	if o.OutOf(e, o.cfg.Clock.Steady()) {
		return cell.WayBroken
	}
	began := time.Now()
	claim := o.BeginClaim(cell.NewClaim(e, v, limit, cost, spares, lends))
	select {
	case <-claim.Done:
	case <-ctx.Done():
		if !o.LeaveClaim(claim, began) {
			return cell.WayBroken
		}
	}
	*v = claim.Verdict
	return claim.Way
}

// BeginClaim lets c wait for the next call, and returns it. A goroutine makes the call.
func (o *Outbox) BeginClaim(c *cell.Claim) *cell.Claim {
	if q := &o.ShardOf(c.Entry).claims; q.Enter(c.Entry.Group(), c) {
		q.start()
	}
	return c
}

// LeaveClaim is for a caller that has waited since began and waits no longer. answered is true when the answer came
// before. A policy that goes on without the origin decides by what is known here, and has the cost that is committed as
// credit: if the claim is added after all, it has paid for it.
func (o *Outbox) LeaveClaim(c *cell.Claim, began time.Time) (answered bool) {
	o.ShardOf(c.Entry).claims.Leave(c.Entry.Group(), func(waiting *cell.Claim) bool { return waiting == c })
	if answered = c.Leave(); !answered {
		o.gaveUp(c.Entry, nil, began)
	}
	return answered
}

// start has a goroutine take the lead; none does in a limiter that is stopped.
func (q *claims) start() {
	if q.sh.out.cfg.Calls.Start(q.run) {
		return
	}
	for waiting := q.take(); len(waiting) > 0; waiting = q.take() {
		for _, c := range waiting {
			c.Finish(cell.WayBroken)
		}
	}
}

// take takes the claims of the next call. With none the lead is over.
func (q *claims) take() []*cell.Claim { return q.Take(chunkCells, func(*cell.Claim) int { return 1 }) }

// run makes calls until no claim waits for one.
func (q *claims) run() {
	for waiting := q.take(); len(waiting) > 0; waiting = q.take() {
		if q.recall(context.Background(), q.sh.asks, q.sh.out.cfg.ReadTimeout) != nil {
			q.fail(append(waiting, q.TakeAll()...))
			continue
		}
		for _, c := range slices.Backward(q.claimOnce(waiting)) {
			q.PutBack(c.Entry.Group(), c)
		}
	}
}

// fail ends claims that no call can be made for.
func (q *claims) fail(waiting []*cell.Claim) {
	o := q.sh.out
	now := o.cfg.Clock.ReadSteady()
	for _, c := range waiting {
		o.Stats.claims[claimFailed].Add(1)
		c.Entry.Reads().Rest(now)
		c.Finish(cell.WayBroken)
	}
}

// proveIdle recalls lost claims, or proves the stream, where no claim is on its way.
func (q *claims) proveIdle(ctx context.Context) error {
	return proveLed(ctx, q, func(ctx context.Context) error {
		if err := q.recall(ctx, q.sh.sends, sendTimeout); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, q.sh.out.cfg.ReadTimeout)
		defer cancel()
		return q.sh.prove(ctx, &q.stream)
	})
}

// claimOnce makes one call. Claims of one key that do not fit beside each other by
// what is known here wait for the next.
func (q *claims) claimOnce(waiting []*cell.Claim) (later []*cell.Claim) {
	call, later := q.prepare(waiting)
	if len(call.costs) == 0 {
		return later
	}
	reply, _ := q.send(context.Background(), q.sh.asks, q.sh.out.cfg.ReadTimeout, call)
	going := slices.Clone(call.of)
	q.merge(call, &reply)
	for i, c := range going {
		if call.of[i] != nil {
			q.keep(call, c.Lose(), c.Cost)
		}
		close(c.Done)
	}
	return later
}

// prepare puts those claims on their way that one call carries.
func (q *claims) prepare(waiting []*cell.Claim) (call *claimCall, later []*cell.Claim) {
	o := q.sh.out
	call = &claimCall{}
	set, now := o.cfg.Rules.InForce(), o.cfg.Clock.ReadSteady()
	for _, c := range waiting {
		if o.cfg.Table.HoldsBack(c.Entry, true, set.Nodes) {
			o.Stats.claims[claimFailed].Add(1)
			c.Finish(cell.WayBroken)
			continue
		}
		switch cost, way := c.Prepare(set.Shares(c.Entry.Names()), set.Nodes, set.TwoTicksMs, now); {
		case way == cell.WayClaim:
			call.costs, call.of = append(call.costs, cost), append(call.of, c)
		case len(call.of) > 0 && c.Entry.Ledger().Claiming(c.Verdict.Sequence):
			later = append(later, c)
		default:
			c.Finish(way)
		}
	}
	return call, later
}

// send makes the call. The reply has a total for each claim, with an error where there is no answer; err is the first
// that is no decision.
func (q *claims) send(ctx context.Context, by *breaker.Breaker, within time.Duration,
	call *claimCall) (reply store.Reply, err error) {
	end, ok := by.Begin()
	if !ok {
		return call.without(fmt.Errorf("%w: %w", store.ErrNotApplied, breaker.ErrOpen)), breaker.ErrOpen
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if call.number == 0 {
		q.number++
		call.number = q.number
	}
	if reply, err = q.stream.send(ctx, q.sh, call.number, call.costs); err != nil {
		reply = call.without(err)
	}
	failed, err := markUnanswered(&reply)
	if failed < len(reply.Totals) {
		end(nil)
	} else {
		end(err)
	}
	return reply, err
}

// merge hands answers to the claims of a call, and takes them off it: all of a call that is made for the first time,
// except for those whose answers are lost.
func (q *claims) merge(call *claimCall, reply *store.Reply) {
	now, going := q.sh.out.cfg.Clock.ReadSteady(), slices.Clone(call.of)
	lost := make([]store.Epoch, len(going))
	for i, c := range going {
		total := &reply.Totals[i]
		switch {
		case c == nil:
			continue
		case !call.recalled:
			q.count(c, total, now)
			if errors.Is(total.Err, errUnanswered) {
				continue
			}
		case !decides(total):
			continue
		}
		call.of[i] = nil
		lost[i] = q.end(c, total, now)
	}
	q.sh.lostAll(lost, reply.Totals, func(i int) *cell.Entry { return going[i].Entry })
}

// count counts what came of a claim for its caller. A key that the origin has not decided on rests.
func (q *claims) count(c *cell.Claim, total *store.Total, now clock.Steady) {
	stats := &q.sh.out.Stats
	switch err := total.Err; {
	case err != nil:
		stats.claims[claimFailed].Add(1)
		if !errors.Is(err, store.ErrEpoch) {
			c.Entry.Reads().Rest(now)
		}
	case total.Added:
		stats.claims[claimAdded].Add(1)
	default:
		stats.claims[claimRefused].Add(1)
	}
}

// end merges the answer to one claim, and ends the claim. A claim that an origin without its counts has not decided is
// decided without it, and sent to it first. If a claim was not added, the cost that its credit has paid for is sent.
// The cost of a claim that was added in a lost epoch is sent, too.
func (q *claims) end(c *cell.Claim, total *store.Total, now clock.Steady) (lost store.Epoch) {
	merged := &q.sh.out.Stats.Merged
	if total.Err != nil {
		c.End(cell.WayBroken)
		lost = c.Entry.Ledger().Absorb(merged, c.Verdict.Sequence, total, now)
	} else {
		lost = c.Merge(merged, total, now)
	}
	if c.Lent && !total.Added || total.Added && total.Epoch == 0 {
		q.sh.replay.requeue([]*cell.Entry{c.Entry})
	}
	return lost
}
