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

// Config is what one node is; what a fleet must agree on is tuning, and comes from
// Settings. The zero value is a good single-process limiter.
type Config struct {
	// Region is the name under which this node's counts are told: see store.CheckRegion. Required when Origin or
	// Settings is set.
	Region string

	// NodeID names this node among all others in its heartbeats, at most 64 bytes; "" draws a name.
	NodeID string

	// Build is reported in heartbeats, at most 64 bytes.
	Build string

	// Origin is where the nodes of the region meet; nil for a node alone. If it is not a
	// store.Granter, reservations by ID, concurrency limits and leases by ID are this process's
	// alone, as without an Origin.
	Origin store.Origin

	// Settings is where tuning, namespaces and overrides come from, and where heartbeats go. If it is
	// nil and Origin is a store.Mailbox, Origin is used, whose relay carries both from and to the
	// fleet's store. Otherwise there are none.
	Settings store.Settings

	// EntriesMax bounds the keys held in memory; 0 means 300,000. They use about EntriesMax * (200
	// B + the bytes of an identifier). When the table is full, it evicts idle keys that are far
	// from their limits. If there are still more keys than room, decisions about the rest are less
	// precise and take longer: see TableFull.
	EntriesMax int

	// NewKeysMax bounds how many new keys per second the nodes of a region create at Origin for one
	// namespace, for windows of 10 minutes or longer, with a burst of 30 seconds' worth. 0 means
	// 2,000; the maximum is 1,000,000. The bound is higher for shorter windows, for example ten
	// times as high for a window of one minute. A key beyond the bound is counted by its node
	// alone, under its namespace's outage policy, until it is used again while there is room. With
	// a higher value, a flood of random identifiers fills Origin's memory sooner.
	NewKeysMax int

	// ReadTimeout bounds how long a decision may wait for the origin; 0 is 50 ms,
	// at most 10 s. A caller's own deadline counts too.
	ReadTimeout time.Duration

	// Breaker says when a shard of Origin that fails is left alone, and for how long.
	Breaker Breaker

	// RegionNodes is how many nodes share Origin, 1 to 10,000; 0 goes by the
	// heartbeats in Settings, and is 1 without them. More make each node's share of what
	// is left of a limit smaller, and let it send sooner. 1 also tells that no other node
	// has to be asked about a large cost; with 0 one other is supposed for that.
	RegionNodes int

	// ClockSkewMax is how far AllowAt's time may lie from Clock's before it is an
	// error; 0 is one minute.
	ClockSkewMax time.Duration

	// Clock tells the time; nil is time.Now. Cells are numbered by it, or with an Origin by that one's clock, which it
	// carries on between answers; so it must be a wall clock's. How long something lasts is measured by the
	// monotonic reading of its times, or, without one, by what it moves forwards.
	Clock func() time.Time

	// TraceBackground, if not nil, is called when a turn of background work begins that has something
	// to do: "replay", "sync", "settings". What it
	// returns is the turn's context, and is called with what became of it. For traces; no
	// request ever meets it.
	TraceBackground func(ctx context.Context, name string) (within context.Context, end func(error))

	// Logger takes one line for each change of health, none for requests; nil is
	// silent.
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

// withDefaults is c with what is left out filled in. Its error names the first field out of bounds.
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

// drawnID tells a node apart that has no name.
func drawnID() string { return strconv.FormatUint(rand.Uint64(), 36) }

// checkNames finds names that are missing, or that the columns for them do not take.
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

// checkBounds finds numbers out of bounds; 0 is a default everywhere.
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
