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

// claims are costs that the origin decides on: it adds a cost only if the cell's total stays within the rest of the
// limit. All claims of a shard's keys that arrive during a call go together in the next call. Only the goroutine that
// leads may use the stream: see queue.GroupCommit.
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

// Claim claims a cost at the origin, and waits for the answer. With cell.WayMade or cell.WayKept it is counted. spares
// leaves room for other nodes; with keeps set the cost is accepted if ctx ends before the answer, or the answer is
// lost. v is the verdict so far, and then the claim's.
func (o *Outbox) Claim(ctx context.Context, v *cell.Verdict, e *cell.Entry, limit, cost int64,
	spares, keeps bool) (w cell.Way) {
	if o.OutOf(e, o.cfg.Clock.Steady()) {
		return cell.WayBroken
	}
	began := time.Now()
	claim := o.BeginClaim(cell.NewClaim(e, v, limit, cost, spares, keeps))
	if w = o.WaitForClaim(ctx, claim, began); w != cell.WayBroken {
		*v = claim.Verdict
	}
	return w
}

// BeginClaim lets c wait for the next call, and returns it. A goroutine makes the call.
func (o *Outbox) BeginClaim(c *cell.Claim) *cell.Claim {
	if q := &o.ShardOf(c.Entry).claims; q.Enter(c.Entry.Group(), c) {
		q.start()
	}
	return c
}

// WaitForClaim waits for the answer to a claim that began at began, until ctx ends, and returns how the claim's cost
// is decided.
func (o *Outbox) WaitForClaim(ctx context.Context, c *cell.Claim, began time.Time) (w cell.Way) {
	select {
	case <-c.Done:
		return c.Way
	case <-ctx.Done():
	}
	o.ShardOf(c.Entry).claims.Leave(c.Entry.Group(), func(waiting *cell.Claim) bool { return waiting == c })
	if w = c.Leave(); w == cell.WayKept || w == cell.WayBroken {
		o.gaveUp(c.Entry, nil, began)
	}
	return w
}

// start starts a goroutine that takes the lead, unless the limiter is stopped.
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

// take takes the claims of the next call. If there is none, the lead ends.
func (q *claims) take() []*cell.Claim { return q.Take(chunkCells, func(*cell.Claim) int { return 1 }) }

// run makes calls until no claim waits for a call.
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

// fail ends claims for which no call can be made.
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

// claimOnce makes one call. Claims of the same key that do not all fit by the node's counts wait for the next call.
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
			q.keep(call, c.Lose())
		}
		close(c.Done)
	}
	return later
}

// prepare puts as many claims on their way as fit in a call.
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

// send makes the call. The reply has a total for each claim, with an error if there is no answer. err is the first
// error that is not a decision.
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

// merge passes answers to the claims of a call, and removes these claims from the call. In the first try of a call,
// only claims whose answers are lost stay in it.
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
		if total.Err == nil && total.Added {
			q.sh.out.accept(c.Entry, call.costs[i].Add)
		}
	}
	q.sh.lostAll(lost, reply.Totals, func(i int) *cell.Entry { return going[i].Entry })
}

// count counts the outcome of a claim for its caller. If the origin has not decided on a key, the key rests.
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

// end merges the answer to a claim, and ends the claim. If an origin that lost its counts has not decided it, the
// decision is made without the origin, and the cost is sent first. If a claim was not added, the cost that its caller
// has kept is sent. The cost of a claim that was added in a lost epoch is restored.
func (q *claims) end(c *cell.Claim, total *store.Total, now clock.Steady) (lost store.Epoch) {
	stats, unsent, gone := &q.sh.out.Stats, int64(0), int64(0)
	if total.Err != nil {
		unsent, gone = c.End(cell.WayBroken)
		lost = c.Entry.Ledger().Absorb(&stats.Merged, c.Verdict.Sequence, total, now)
	} else {
		lost, unsent, gone = c.Merge(&stats.Merged, total, now)
	}
	stats.Dropped[DroppedExpired].Add(gone)
	q.sh.out.accept(c.Entry, gone)
	if unsent > 0 || total.Added && total.Epoch == 0 {
		q.sh.replay.requeue([]*cell.Entry{c.Entry})
	}
	return lost
}
