package network

import (
	"context"
	"slices"

	"github.com/weirhq/weir/dataplane/store"
)

// Counts is the durable counter as a relay calls it.
type Counts struct {
	store.CountStore
	*Statements
}

// Publish implements store.CountStore.
func (c Counts) Publish(ctx context.Context, region string, counts []store.Count) error {
	counts = slices.Clone(counts)
	return c.call(ctx, "publish", func(ctx context.Context) error { return c.CountStore.Publish(ctx, region, counts) })
}

// Import implements store.CountStore.
func (c Counts) Import(ctx context.Context, nowMs int64, yield func(string, store.Count)) error {
	type component struct {
		region string
		store.Count
	}
	read, err := query(ctx, c.Statements, "import", func(ctx context.Context) (found []component, err error) {
		err = c.CountStore.Import(ctx, nowMs, func(region string, n store.Count) {
			found = append(found, component{region, n})
		})
		for i := range found {
			c.Meters.BytesRead.Add(int64(len(found[i].Cell.Identifier)) + store.FeedRowBytes)
		}
		return found, err
	})
	for _, in := range read {
		yield(in.region, in.Count)
	}
	return err
}
