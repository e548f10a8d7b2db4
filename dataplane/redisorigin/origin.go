package redisorigin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// Options are all optional. All nodes of a region must use the same ones.
type Options struct {
	// Prefix begins all keys, "weir" unless set; it keeps fleets apart that share a
	// server. 1 to 64 printable ASCII characters, no braces.
	Prefix string

	// Mode is the next part of all keys, "exact" unless set: namespaces of different
	// modes never share cells. As Prefix, and no colons.
	Mode string

	// Grace is how long a key stays after its cell has expired, 30 s unless set: it
	// must exceed how far the nodes' clocks and the server's may be apart.
	Grace time.Duration

	// Logger is told of what should not be there; slog.Default unless set.
	Logger *slog.Logger
}

const graceDefault = 30 * time.Second

// Origin is a dataplane.Origin in Redis. It is safe for concurrent use and starts no
// goroutine of its own.
type Origin struct {
	client  redis.UniversalClient
	keys    keyspace
	grace   time.Duration
	cluster bool // keys of one command must share a slot
	owned   bool // the client is closed with the Origin
	logger  *slog.Logger

	garbage     atomic.Int64 // values read that were no counts
	garbageOnce sync.Once    // the first of them is logged
}

var _ dataplane.Origin = (*Origin)(nil)

// New returns an Origin on a client that stays the caller's. It must be one that
// sends every command once and obeys ctx's deadline, as a client made of
// ClientOptions does; any other is an error.
func New(client redis.UniversalClient, o Options) (*Origin, error) {
	cluster, err := suitable(client)
	if err != nil {
		return nil, fmt.Errorf("redisorigin: %w", err)
	}
	keys, err := newKeyspace(o.Prefix, o.Mode)
	if err != nil {
		return nil, fmt.Errorf("redisorigin: %w", err)
	}
	if o.Grace < 0 {
		return nil, fmt.Errorf("redisorigin: Grace is %v, less than 0", o.Grace)
	}
	if o.Grace == 0 {
		o.Grace = graceDefault
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Origin{client: client, keys: keys, grace: o.Grace, cluster: cluster, logger: o.Logger}, nil
}

// Close closes the client if Open made it.
func (o *Origin) Close() error {
	if !o.owned {
		return nil
	}
	return o.client.Close()
}

// Key is the key of a cell, for who looks into the server.
func (o *Origin) Key(c window.Cell) string { return o.keys.key(c) }

// Cell is the cell of a key, or an error if the key is none of this Origin's.
func (o *Origin) Cell(key string) (window.Cell, error) { return o.keys.cell(key) }

// Read implements dataplane.Origin. A value that is no count is read as 0, counted
// and, the first time, logged; Raise replaces it.
func (o *Origin) Read(ctx context.Context, cells []window.Cell) ([]int64, error) {
	totals := make([]int64, len(cells))
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("redisorigin: read %d cells: %w", len(cells), err)
	}
	keys := make([]string, len(cells))
	for i, c := range cells {
		keys[i] = o.keys.key(c)
	}
	values, err := o.get(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("redisorigin: read %d cells: %w", len(cells), err)
	}
	for i, v := range values {
		if v != nil {
			totals[i] = o.count(keys[i], v)
		}
	}
	return totals, nil
}

// Add implements dataplane.Origin.
func (o *Origin) Add(ctx context.Context, adds []dataplane.Add) []dataplane.Added {
	added := make([]dataplane.Added, len(adds))
	if err := ctx.Err(); err != nil {
		err = fmt.Errorf("redisorigin: add to %d cells: %w", len(adds), err)
		for i := range added {
			added[i].Err = err
		}
		return added
	}
	valid, places := positive(adds, added)
	for _, call := range o.eval(ctx, addScript, valid) {
		call.added(func(i int, a dataplane.Added) { added[places[i]] = a })
	}
	return added
}

// positive is the adds that may be sent, and where they were; the others get their
// error here.
func positive(adds []dataplane.Add, added []dataplane.Added) (valid []dataplane.Add, places []int) {
	valid, places = make([]dataplane.Add, 0, len(adds)), make([]int, 0, len(adds))
	for i, a := range adds {
		if a.Cost <= 0 {
			added[i].Err = fmt.Errorf("redisorigin: add to %v: cost is %d, want > 0", a.Cell, a.Cost)
			continue
		}
		valid, places = append(valid, a), append(places, i)
	}
	return valid, places
}

// Raise implements dataplane.Origin. It also replaces values that are no counts.
func (o *Origin) Raise(ctx context.Context, totals []dataplane.Add) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("redisorigin: raise %d cells: %w", len(totals), err)
	}
	var errs []error
	for _, call := range o.eval(ctx, raiseScript, totals) {
		if call.err != nil {
			errs = append(errs, fmt.Errorf("redisorigin: raise %d cells: %w", call.to-call.from, call.err))
		}
	}
	return errors.Join(errs...)
}

// expiresAtMs is when a cell's key is forgotten, in Unix milliseconds.
func (o *Origin) expiresAtMs(c window.Cell, key string) int64 {
	return c.ExpiresAtMs() + (o.grace + jitter(key, c.Duration)).Milliseconds()
}
