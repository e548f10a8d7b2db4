package redisorigin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/shared/redisclient"
	"github.com/weirhq/weir/shared/window"
)

// Partition is one of several independent servers (or Clusters), each of which holds
// a fixed part of the keys.
type Partition struct {
	// Name chooses the partition's keys, and must stay what it is when the server
	// moves. 1 to 64 letters, digits, '.', '_' and '-'; it may be empty where there
	// is only one partition.
	Name string

	// Client is as New wants it, and stays the caller's.
	Client redis.UniversalClient

	where string // its addresses, for errors; "" asks the client
}

// New returns an Origin on clients that stay the caller's: one server, or several that do not know of each other,
// one shard each. Clients must send every command once and obey ctx's deadline, as those made of ClientOptions do;
// any other is an error. A key's partition follows from its names and the partitions' by
// rendezvous hashing: their order, addresses and health play no part in it. So a
// server that is down concerns its own keys only, and where one partition is added to
// n, about 1/(n+1) of the keys move to it and none between the others. All nodes of
// a region must name the same partitions.
func New(partitions []Partition, o Options) (*Origin, error) {
	layout, err := newLayout(o)
	if err != nil {
		return nil, fmt.Errorf("redisorigin: %w", err)
	}
	if err := redisclient.CheckNames(partitions, func(p Partition) string { return p.Name }); err != nil {
		return nil, fmt.Errorf("redisorigin: %w", err)
	}
	origin := &Origin{layout: layout}
	for _, p := range partitions {
		cluster, err := suitable(p.Client)
		if err != nil {
			return nil, fmt.Errorf("redisorigin: %w", redisclient.WrapName(p.Name, err))
		}
		origin.shards = append(origin.shards, newShard(origin, p, cluster))
	}
	slices.SortFunc(origin.shards, func(a, b *shard) int { return cmp.Compare(a.name, b.name) })
	for _, s := range origin.shards {
		origin.seeds = append(origin.seeds, xxhash.Sum64String(s.name))
	}
	return origin, nil
}

// Shards implements store.Origin: the number of partitions.
func (h *Origin) Shards() int { return len(h.shards) }

// ShardOf implements store.Origin: the partition whose name, mixed with the key's
// names, hashes highest. Partitions are numbered in the order of their names.
func (h *Origin) ShardOf(key *window.Key) int {
	if len(h.seeds) == 1 {
		return 0
	}
	var buffer [512]byte // longer identities are allocated
	hash := xxhash.Sum64(appendIdentity(buffer[:0], key))
	best, highest := 0, uint64(0)
	for i, seed := range h.seeds {
		if score := mix(hash ^ seed); score > highest {
			best, highest = i, score
		}
	}
	return best
}

// mix is the finalizer of SplitMix64: each bit of x changes half of the result's.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// PartitionName is the name of a shard's partition, for who looks for a key.
func (h *Origin) PartitionName(shard int) string { return h.shards[shard].name }

// whereIs is how errors call a partition: by its name and where it is looked for.
func whereIs(p Partition) string {
	addresses := p.where
	if addresses == "" {
		switch c := p.Client.(type) {
		case *redis.Client:
			addresses = c.Options().Addr
		case *redis.ClusterClient:
			addresses = strings.Join(c.Options().Addrs, ",")
		}
	}
	if p.Name == "" {
		return addresses
	}
	return p.Name + " (" + addresses + ")"
}
