package dataplane

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// A batch in a namespace that waits must also claim at the origin, although it is all or nothing over several keys.
// Cost that a claim adds is counted, as for a single request. Then the batch is decided with the rest of its cost, in
// one step. A batch that is decided again keeps the added cost. If the batch fails after all, the added cost becomes
// this node's credit, which pays for the node's next cost on the key.
//
// Untracked keys claim whatever their share, as their single requests do, after all other keys have their replies. An
// untracked key's credit ends with its last user. That errs on the safe side.

// settleClaims returns claimed cost that the batch did not use, as credit. If the batch fails, it returns all claimed
// cost.
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
		it.entry.Ledger().Return(it.claimed.Sequence, left)
		it.claimed = cell.Claimed{}
	}
}

// keepClaim adds a claim whose cost was added or kept. If the batch has a claim of another cell, that cell is no
// longer current, so keepClaim returns the old claim as credit.
func (it *item) keepClaim(c *cell.Claim) {
	if it.claimed.Sequence != c.Verdict.Sequence {
		it.entry.Ledger().Return(it.claimed.Sequence, it.claimed.Cost)
		it.claimed = cell.Claimed{Sequence: c.Verdict.Sequence}
	}
	it.claimed.Cost += c.Cost
}

// pledge is a key of a batch that waits: either for the reply to its unsent cost, or for a claim.
type pledge struct {
	first int
	reply *cell.Flight
	claim *cell.Claim
}

// share makes a batch wait until each of its keys is within its share, or until the origin has decided the key's
// cost. untracked selects the untracked keys or all others.
func (b *batch) share(ctx context.Context, untracked bool) {
	var cancel context.CancelFunc
	for {
		var pledges []pledge
		for _, i := range b.order { // begin all waits before waiting for any
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

// pledge begins to wait for a key; waits is false if there is nothing to wait for.
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
	it := &b.items[p.first]
	var way cell.Way
	if p.reply != nil {
		way = b.engine.out.WaitForReply(ctx, p.reply, it.entry, began)
	} else {
		way = b.engine.out.WaitForClaim(ctx, p.claim, began)
	}
	switch way {
	case cell.WayKept:
		it.keepClaim(p.claim)
		fallthrough
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

// breakItem applies the outage policy to a key.
func (b *batch) breakItem(i int) {
	it := &b.items[i]
	sourceOf(b.items, i, sourceOut(it.rule.Outage), b.engine.out.RetryAfter(it.entry, b.engine.clock.Steady()))
}

// wayOfKey returns the way to decide all unclaimed cost of a batch on one key, and that cost with its limit.
func (b *batch) wayOfKey(first *item) (way cell.Way, v cell.Verdict, limit, cost int64) {
	nodes := b.engine.rules.InForce().Nodes
	way, limit, cost = first.entry.NodeShare().WayOfBatch(&v, b.horizon, first.nowMs, first.durationMs, first.limit, nodes,
		first.met == cell.Untracked, &first.claimed, func(v *cell.Verdict, uncoveredMs int64) (limit, cost int64) {
			return b.sumOfKey(first, v, uncoveredMs)
		})
	return way, v, limit, cost
}

// sumOfKey returns the total cost of a batch on one key, and the limit of that total. Each item's own limit applies
// to its cost plus the cost of the items before it. The total fits the returned limit exactly if each item fits its
// own limit. Items over the limit that only shadow mode lets pass are not counted.
func (b *batch) sumOfKey(first *item, v *cell.Verdict, uncoveredMs int64) (limit, cost int64) {
	least := int64(window.LimitMax) // the least that an item's limit leaves to the items after it
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
