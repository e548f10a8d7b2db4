package redisorigin

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/internal/anyshard"
	"github.com/weirhq/weir/dataplane/internal/resend"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Origin is a store.FullOrigin in Redis. It is safe for concurrent use and starts no goroutines.
//
// A cell is one hash, see scripts.go. In addition to its cells, a server has an epoch, drawn once; the set of changed
// cells, by expiry, so that the live cells bound the set even if no relay comes; for each stream the number of its last
// call, and which of its claims were added, for as long as its cells last (store.StreamKeptFor to StreamKeptMax); and
// the relay's lease. A stream has its own key rather than a field of a hash, because keys expire and fields do not.
//
// On a Cluster cells fall into 256 buckets ({origin0} to {origin255}), each with its own epoch, streams and changes. A
// chunk changes a bucket in one atomic step, and a slot that moves takes all of the bucket along. The clock of bucket
// 0's server is the Cluster's clock.
//
// A known limit: if a server is emptied, and then replaced by a replica from before that, restored cost counts twice.
type Origin struct {
	*layout
	shards []*shard // by name
	seeds  []uint64 // of the names, see ShardOf
	owned  bool     // the clients are closed with the Origin
	stamps resend.Stamps

	last     anyshard.Last // of Settings and Heartbeat
	settings settingsCopy
}

var _ store.FullOrigin = (*Origin)(nil)

// callKeysMax bounds the keys of a command, and with them how long a server can do nothing else: under 1 ms for chunks,
// half as long again for claims.
const callKeysMax = 500

// shard is a partition: the client of all its calls, and the state of its buckets.
type shard struct {
	*layout
	name    string // of the partition; "" for a single partition
	where   string // the name and the address, for errors
	client  redis.UniversalClient
	cluster bool // keys in the same command must share a slot

	origin  *Origin
	channel string
	buckets []*bucket
	byName  map[string]*bucket

	begin atomic.Int64 // the bucket that Changes begins with
	seen  seenEpochs
}

// bucket is a part of a shard that scripts handle as a whole: the whole shard, except on a Cluster.
type bucket struct {
	n                           int
	keys                        keyspace
	epochKey, changesKey        string
	clockKey                    string // the state of its server's clock: see luaClock
	healedKey, leaseKey         string
	leasedKey                   string // who has the lease, and until when
	settingsKey                 string // of the first bucket, as the next two
	heartbeatsKey, heartbeatKey string // when each node's heartbeat came; the heartbeats
	sinceKey                    string // when it was first seen in its epoch
	streamHead                  string
	heldHead                    string        // of reservations' data
	epoch                       atomic.Uint32 // the last that was answered, 0 if none
	first                       atomic.Uint32 // of all that were answered
	turn                        atomic.Pointer[changesTurn]
}

// clusterBuckets spreads a Cluster's cells over its nodes, evenly enough for some dozen of them. Each is a command
// of its own in calls and in each look for changes: more of them make chunks dearer, and relays.
const clusterBuckets = 256

func newShard(origin *Origin, p Partition, cluster bool) *shard {
	s := &shard{layout: origin.layout, name: p.Name, where: whereIs(p), client: p.Client, cluster: cluster,
		origin: origin, channel: origin.prefix + ":{origin}:foreign", byName: make(map[string]*bucket)}
	if !cluster {
		s.addBucket("origin")
	}
	for n := 0; cluster && n < clusterBuckets; n++ {
		s.addBucket("origin" + strconv.Itoa(n))
	}
	return s
}

// failed returns an error with the operation, the number of cells and the server.
func (s *shard) failed(what string, cells int, err error) error {
	return fmt.Errorf("redisorigin: %s %d cells at %s: %w", what, cells, s.where, err)
}

func (s *shard) addBucket(name string) {
	b := newBucket(s.prefix+":{"+name+"}", len(s.buckets))
	s.buckets = append(s.buckets, b)
	s.byName[name] = b
}

func newBucket(prefix string, n int) *bucket {
	b := &bucket{
		n:          n,
		keys:       newKeyspace(prefix),
		epochKey:   prefix + ":epoch",
		changesKey: prefix + ":changes",
		healedKey:  prefix + ":healed",
		leaseKey:   prefix + ":lease",
		leasedKey:  prefix + ":leased",
		clockKey:   prefix + ":clock",

		settingsKey:   prefix + ":settings",
		heartbeatsKey: prefix + ":heartbeats",
		heartbeatKey:  prefix + ":heartbeat",
		sinceKey:      prefix + ":since",

		streamHead: prefix + ":stream:",
		heldHead:   prefix + ":",
	}
	b.turn.Store(&changesTurn{})
	return b
}

// streamKey returns the key with the number of a stream's last chunk.
func (b *bucket) streamKey(stream uint64) string {
	return b.streamHead + strconv.FormatUint(stream, 16)
}

// Close closes the clients if Open made them.
func (h *Origin) Close() error {
	if !h.owned {
		return nil
	}
	var errs []error
	for _, s := range h.shards {
		errs = append(errs, s.client.Close())
	}
	return errors.Join(errs...)
}

// Key returns the key of a cell, to look it up in the server. For example, redis-cli HGETALL prints its counts.
func (h *Origin) Key(c window.Cell) string {
	return h.shards[h.ShardOf(&c.Key)].bucketOf(&c.Key).keys.key(c)
}

// bucketOf returns the bucket that has all cells of a key.
func (s *shard) bucketOf(key *window.Key) *bucket {
	if len(s.buckets) == 1 {
		return s.buckets[0]
	}
	var buffer [512]byte // longer identities are allocated
	h := mix(xxhash.Sum64(appendIdentity(buffer[:0], key)))
	return s.buckets[h%uint64(len(s.buckets))]
}

// shard returns a shard, if cells, named by key, are in it.
func (h *Origin) shard(shard, cells int, key func(i int) *window.Key) (*shard, error) {
	if shard < 0 || shard >= len(h.shards) {
		return nil, fmt.Errorf("redisorigin: shard is %d (0 to %d)", shard, len(h.shards)-1)
	}
	for i := 0; i < cells && len(h.shards) > 1; i++ {
		if n := h.ShardOf(key(i)); n != shard {
			return nil, fmt.Errorf("redisorigin: %v is in shard %d, not in %d", *key(i), n, shard)
		}
	}
	return h.shards[shard], nil
}

// newEpoch draws a token for a bucket that has none. No other bucket of the shard ever has the same token: if a bucket
// loses its counts, the others go on.
func (s *shard) newEpoch(b *bucket) string {
	var random [4]byte
	for {
		_, _ = rand.Read(random[:]) // never fails
		n, r := uint64(len(s.buckets)), uint64(binary.BigEndian.Uint32(random[:]))
		if epoch := r - r%n + uint64(b.n); epoch != 0 && epoch <= math.MaxUint32 {
			return formatEpoch(store.Epoch(epoch))
		}
	}
}

func formatEpoch(e store.Epoch) string { return strconv.FormatUint(uint64(e), 10) }

// bounded limits a number to what a script can hold, because Lua holds no larger integers exactly.
func bounded(n int64) int64 { return min(n, store.CountMax) }
