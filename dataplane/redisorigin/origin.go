package redisorigin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Options are all optional. All nodes of a region must use the same ones.
type Options struct {
	// Prefix begins all keys, "weir" unless set; it keeps fleets apart that share a
	// server. 1 to 64 printable ASCII characters, no braces.
	Prefix string

	// Grace is how long a key stays after its cell has expired, 30 s unless set: it
	// must exceed how far the nodes' clocks and the server's may be apart.
	Grace time.Duration

	// Logger is told of what should not be there; slog.Default unless set.
	Logger *slog.Logger
}

const (
	prefixDefault = "weir"
	graceDefault  = 30 * time.Second
)

// Origin is a store.Origin in Redis. It is safe for concurrent use; goroutines
// that it starts, for a call to several partitions, end with the call.
type Origin struct {
	*layout
	shards []*shard // by name
	seeds  []uint64 // of the names, see ShardOf
	owned  bool     // the clients are closed with the Origin
}

var _ store.Origin = (*Origin)(nil)

// layout is what is the same in all partitions: how cells are kept.
type layout struct {
	prefix string
	keys   keyspace
	grace  time.Duration
	logger *slog.Logger

	garbage     atomic.Int64 // values read that were no counts
	garbageOnce sync.Once    // the first of them is logged
}

func newLayout(o Options) (*layout, error) {
	keys, err := newKeyspace(o.Prefix)
	if err != nil {
		return nil, err
	}
	if o.Grace < 0 {
		return nil, fmt.Errorf("option Grace is %v, less than 0", o.Grace)
	}
	if o.Grace == 0 {
		o.Grace = graceDefault
	}
	return &layout{prefix: cmp.Or(o.Prefix, prefixDefault), keys: keys, grace: o.Grace, logger: o.logger()}, nil
}

func (o Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.Default()
	}
	return o.Logger
}

// New returns an Origin on a client that stays the caller's. It must be one that
// sends every command once and obeys ctx's deadline, as a client made of
// ClientOptions does; any other is an error.
func New(client redis.UniversalClient, o Options) (*Origin, error) {
	return NewPartitions([]Partition{{Client: client}}, o)
}

// Close closes the clients if Open or OpenPartitions made them.
func (o *Origin) Close() error {
	if !o.owned {
		return nil
	}
	var errs []error
	for _, s := range o.shards {
		errs = append(errs, s.client.Close())
	}
	return errors.Join(errs...)
}

// Key is the key of a cell, for who looks into the server.
func (o *Origin) Key(c window.Cell) string { return o.keys.key(c) }

// Cell is the cell of a key, or an error if the key is none of this Origin's.
func (o *Origin) Cell(key string) (window.Cell, error) { return o.keys.cell(key) }

// Read implements store.Origin. A value that is no count is read as 0, counted
// and, the first time, logged; Raise replaces it.
func (o *Origin) Read(ctx context.Context, cells []window.Cell) ([]int64, error) {
	var failures failures
	totals := inShards(o, cells, func(c *window.Cell) *window.Key { return &c.Key },
		func(s *shard, cells []window.Cell, totals []int64) { failures.add(s.read(ctx, cells, totals)) })
	if err := failures.join(); err != nil {
		return nil, err
	}
	return totals, nil
}

// Add implements store.Origin.
func (o *Origin) Add(ctx context.Context, adds []store.Add) []store.Added {
	return inShards(o, adds, func(a *store.Add) *window.Key { return &a.Cell.Key },
		func(s *shard, adds []store.Add, added []store.Added) { s.add(ctx, adds, added) })
}

// Claim implements store.Origin. Nothing can be claimed from a value that is no
// count.
func (o *Origin) Claim(ctx context.Context, claims []store.Claim) []store.Claimed {
	return inShards(o, claims, func(c *store.Claim) *window.Key { return &c.Cell.Key },
		func(s *shard, claims []store.Claim, claimed []store.Claimed) { s.claim(ctx, claims, claimed) })
}

// Raise implements store.Origin. It also replaces values that are no counts.
func (o *Origin) Raise(ctx context.Context, totals []store.Add) error {
	var failures failures
	inShards(o, totals, func(a *store.Add) *window.Key { return &a.Cell.Key },
		func(s *shard, totals []store.Add, _ []struct{}) { failures.add(s.raise(ctx, totals)) })
	return failures.join()
}

// expiresAtMs is when a cell's key is forgotten, in Unix milliseconds.
func (l *layout) expiresAtMs(c window.Cell, key string) int64 {
	return c.ExpiresAtMs() + (l.grace + jitter(key, c.Duration)).Milliseconds()
}
