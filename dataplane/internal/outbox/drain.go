package outbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
)

const drainPause = 20 * time.Millisecond // between two attempts of the final replay

// Stop ends everything but Drain. From then on no entry is flushed or queued for a sync, and Refuses returns true for
// every shard.
func (o *Outbox) Stop() {
	o.stopping.Store(true)
	o.refusing.Add(1)
}

// Drain sends unsent cost until none is left or ctx ends, to all shards at the same time: a dead shard delays no other
// shard. Cost that is accepted meanwhile is left out, because otherwise Drain might never end.
func (o *Outbox) Drain(ctx context.Context) error {
	// unsent cost of the estimate mode goes, too, whether it is below its floor or not
	o.cfg.Table.Each(func(e *cell.Entry) { o.ShardOf(e).syncs.askUnsent(e) })
	o.collect()
	return o.Each(func(sh *Shard) error {
		sh.TurnBreakersOff() // it is now or never
		return errors.Join(sh.drain(ctx, "replay", sh.replay.tick, sh.pendingCost),
			sh.drain(ctx, "sync", sh.syncs.tick, sh.syncs.unsynced))
	})
}

func (sh *Shard) drain(ctx context.Context, kind string, step func(context.Context) error, left func() int64) error {
	var last error // of an attempt that ctx did not cut short
	for before := int64(math.MaxInt64); ; {
		err := step(ctx)
		pending := left()
		switch {
		case pending == 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("final %s to shard %d: cost %d was not confirmed: %w", kind, sh.index, pending,
				errors.Join(last, ctx.Err()))
		case err == nil && pending < before:
			before = pending
			continue // more than a tick's worth
		}
		last = err
		select {
		case <-ctx.Done():
		case <-time.After(drainPause):
		}
	}
}
