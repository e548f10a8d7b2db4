package dataplane

import (
	"context"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// listen merges the foreign totals that a shard announces, until ctx ends or the connection is
// lost. Keys that this node does not hold are none of its business: their first contact reads.
func (l *Limiter) listen(ctx context.Context, sh *shard) error {
	return l.cfg.Origin.Listen(ctx, sh.index, l.applyForeign)
}

func (l *Limiter) applyForeign(totals []store.Foreign) {
	if !l.clock.Known() {
		return // cells are not numbered by the origin's clock yet, so foreign totals are of other cells
	}
	set, nowMs := l.rules.InForce(), l.nowMs()
	for i := range totals {
		c := &totals[i].Cell
		reset, ok := set.ResetOfCell(c)
		if !ok {
			continue
		}
		id := l.table.IdentityOfKey(&c.Key, reset)
		if e := l.table.Get(&id); e != nil {
			current := window.Sequence(nowMs, c.DurationMs())
			l.forgot(e, e.ApplyForeign(&l.metrics.merged, l.table.Horizon(false), current, c.Sequence, totals[i].Count))
		}
	}
}
