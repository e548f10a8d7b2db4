package memstore

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/weirhq/weir/shared/window"
)

const (
	defaultGrace = 30 * time.Second
	sweepMin     = 1024
)

// jitter spreads the ends of keys whose cells end together over a tenth of their
// duration, at most a minute; a key's own is always the same.
func jitter(c window.Cell) time.Duration {
	return time.Duration(hashNames(&c.Key) % uint64(min(c.Duration/10, time.Minute)+1))
}

func shardOf(key *window.Key, shards int) int {
	if shards == 1 {
		return 0
	}
	h := hashNames(key) ^ uint64(key.Duration)
	h *= 0x9e3779b97f4a7c15 // the jitter takes the same hash: its other bits choose
	return int((h >> 32) % uint64(shards))
}

func hashNames(key *window.Key) uint64 {
	h := fnv.New64a()
	for _, name := range []string{key.Workspace, key.Namespace, key.Identifier} {
		_, _ = h.Write([]byte(name)) // a hash's Write cannot fail
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// departTo is Faults.depart for a call to a shard.
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
