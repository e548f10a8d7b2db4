package sim

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// meters count what the origins are asked for, all nodes together. (The count store has
// its own, in the terms of a database.)
type meters struct {
	commands, trips      atomic.Int64
	keysRead, increments atomic.Int64
	ambiguousCost        atomic.Int64

	digestBytes, digestBytesRead atomic.Int64
}

// remoteOrigin is a region's origin as one node sees it: behind a link, and metered.
// What it does not override goes straight through.
type remoteOrigin struct {
	store.Origin
	link   *link
	meters *meters
	ledger *ledger
	region int
}

// shard is where a call goes. Nodes have a worker for each shard: one call, one shard.
func (o *remoteOrigin) shard(cell *window.Cell) int { return o.ShardOf(&cell.Key) }

func (o *remoteOrigin) Read(ctx context.Context, cells []window.Cell) ([]int64, error) {
	v, err := o.link.embarkTo("origin read", o.shard(&cells[0]))
	if err != nil {
		return nil, err
	}
	if err := v.outward(ctx, "origin read"); err != nil {
		return nil, err
	}
	o.meters.trips.Add(1)
	o.meters.commands.Add(int64(len(cells)))
	o.meters.keysRead.Add(keysOf(cells))
	totals, err := o.Origin.Read(ctx, cells)
	if err != nil {
		return nil, err
	}
	return totals, v.homeward(ctx, "origin read")
}

// keysOf is how many keys cells are of. A key's cells stand together.
func keysOf(cells []window.Cell) (keys int64) {
	for i := range cells {
		if i == 0 || cells[i].Key != cells[i-1].Key {
			keys++
		}
	}
	return keys
}

func (o *remoteOrigin) Add(ctx context.Context, adds []store.Add) []store.Added {
	v, err := o.link.embarkTo("origin add", o.shard(&adds[0].Cell))
	if err != nil {
		return slices.Repeat([]store.Added{{Err: err}}, len(adds))
	}
	adds = slices.Clone(adds)
	gone := v.outward(ctx, "origin add")
	if v.sunk {
		return ambiguous(gone, len(adds))
	}
	o.meters.trips.Add(1)
	o.meters.commands.Add(2 * int64(len(adds))) // INCRBY and PEXPIREAT
	o.meters.increments.Add(int64(len(adds)))
	added := o.Origin.Add(context.WithoutCancel(ctx), adds)
	if gone == nil {
		gone = v.homeward(ctx, "origin add")
	}
	if gone != nil {
		o.unheard(adds)
		return ambiguous(gone, len(adds))
	}
	return added
}

func ambiguous(err error, n int) []store.Added {
	return slices.Repeat([]store.Added{{Err: maybeApplied(err)}}, n)
}

func (o *remoteOrigin) Claim(ctx context.Context, claims []store.Claim) []store.Claimed {
	v, err := o.link.embarkTo("origin claim", o.shard(&claims[0].Cell))
	if err != nil {
		return slices.Repeat([]store.Claimed{{Err: err}}, len(claims))
	}
	claims = slices.Clone(claims)
	gone := v.outward(ctx, "origin claim")
	if v.sunk {
		return slices.Repeat([]store.Claimed{{Err: maybeApplied(gone)}}, len(claims))
	}
	o.meters.trips.Add(1)
	o.meters.commands.Add(2 * int64(len(claims)))
	claimed := o.Origin.Claim(context.WithoutCancel(ctx), claims)
	if gone == nil {
		gone = v.homeward(ctx, "origin claim")
	}
	if gone != nil {
		var adds []store.Add
		for i, c := range claimed {
			if c.Added {
				adds = append(adds, store.Add{Cell: claims[i].Cell, Cost: claims[i].Cost})
			}
		}
		o.unheard(adds)
		return slices.Repeat([]store.Claimed{{Err: maybeApplied(gone)}}, len(claims))
	}
	return claimed
}

// unheard notes what was applied without the node hearing of it.
func (o *remoteOrigin) unheard(adds []store.Add) {
	o.ledger.repeatable(o.region, adds)
	for _, a := range adds {
		o.meters.ambiguousCost.Add(a.Cost)
	}
}

func maybeApplied(err error) error { return fmt.Errorf("%w: %w", store.ErrMaybeApplied, err) }

func (o *remoteOrigin) Raise(ctx context.Context, totals []store.Add) error {
	v, err := o.link.embarkTo("origin raise", o.shard(&totals[0].Cell))
	if err != nil {
		return err
	}
	totals = slices.Clone(totals)
	if err := v.outward(ctx, "origin raise"); err != nil {
		return err
	}
	o.meters.trips.Add(1)
	o.meters.commands.Add(2 * int64(len(totals)))
	if err := o.Origin.Raise(ctx, totals); err != nil {
		return err
	}
	return v.homeward(ctx, "origin raise")
}
