package store

import (
	"context"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Relayed is the part of an Origin that a relay uses to share the region's counts with other regions. For each shard a
// relay takes Changes to the other regions, acknowledges them with Ack, and applies with Apply what the other regions
// have accepted. After the origin has lost its data, the relay restores with Raise what was stored, and marks the shard
// as Healed.
//
// Without it, the region counts by itself: each region allows the whole limit, and Total.Foreign stays 0.
//
// All methods may be called concurrently, must obey ctx's deadline and must not retry. See package relay for what a
// relay does with them, and RelayOrigin for what it takes.
type Relayed interface {
	// Lease makes holder the shard's relay for ttl, or longer if it is already, unless another one
	// is. It never waits. For counts a lease only spares load: two relays at once do no harm.
	Lease(ctx context.Context, shard int, holder string, ttl time.Duration) (Lease, error)

	// Release ends holder's lease, if it has it.
	Release(ctx context.Context, shard int, holder string) error

	// Changes returns cells with a Limit whose region total or Limit has changed since Ack last
	// took them off: max of them, or all if there are fewer, in any order. Without Ack they stay. Where there are more,
	// calls take them in turn: one that stays comes again after all others, so none waits for longer than a turn.
	Changes(ctx context.Context, shard, max int) (Changes, error)

	// Ack takes cells off the changes, each if its region total and Limit are still the given ones.
	Ack(ctx context.Context, shard int, cells []Change) error

	// Scan returns cells with a Limit, changed or not: about max at a time, from cursor 0 on until
	// next is 0. A cell may come twice; one that is there all the time comes at least once. A page
	// may be empty. After an error begin again with 0.
	Scan(ctx context.Context, shard int, cursor uint64, max int) (cells []Change, next uint64, err error)

	// Apply lifts cells' foreign totals to at least the given ones, and announces those that it has
	// raised to listeners. It returns how many it has raised, and keeps no reference to totals.
	Apply(ctx context.Context, shard int, totals []Foreign) (raised int, err error)

	// Raise lifts Known (see Cost) of cells to at least the given counts, in the epoch that Changes
	// has reported; ErrEpoch if a part of the shard has a later one. It does nothing in a part of the
	// shard that is healed: there the given counts may have been accepted since.
	Raise(ctx context.Context, shard int, epoch Epoch, totals []Change) error

	// Healed marks a shard as one that the relay has raised to what is stored: until its epoch
	// changes, Changes.Healed is true. ErrEpoch if a part of the shard has a later epoch than the one that
	// Changes has reported: that part is not marked.
	Healed(ctx context.Context, shard int, epoch Epoch) error
}

// RelayOrigin is what a relay needs of its region's origin. If the origin is a Mailbox as well, the relay also carries
// settings and heartbeats.
type RelayOrigin interface {
	Origin
	Relayed
}

// HolderBytesMax is how long a lease's holder may be; it has at least 1 byte.
const HolderBytesMax = 255

// Lease is who relays a shard.
type Lease struct {
	Holder string        // "" if none
	Left   time.Duration // until it ends
}

// ChangesPage is how many changes or scanned keys an origin reads from a server at a time: a Changes with a larger max
// takes a round trip for each page, and keeps the server busy for one page at a time. Larger: fewer round trips, and
// the server's other callers wait longer, some 5 ms for 1,000.
const ChangesPage = 1_000

// Changes is a batch of them.
type Changes struct {
	Cells  []Change
	More   bool  // there are others
	Epoch  Epoch // of the shard: another one whenever a part of it has another one
	Healed bool  // all parts of the shard are
	Now    time.Time
}

// Change is a cell that the region's nodes have counted in.
type Change struct {
	Cell  window.Cell
	Total int64 // the region's
	Limit int64 // the lowest that it was counted against
}
