package memstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/weirhq/weir/shared/window"
)

// Shards implements store.Origin.
func (o *Origin) Shards() int { return len(o.shardFaults) }

// ShardOf implements store.Origin.
func (o *Origin) ShardOf(key *window.Key) int { return shardOf(key, len(o.shardFaults)) }

func shardOf(key *window.Key, shards int) int {
	if shards == 1 {
		return 0
	}
	h := hashNames(key) ^ uint64(key.Duration)
	h *= 0x9e3779b97f4a7c15 // the jitter takes the same hash: its other bits choose
	return int((h >> 32) % uint64(shards))
}

// ShardFaults are what one shard does besides working, on top of Faults.
func (o *Origin) ShardFaults(shard int) *Faults { return &o.shardFaults[shard] }

// eachShard calls visit with the places of the cells of each shard that is
// concerned, at the same time where there are several, and with none of the first
// shard where there are no cells: that is a call too. It returns when all have.
func (o *Origin) eachShard(n int, key func(i int) *window.Key, visit func(shard int, places []int)) {
	places := make([][]int, len(o.shardFaults))
	for i := range n {
		shard := o.ShardOf(key(i))
		places[shard] = append(places[shard], i)
	}
	concerned := 0
	last := 0
	for shard := range places {
		if len(places[shard]) > 0 {
			concerned, last = concerned+1, shard
		}
	}
	if concerned <= 1 {
		visit(last, places[last])
		return
	}
	var visits sync.WaitGroup
	for shard := range places {
		if len(places[shard]) > 0 {
			visits.Go(func() { visit(shard, places[shard]) })
		}
	}
	visits.Wait()
}

// depart is Faults.depart for a call to a shard.
func (o *Origin) depart(ctx context.Context, op Op, shard int) (journey, error) {
	return departTo(ctx, &o.Faults, o.shardFaults, op, shard)
}

func departTo(ctx context.Context, all *Faults, shards []Faults, op Op, shard int) (journey, error) {
	j, err := all.depart(ctx, op)
	if err != nil {
		return journey{}, err
	}
	own, err := shards[shard].depart(ctx, op)
	if err != nil {
		return journey{}, fmt.Errorf("shard %d: %w", shard, err)
	}
	j.delay += own.delay
	j.loseReplies = j.loseReplies || own.loseReplies
	return j, nil
}
