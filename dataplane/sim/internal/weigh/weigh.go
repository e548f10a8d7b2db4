// Package weigh measures the memory that a limiter needs for its keys.
package weigh

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/sim/internal/bubble"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Bounds of the number of keys that are weighed. With fewer keys the fixed parts of a table dominate, and more keys
// take long.
const (
	weighedMin = 20_000
	weighedMax = 100_000
)

// BytesPerKey returns the heap bytes that a limiter's table keeps alive for each key, once all cost is sent. It runs
// the limiter in a bubble of its own.
func BytesPerKey(keys int) (float64, error) {
	keys = min(max(keys, weighedMin), weighedMax)
	return bubble.Run(func() (float64, error) { return weigh(keys) })
}

func weigh(keys int) (float64, error) {
	before := liveHeap()
	l, err := dataplane.New(dataplane.Config{
		Region: "eu", NodeID: "a",
		Origin:   nowhere{memstore.NewOrigin(memstore.OriginOptions{})},
		Settings: memstore.NewCounts(memstore.CountsOptions{}),
	})
	if err != nil {
		return 0, fmt.Errorf("weigh a limiter: %w", err)
	}
	ctx := context.Background()
	if err := l.Start(ctx); err != nil {
		return 0, fmt.Errorf("weigh a limiter: %w", err)
	}
	for i := range keys {
		l.Allow(ctx, dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprintf("user_%d", i), Limit: 100,
			Duration: time.Minute, Cost: 1})
	}
	time.Sleep(30 * time.Second) // until all cost is sent and the queues are empty
	after := liveHeap()
	held := l.Health().Entries
	if err := l.Stop(ctx); err != nil {
		return 0, fmt.Errorf("weigh a limiter: %w", err)
	}
	return float64(after-before) / float64(held), nil
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // also frees what finalizers and pools release
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// nowhere is an origin that stores nothing, so that only the limiter's memory is measured.
type nowhere struct{ store.FullOrigin }

func (nowhere) Read(_ context.Context, cells []window.Cell) (store.Reply, error) {
	return store.Reply{Totals: make([]store.Total, len(cells)), Now: time.Now()}, nil
}

func (nowhere) Send(_ context.Context, chunk store.Chunk) (store.Reply, error) {
	totals := make([]store.Total, len(chunk.Costs))
	for i, c := range chunk.Costs {
		totals[i] = store.Total{Region: c.Add, Epoch: 1}
	}
	return store.Reply{Totals: totals, Now: time.Now()}, nil
}
