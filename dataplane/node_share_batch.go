package dataplane

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// A batch in a namespace that waits claims at the origin too, though it is all or nothing over
// several keys. What is added is counted, as a single's is, and the batch is decided by the rest in one step with
// everything else. A batch that is decided anew keeps what was added. If it fails after all, that becomes this node's
// credit, and pays for what the node accepts there next. Keys without room claim whatever their share, as their singles
// do, once all other keys have what they wait for: an untracked key's credit ends with its last user, which errs on the
// safe side.

// settleClaims turns into credit what was claimed for a batch and not used: all of it where the batch fails.
func (b *batch) settleClaims(used bool) {
	for _, i := range b.order {
		it := &b.items[i]
		if it.claimed.Cost == 0 {
			continue
		}
		left := it.claimed.Cost
		if used {
			left -= min(it.before, it.claimed.In(it.verdict.Sequence))
		}
		it.entry.Ledger().Credit(it.claimed.Sequence, left)
		it.claimed = cell.Claimed{}
	}
}

// keepClaim notes a claim that was added. One of a cell that has made way is of no use to the batch any more.
func (it *item) keepClaim(c *cell.Claim) {
	if it.claimed.Sequence != c.Verdict.Sequence {
		it.entry.Ledger().Credit(it.claimed.Sequence, it.claimed.Cost)
		it.claimed = cell.Claimed{Sequence: c.Verdict.Sequence}
	}
	it.claimed.Cost += c.Cost
}

// pledge is one key of a batch that waits: for the reply to what is unsent, or for a claim.
type pledge struct {
	first int
	reply *cell.Flight
	claim *cell.Claim
}

// share lets a batch wait until each of its untracked keys, or of its other keys, is within its share, or the origin
// has decided its cost.
func (b *batch) share(ctx context.Context, untracked bool) {
	var cancel context.CancelFunc
	for {
		var pledges []pledge
		for _, i := range b.order { // all of them before any is waited for
			if p, waits := b.pledge(i, untracked); waits {
				pledges = append(pledges, p)
			}
		}
		if len(pledges) == 0 {
			return
		}
		if cancel == nil {
			ctx, cancel = b.engine.within(ctx, &b.until)
			defer cancel()
		}
		began := time.Now()
		for _, p := range pledges {
			b.redeem(ctx, p, began)
		}
	}
}

// pledge begins to wait for a key; waits is false when there is nothing to wait for.
func (b *batch) pledge(i int, untracked bool) (p pledge, waits bool) {
	it := &b.items[i]
	if !it.waits(untracked) || it.source.Degraded() || it.overShare {
		return p, false
	}
	e := it.entry
	way, v, limit, cost := b.wayOfKey(it)
	switch {
	case way == cell.WayMade:
		return p, false
	case b.engine.calls.IsStopped() || b.engine.out.OutOf(e, b.engine.clock.Steady()):
		b.breakItem(i)
		return p, false
	}
	p.first = i
	if way == cell.WayReply {
		p.reply = b.engine.out.BeginFlush(e)
	} else {
		p.claim = b.engine.out.BeginClaim(cell.NewClaim(e, &v, limit, cost, !untracked, it.rule.Outage != rules.OutageClosed))
	}
	return p, true
}

// redeem waits for a pledge.
func (b *batch) redeem(ctx context.Context, p pledge, began time.Time) {
	it, way := &b.items[p.first], cell.WayBroken
	if p.reply != nil {
		way = b.engine.out.WaitForReply(ctx, p.reply, it.entry, began)
	} else {
		select {
		case <-p.claim.Done:
			way = p.claim.Way
		case <-ctx.Done():
			if b.engine.out.LeaveClaim(p.claim, began) {
				way = p.claim.Way
			}
		}
	}
	switch way {
	case cell.WayBroken:
		b.breakItem(p.first)
	case cell.WayOverShare:
		sourceOf(b.items, p.first, SourceOrigin, 0)
		for i := range b.items {
			if b.items[i].first == p.first {
				b.items[i].overShare, b.items[i].overShareMs = true, b.engine.rules.InForce().TwoTicksMs
			}
		}
	case cell.WayMade:
		it.keepClaim(p.claim)
		fallthrough
	default:
		sourceOf(b.items, p.first, SourceOrigin, 0)
	}
}

// breakItem leaves a key to its outage policy.
func (b *batch) breakItem(i int) {
	it := &b.items[i]
	sourceOf(b.items, i, sourceOut(it.rule.Outage), b.engine.out.RetryAfter(it.entry, b.engine.clock.Steady()))
}

// wayOfKey is the way of all that a batch asks of one key and has not claimed, which is cost against limit.
func (b *batch) wayOfKey(first *item) (way cell.Way, v cell.Verdict, limit, cost int64) {
	nodes := b.engine.rules.InForce().Nodes
	way, limit, cost = first.entry.NodeShare().WayOfBatch(&v, b.horizon, first.nowMs, first.durationMs, first.limit, nodes,
		first.met == cell.Untracked, &first.claimed, func(v *cell.Verdict, uncoveredMs int64) (limit, cost int64) {
			return b.sumOfKey(first, v, uncoveredMs)
		})
	return way, v, limit, cost
}

// sumOfKey is what a batch asks of one key in all, and the limit of that. Each item has a limit
// of its own, for its cost and that of the items before it; the sum fits the limit returned
// exactly when each item fits its own. What shadow mode lets pass over its limit is not counted.
func (b *batch) sumOfKey(first *item, v *cell.Verdict, uncoveredMs int64) (limit, cost int64) {
	least := int64(window.LimitMax) // that an item's limit leaves to the items behind it
	for i := range b.items {
		it := &b.items[i]
		if it.ident != first.ident {
			continue
		}
		if it.shadow() && !window.Fits(v.Current, v.Previous, cost+it.cost, it.limit, uncoveredMs, it.durationMs) {
			continue
		}
		cost = min(cost+it.cost, aheadMax)
		least = min(least, it.limit-cost)
	}
	return least + cost, cost
}
