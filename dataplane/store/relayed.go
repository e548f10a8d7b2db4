package store

import (
	"context"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Relayed is the part of an Origin that a relay uses to share the region's counts with other regions. For each shard
// a relay publishes Changes to the other regions, acknowledges them with Ack, and applies the other regions' accepted
// cost with Apply. After the origin has lost its data, the relay restores the stored counts with Raise, and marks the
// shard as Healed.
//
// Without it, the region counts by itself: each region allows the whole limit, and Total.Foreign stays 0.
//
// All methods must be safe to call concurrently, obey ctx's deadline and never retry. See package relay for its use
// of them, and RelayOrigin for the interface that it needs.
type Relayed interface {
	// Lease makes holder the shard's relay for ttl, or longer if it already is, unless another relay is. It never waits.
	// For counts a lease only saves load: two relays at once do no harm.
	Lease(ctx context.Context, shard int, holder string, ttl time.Duration) (Lease, error)

	// Release ends holder's lease, if it has it.
	Release(ctx context.Context, shard int, holder string) error

	// Changes returns cells with a Limit whose region total or Limit has changed since their last Ack: max of them, or
	// all if there are fewer, in any order. Cells stay until Ack removes them. If there are more than max, calls return
	// them in turn: a cell that stays comes again after all others, so no cell waits for longer than a turn.
	Changes(ctx context.Context, shard, max int) (Changes, error)

	// Ack removes cells from the changes, each if its region total and Limit are still the given values.
	Ack(ctx context.Context, shard int, cells []Change) error

	// Scan returns cells with a Limit, changed or not: about max at a time, from cursor 0 on until next is 0. A cell may
	// come twice; a cell that exists during the whole scan comes at least once. A page may be empty. After an error the
	// caller must start again with 0.
	Scan(ctx context.Context, shard int, cursor uint64, max int) (cells []Change, next uint64, err error)

	// Apply raises cells' foreign totals to at least the given totals, and announces the raised totals to listeners. It
	// returns the number of raised totals, and must keep no reference to totals.
	Apply(ctx context.Context, shard int, totals []Foreign) (raised int, err error)

	// Raise raises Known (see Cost) of cells to at least the given counts, in the epoch that Changes has returned;
	// ErrEpoch if a part of the shard has a later epoch. It does nothing in a part of the shard that is healed, because
	// the given counts may have been accepted since.
	Raise(ctx context.Context, shard int, epoch Epoch, totals []Change) error

	// Healed marks a shard whose counts the relay has raised to the stored counts: until its epoch changes,
	// Changes.Healed is true. Healed returns ErrEpoch if a part of the shard has a later epoch than the epoch that
	// Changes has returned: that part is not marked.
	Healed(ctx context.Context, shard int, epoch Epoch) error
}

// RelayOrigin is the part of a region's origin that a relay needs. If the origin is a Mailbox as well, the relay also
// carries settings and heartbeats.
type RelayOrigin interface {
	Origin
	Relayed
}

// HolderBytesMax is the length of the longest holder of a lease, in bytes; it has at least 1 byte.
const HolderBytesMax = 255

// Lease names the relay of a shard.
type Lease struct {
	Holder string        // "" if there is none
	Left   time.Duration // until it ends
}

// ChangesPage is how many changes or scanned keys an origin reads from a server at a time. A Changes with a larger
// max takes a round trip for each page, and keeps the server busy for a page at a time. A larger ChangesPage needs
// fewer round trips, but the server's other callers wait longer, some 5 ms for 1,000.
const ChangesPage = 1_000

// Changes is a batch of changed cells.
type Changes struct {
	Cells  []Change
	More   bool  // there are further cells
	Epoch  Epoch // of the shard: it changes whenever the epoch of a part changes
	Healed bool  // all parts of the shard are healed
	Now    time.Time
}

// Change is a cell in which the region's nodes have counted.
type Change struct {
	Cell  window.Cell
	Total int64 // the region's
	Limit int64 // the lowest limit that it was counted against
}
