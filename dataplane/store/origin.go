package store

import (
	"context"
	"errors"

	"github.com/weirhq/weir/shared/window"
)

// Origin is where the nodes of one region meet: an integer for each cell, which
// only grows, and forgets itself some time after its cell has expired.
//
// An origin has one or more shards, which work and fail apart from each other: one
// that is down or slow concerns its own keys only, and they are never answered by
// another. The limiter keeps a queue, a worker and a breaker for each shard, and one
// call names cells of one shard. A call that mixes them is answered all the same, as
// if each shard had been called by itself and at the same time.
//
// All methods may run concurrently, obey ctx's deadline, and keep no reference to
// their arguments.
type Origin interface {
	// Shards is how many there are, >= 1, the same for the Origin's life. A Redis
	// Cluster is one: it is reached, and moves its keys, as a whole.
	Shards() int

	// ShardOf is the shard that holds all cells of key: 0 <= n < Shards(), always
	// the same, and the same on every node of the region.
	ShardOf(key *window.Key) int

	// Read returns the totals of cells, in their order; a cell that nobody has
	// added to is 0. All cells are read in one round trip (one a shard where there
	// are several), and it answers for all of them or fails as a whole.
	Read(ctx context.Context, cells []window.Cell) ([]int64, error)

	// Add adds each cost to its cell and returns each cell's new total, in order.
	// The expiry is set in the same atomic step as the increment. One increment may
	// fail where others succeed, so each has its own error: nil, one that wraps
	// ErrMaybeApplied, or any other for "certainly not applied". It never retries
	// by itself.
	Add(ctx context.Context, adds []Add) []Added

	// Claim is Add under a condition: each cost is added only if its cell's total is
	// then at most the claim's AtMost, decided and done in one atomic step. Where it
	// is not, nothing changes and nothing is created. Claims of one cell are decided
	// in their order. Errors and expiry as Add's.
	Claim(ctx context.Context, claims []Claim) []Claimed

	// Raise lifts each cell's total to at least the given count, and changes no
	// cell that holds as much already. It heals an origin that has lost data; doing it
	// twice is doing it once.
	Raise(ctx context.Context, totals []Add) error
}

// ErrMaybeApplied marks an Add or a Claim whose fate is unknown: the request left,
// the reply did not arrive. Any other error of one means that it was certainly not
// applied.
var ErrMaybeApplied = errors.New("origin: reply lost, the increment may have been applied")

// Add is a cost for a cell, > 0.
type Add struct {
	Cell window.Cell
	Cost int64
}

// Added is an origin's answer to one Add.
type Added struct {
	Total int64 // the region's total after the increment; 0 with an error
	Err   error
}

// Claim is a cost for a cell, > 0, that is added only if the total stays at most
// AtMost.
type Claim struct {
	Cell         window.Cell
	Cost, AtMost int64
}

// Claimed is an origin's answer to one Claim.
type Claimed struct {
	Total int64 // the region's total after the call, added or not; 0 with an error
	Added bool
	Err   error
}
