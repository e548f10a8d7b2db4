package sim

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/sim/internal/cpu"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// meters count what fleet.World does not count, for all nodes and relays together.
type meters struct {
	cpu cpu.Meter // of a single relay

	keysRead, increments atomic.Int64 // by limiters
	ambiguousCost        atomic.Int64 // of claims
}

// nodeOrigin is a region's origin as a single limiter calls it. It records the foreign totals in the answers.
type nodeOrigin struct {
	store.FullOrigin
	world *world
	node  *node
}

// Read implements store.Origin.
func (h *nodeOrigin) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	reply, err := h.FullOrigin.Read(ctx, cells)
	for i, total := range reply.Totals {
		h.applied(cells[i], total.Foreign)
	}
	return reply, err
}

// keysOf returns the number of keys of cells. Cells of the same key must be adjacent.
func keysOf(cells []window.Cell) (keys int64) {
	for i := range cells {
		if i == 0 || cells[i].Key != cells[i-1].Key {
			keys++
		}
	}
	return keys
}

// Send implements store.Origin.
func (h *nodeOrigin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	reply, err := h.FullOrigin.Send(ctx, chunk)
	for i := range chunk.Costs {
		c, total := &chunk.Costs[i], store.Total{Err: err}
		if err == nil {
			total = reply.Totals[i]
		}
		if c.AtMost != 0 && total.Err != nil && total.Epoch == 0 && !errors.Is(total.Err, store.ErrNotApplied) {
			h.world.ledger.repeatable(h.node.region.index, c.Cell, c.Add)
			h.world.meters.ambiguousCost.Add(c.Add)
		}
		h.applied(c.Cell, total.Foreign)
	}
	return reply, err
}

// Listen implements store.Origin.
func (h *nodeOrigin) Listen(ctx context.Context, shard int, apply func([]store.Foreign)) error {
	return h.FullOrigin.Listen(ctx, shard, func(totals []store.Foreign) {
		for i := range totals {
			h.applied(totals[i].Cell, totals[i].Count)
		}
		apply(totals)
	})
}

func (h *nodeOrigin) applied(cell window.Cell, foreign int64) {
	if foreign > 0 {
		h.world.ledger.applied(h.node.index, h.node.region.index, cell, foreign)
	}
}

// checkedOrigin is a region's origin behind all links. It meters the calls that arrive, and checks that relays apply no
// more than the other regions have accepted.
type checkedOrigin struct {
	store.FullOrigin
	world  *world
	region int
}

// Read implements store.Origin.
func (h checkedOrigin) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	h.world.meters.keysRead.Add(keysOf(cells))
	return h.FullOrigin.Read(ctx, cells)
}

// Send implements store.Origin.
func (h checkedOrigin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	for i := range chunk.Costs {
		if c := &chunk.Costs[i]; c.Add > 0 || c.Restore > 0 { // other costs only read the epoch
			h.world.meters.increments.Add(1)
		}
	}
	return h.FullOrigin.Send(ctx, chunk)
}

// Apply implements store.Relayed.
func (h checkedOrigin) Apply(ctx context.Context, shard int, totals []store.Foreign) (int, error) {
	for _, f := range totals {
		most := int64(0)
		for other := range h.world.regions {
			if other != h.region {
				most += h.world.ledger.ceiling(other, f.Cell)
			}
		}
		if f.Count > most {
			h.world.violate(violationPublished, "region %d receives %d of %v, cell %d, and others had accepted %d", h.region,
				f.Count, f.Cell.Key, f.Cell.Sequence, most)
		}
	}
	return h.FullOrigin.Apply(ctx, shard, totals)
}

// checkedCounts checks that a region's relays store no more than the region has accepted.
type checkedCounts struct {
	store.CountStore
	world  *world
	region int
}

// Publish implements store.CountStore.
func (c checkedCounts) Publish(ctx context.Context, region string, counts []store.Count) error {
	for _, row := range counts {
		if most := c.world.ledger.ceiling(c.region, row.Cell); row.Count > most {
			c.world.violate(violationPublished, "%s published %d of %v, cell %d, and had accepted %d", region, row.Count,
				row.Cell.Key, row.Cell.Sequence, most)
		}
	}
	return c.CountStore.Publish(ctx, region, counts)
}
