package memstore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Cluster is an origin of one shard whose keys fall into buckets, as in a Redis Cluster: each bucket is a shard of its
// Origin, with its own epoch and streams. A bucket can lose its counts alone: call WipeShard or RollbackShard with the
// number of the bucket. The Faults of the Origin also apply to the Cluster. Use a Cluster to test, for example, that a
// node restores only the bucket that was lost.
type Cluster struct {
	*Origin

	mu   sync.Mutex
	seen clusterEpochs
}

var _ store.FullOrigin = (*Cluster)(nil)

// clusterEpochs is the last report of Changes: an epoch for all buckets, and each bucket's epoch.
type clusterEpochs struct {
	all     store.Epoch
	buckets []store.Epoch
}

// NewCluster returns an empty Cluster. Shards of the options is its number of buckets.
func NewCluster(o OriginOptions) *Cluster { return clusterOf(NewOrigin(o)) }

func clusterOf(o *Origin) *Cluster {
	o.keyless = 1
	return &Cluster{Origin: o}
}

// Client returns another way to the same counts, as another process would have.
func (c *Cluster) Client() *Cluster { return clusterOf(c.Origin.Client()) }

// Shards implements store.Origin.
func (*Cluster) Shards() int { return 1 }

// ShardOf implements store.Origin.
func (*Cluster) ShardOf(*window.Key) int { return 0 }

// split lists the places of a call's cells by bucket.
func (c *Cluster) split(n int, key func(i int) *window.Key) [][]int {
	places := make([][]int, c.Origin.Shards())
	for i := range n {
		bucket := c.Origin.ShardOf(key(i))
		places[bucket] = append(places[bucket], i)
	}
	return places
}

// at returns the items at some places.
func at[T any](items []T, places []int) []T {
	picked := make([]T, len(places))
	for i, place := range places {
		picked[i] = items[place]
	}
	return picked
}

// fill writes items to their places.
func fill[T any](into []T, places []int, items []T) {
	for i, place := range places {
		into[place] = items[i]
	}
}

// Read implements store.Origin.
func (c *Cluster) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	reply := store.Reply{Totals: make([]store.Total, len(cells))}
	for _, places := range c.split(len(cells), func(i int) *window.Key { return &cells[i].Key }) {
		part, err := c.Origin.Read(ctx, at(cells, places)) // no cells are no call
		if err != nil {
			return store.Reply{}, err
		}
		fill(reply.Totals, places, part.Totals)
		if len(places) > 0 {
			reply.Now = part.Now
		}
	}
	return reply, nil
}

// Send implements store.Origin. Each bucket gets its part of the chunk, and buckets without a part compare the marks of
// their epochs. If the chunk has neither, the first bucket reports its clock. If the chunk fails, some buckets may have
// applied their parts. In a chunk with bounded costs each bucket fails by itself.
func (c *Cluster) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	if err := c.inShard(chunk.Shard); err != nil {
		return store.Reply{}, opError(OpSend, err)
	}
	reply := store.Reply{Totals: make([]store.Total, len(chunk.Costs))}
	bounded := chunk.Bounded()
	var errs []error
	for bucket, places := range c.split(len(chunk.Costs), func(i int) *window.Key { return &chunk.Costs[i].Cell.Key }) {
		asked := slices.IndexFunc(chunk.After, func(m store.Mark) bool { return m.Ask && m.Epoch == c.knownEpoch(bucket) })
		if len(places) == 0 && asked < 0 && (bucket > 0 || len(chunk.Costs) > 0) {
			continue // a number without a mark would hide that the bucket has lost earlier chunks
		}
		of := chunk
		of.Shard, of.Costs = bucket, at(chunk.Costs, places)
		part, err := c.Origin.Send(ctx, of)
		switch {
		case err == nil:
			fill(reply.Totals, places, part.Totals)
			reply.Now, reply.Behind = part.Now, append(reply.Behind, part.Behind...)
		case bounded:
			fill(reply.Totals, places, slices.Repeat([]store.Total{{Err: err}}, len(places)))
			if asked >= 0 {
				reply.Unanswered = append(reply.Unanswered, chunk.After[asked].Epoch)
			}
		default:
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return store.Reply{}, err
	}
	return reply, nil
}

// Listen implements store.Origin. It ends with the first bucket's connection that is lost.
func (c *Cluster) Listen(ctx context.Context, shard int, apply func([]store.Foreign)) error {
	if err := c.inShard(shard); err != nil {
		return opError(OpListen, err)
	}
	connected, cut := context.WithCancel(ctx)
	defer cut()
	var mu sync.Mutex
	var connections sync.WaitGroup
	errs := make([]error, c.Origin.Shards())
	for bucket := range errs {
		connections.Go(func() {
			defer cut()
			errs[bucket] = c.Origin.Listen(connected, bucket, func(totals []store.Foreign) {
				mu.Lock()
				defer mu.Unlock()
				apply(totals)
			})
		})
	}
	connections.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 && ctx.Err() == nil {
		return errs[i]
	}
	return nil
}
