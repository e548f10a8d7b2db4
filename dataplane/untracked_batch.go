package dataplane

import (
	"context"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/outbox"
)

// settleUntracked counts the cost of a batch on untracked keys that no claim has counted, because no replay would
// send it. It sends the cost to the origin, in a call per shard, or adds it to the overflow. It waits for the
// origin within the deadline of the decision, and until then the keys stay untracked keys.
func (b *batch) settleUntracked(ctx context.Context, allowed bool) {
	var sent []outbox.UntrackedCost
	for _, i := range b.order {
		it := &b.items[i]
		switch {
		case it.met != cell.Untracked || it.before == 0 || !allowed && !it.rule.Offered():
		case it.rule.Estimate != nil || b.engine.alone || it.source.Degraded():
			b.engine.out.Spill(it.entry, it.verdict.Sequence, it.unclaimed())
		default:
			cost := it.entry.Ledger().Unpaid(it.verdict.Sequence, it.unclaimed())
			if cost == 0 {
				continue
			}
			sent = append(sent, outbox.UntrackedCost{Entry: it.entry, Sequence: it.verdict.Sequence, Cost: cost})
		}
	}
	if sent == nil {
		return
	}
	ctx, cancel := b.engine.within(ctx, &b.until)
	defer cancel()
	b.engine.out.SendUntracked(ctx, sent)
}

// releaseUntracked ends a batch's use of untracked keys.
func (b *batch) releaseUntracked() {
	for _, i := range b.order {
		if it := &b.items[i]; it.met == cell.Untracked {
			b.engine.stats.untracked.decided(it.source)
			b.engine.table.UntrackedKeys.Release(it.id)
			it.entry, it.met = nil, cell.Known
		}
	}
}
