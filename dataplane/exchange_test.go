package dataplane_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// heldLimit is never reached.
const heldLimit = 1 << 50

// totals returns the cost that the region's nodes have added.
func totals(h *memstore.Origin) map[window.Cell]int64 {
	counts := make(map[window.Cell]int64)
	for c, t := range h.Totals() {
		if t.Region > 0 {
			counts[c] = t.Region
		}
	}
	return counts
}

// recordingOrigin records the cells that are read.
type recordingOrigin struct {
	*memstore.Origin
	mu    sync.Mutex
	reads [][]window.Cell
}

func (o *recordingOrigin) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	o.mu.Lock()
	o.reads = append(o.reads, slices.Clone(cells))
	o.mu.Unlock()
	return o.Origin.Read(ctx, cells)
}

var strangers atomic.Uint64

// add adds a cost as another node would; it returns the region's total.
func add(h store.Origin, c window.Cell, cost int64) (total int64, err error) {
	// otherwise an origin value with an earlier epoch would refuse the cost
	if _, err := h.Read(context.Background(), []window.Cell{c}); err != nil {
		return 0, err
	}
	reply, err := h.Send(context.Background(), store.Chunk{Shard: h.ShardOf(&c.Key), Stream: 1<<62 + strangers.Add(1), Number: 1,
		Costs: []store.Cost{{Cell: c, Add: cost}}})
	if err != nil {
		return 0, err
	}
	return reply.Totals[0].Region, reply.Totals[0].Err
}
