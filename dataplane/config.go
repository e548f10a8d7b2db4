package dataplane

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/store"
)

// Config configures one node. Tuning, which all nodes of a fleet must share, comes from Settings. The zero value is a
// good single-process limiter.
type Config struct {
	// Region is the name under which this node's counts are published, 1 to 48 bytes, for example "eu-west-1": see
	// store.CheckRegion. It is required if Origin or Settings is set.
	Region string

	// NodeID names this node in its heartbeats, unique among all nodes, at most 64 bytes, for example the name of the pod;
	// "" draws a random name.
	NodeID string

	// Build is reported in heartbeats, at most 64 bytes. For example, set the version of your service, so that operators
	// see which nodes an upgrade has reached.
	Build string

	// Origin is the store through which the nodes of the region share counts. Leave it nil for a single node. For
	// several nodes, set it to the result of redisorigin.Open, for example. If it is not a store.Granter, reservations
	// by ID, concurrency limits and leases by ID are local to this process, as without an Origin.
	Origin store.Origin

	// Settings is the source of tuning, namespaces and overrides, and the destination of heartbeats. If it is nil and
	// Origin is a store.Mailbox, the limiter uses Origin, and the relay carries settings and heartbeats between Origin
	// and the fleet's store. Otherwise the limiter has no settings. Package settingsfile has sources for programs without
	// MySQL: a file, and a Go value.
	Settings store.Settings

	// EntriesMax bounds the keys held in memory; 0 means 300,000. They use about EntriesMax * (200 B + the bytes of an
	// identifier): for example, 1,000,000 keys with identifiers of 30 B use about 230 MB. When the table is full, it
	// evicts idle keys that are far from their limits. If there are still more keys than room, decisions about the other
	// keys are less precise and take longer: see TableFull.
	EntriesMax int

	// NewKeysMax bounds how many new keys per second the nodes of a region create at Origin for one
	// namespace, for windows of 10 minutes or longer, with a burst of 30 seconds' worth. 0 means
	// 2,000; the maximum is 1,000,000. The bound is higher for shorter windows, for example ten
	// times as high for a window of one minute. A key beyond the bound is counted by its node
	// alone, under its namespace's outage policy, until it is used again while there is room. With
	// a higher value, a flood of random identifiers fills Origin's memory sooner.
	NewKeysMax int

	// ReadTimeout bounds how long a decision may wait for the origin; 0 means 50 ms, at most 10 s. A caller's own deadline
	// applies too. With a lower value, callers wait less while the origin is slow, but more decisions are made without its
	// answer.
	ReadTimeout time.Duration

	// Breaker configures when the limiter stops calling a failing shard of Origin, and for how long. The defaults suit a
	// Redis in the same region.
	Breaker Breaker

	// RegionNodes is the number of nodes that share Origin, 1 to 10,000. 0 uses the heartbeats in Settings, or means 1
	// without Settings. With more nodes, each node may use a smaller share of the remaining limit on its own, and sends
	// its counts sooner. With 1, a large cost never needs a read, because there is no other node. For example, set 1 for a
	// single node with a Redis, and 0 if the number of nodes changes. With 0, the limiter assumes at least one other node
	// for large costs.
	RegionNodes int

	// ClockSkewMax is the largest difference between AllowAt's time and Clock's. A larger difference is an error; 0
	// means one minute.
	ClockSkewMax time.Duration

	// Clock returns the time; nil means time.Now. It must be a wall clock, because cells are numbered by its time. With
	// an Origin, cells are numbered by the Origin's clock, and Clock continues it between replies. Durations use the
	// monotonic reading of Clock's times, or, without such a reading, its forward steps.
	Clock func() time.Time

	// TraceBackground, if not nil, is called at the start of each round of background work that is not empty. Its name
	// is "replay", "sync" or "settings". It returns the round's context and a function that receives the round's error.
	// Use it for traces. Requests never call it.
	TraceBackground func(ctx context.Context, name string) (within context.Context, end func(error))

	// Logger receives a line for each change of health, and none for requests; nil logs nothing.
	Logger *slog.Logger
}

