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

// Partition is one of several independent servers (or Clusters), each of which holds a fixed part of the keys. Use
// partitions if one server is too small and a Cluster is not wanted, for example "a" at 10.0.0.1 and "b" at 10.0.0.2.
type Partition struct {
	// Name determines the partition's keys, and must stay the same when the server moves. 1 to 64 letters, digits, '.',
	// '_' and '-'; it can be empty if there is only one partition.
	Name string

	// Client must meet the requirements of New. The caller owns it and must close it.
	Client redis.UniversalClient

	where string // its addresses, for errors; "" reads them from the client
}

// New returns an Origin on clients that the caller owns: one server, or several independent servers, each a shard.
// Clients must send every command once and obey ctx's deadline, as clients made of ClientOptions do; New returns an
// error for any other. A key's partition follows from its names and the partitions' names by rendezvous hashing: order,
// addresses and health of partitions play no part. So a server that is down affects its own keys only. If a partition
// is added to n, about 1/(n+1) of the keys move to it and none between the others. For example, a fourth partition
// takes about a quarter of the keys. All nodes of a region must name the same partitions.
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

// mix applies the finalizer of SplitMix64: each bit of x changes half of the result's.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// PartitionName returns the name of a shard's partition, so that an operator can find a key's server.
func (h *Origin) PartitionName(shard int) string { return h.shards[shard].name }

// whereIs returns a partition's name and addresses, for errors.
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