const (
	entriesMaxDefault   = 300_000
	newKeysMaxDefault   = 2_000
	newKeysMaxMax       = 1_000_000
	readTimeoutDefault  = 50 * time.Millisecond
	readTimeoutMax      = 10 * time.Second
	clockSkewMaxDefault = time.Minute

	nodeIDBytesMax = 64 // column node_id
	buildBytesMax  = 64 // column build
)

// withDefaults returns c with defaults for the fields left out, or an error that names the first field out of bounds.
func (c Config) withDefaults() (Config, error) {
	if err := c.checkNames(); err != nil {
		return c, err
	}
	if err := c.checkBounds(); err != nil {
		return c, err
	}
	calls, err := breaker.Config(c.Breaker).WithDefaults()
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	c.Breaker = Breaker(calls)
	if mailbox, ok := c.Origin.(store.Mailbox); ok && c.Settings == nil {
		c.Settings = mailbox
	}
	c.NodeID = cmp.Or(c.NodeID, drawnID())
	c.EntriesMax = cmp.Or(c.EntriesMax, entriesMaxDefault)
	c.NewKeysMax = cmp.Or(c.NewKeysMax, newKeysMaxDefault)
	c.ReadTimeout = cmp.Or(c.ReadTimeout, readTimeoutDefault)
	c.ClockSkewMax = cmp.Or(c.ClockSkewMax, clockSkewMaxDefault)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.TraceBackground == nil {
		c.TraceBackground = func(ctx context.Context, _ string) (context.Context, func(error)) { return ctx, func(error) {} }
	}
	return c, nil
}

// drawnID returns a random name for a node without a NodeID.
func drawnID() string { return strconv.FormatUint(rand.Uint64(), 36) }

// checkNames returns an error if a name is missing, or is not valid for its column.
func (c *Config) checkNames() error {
	if (c.Origin != nil || c.Settings != nil) && c.Region == "" {
		return ErrRegionRequired
	}
	for _, f := range []struct {
		name, value string
		bytesMax    int
	}{
		{"NodeID", c.NodeID, nodeIDBytesMax}, {"Build", c.Build, buildBytesMax},
	} {
		if len(f.value) > f.bytesMax {
			return fmt.Errorf("%w: Config.%s is %d bytes long (at most %d)", ErrInvalid, f.name, len(f.value), f.bytesMax)
		}
		if !utf8.ValidString(f.value) || strings.ContainsFunc(f.value, unicode.IsControl) {
			return fmt.Errorf("%w: Config.%s is %q (UTF-8 without control characters)", ErrInvalid, f.name, f.value)
		}
	}
	if err := store.CheckRegion(c.Region); c.Region != "" && err != nil {
		return fmt.Errorf("%w: Config.Region: %w", ErrInvalid, err)
	}
	return nil
}

// checkBounds returns an error if a number is out of bounds; 0 is a default everywhere.
func (c *Config) checkBounds() error {
	problem := func(format string, args ...any) error {
		return fmt.Errorf("%w: Config."+format, append([]any{ErrInvalid}, args...)...)
	}
	switch {
	case c.EntriesMax < 0:
		return problem("EntriesMax is %d (1 or more, 0 for %d)", c.EntriesMax, entriesMaxDefault)
	case c.NewKeysMax < 0 || c.NewKeysMax > newKeysMaxMax:
		return problem("NewKeysMax is %d (1 to %d, 0 for %d)", c.NewKeysMax, newKeysMaxMax, newKeysMaxDefault)
	case c.ReadTimeout < 0 || c.ReadTimeout > readTimeoutMax:
		return problem("ReadTimeout is %v (0 for %v, at most %v)", c.ReadTimeout, readTimeoutDefault, readTimeoutMax)
	case c.ClockSkewMax < 0:
		return problem("ClockSkewMax is %v (0 for %v, or more)", c.ClockSkewMax, clockSkewMaxDefault)
	case c.RegionNodes < 0 || c.RegionNodes > rules.NodesMax:
		return problem("RegionNodes is %d (1 to %d, 0 for as many as send heartbeats)", c.RegionNodes, rules.NodesMax)
	case c.Origin != nil && c.Origin.Shards() < 1:
		return problem("Origin has %d shards (1 or more)", c.Origin.Shards())
	}
	return nil
}
