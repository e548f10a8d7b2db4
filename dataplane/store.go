package dataplane

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/shared/estimate"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// The two layers above a node, and all that the limiter knows of them. Package
// memstore keeps both in memory; redisorigin and mysqlcounts are the real ones;
// package storetest holds every implementation to the contracts written here.

// ErrMaybeApplied marks an Add or a Claim whose fate is unknown: the request left,
// the reply did not arrive. Any other error of one means that it was certainly not
// applied.
var ErrMaybeApplied = errors.New("origin: reply lost, the increment may have been applied")

// ErrRefused marks rows that a CountStore will never accept, however often they
// are sent: the fault is in at least one of the rows, not in the store. The
// flusher bisects such a chunk until it has found them.
var ErrRefused = errors.New("count store: refused the rows")

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

// CountStore is where regions meet: a grow-only counter with one component for
// each cell and region, merged by max, and beside it what operators set and what
// nodes report.
//
// All methods may run concurrently and obey ctx's deadline.
type CountStore interface {
	// Publish raises region's own components to the given counts; a smaller count
	// than the stored one changes nothing. Counts must be sorted by
	// window.Cell.Compare, without duplicates, at most PublishRowsMax; they go out
	// as one statement. After nil all are stored, and every later Import tells of
	// those that are not Quiet. An error that wraps ErrRefused means that none is stored and at least one
	// row never will be; after any other error the caller may repeat the same call
	// with no harm done.
	Publish(ctx context.Context, region string, counts []Count) error

	// Import calls yield at most once for each cell that expires after nowMs (Unix
	// milliseconds) and has a component from any region, in no particular order:
	// with the zero Cursor for all of them, otherwise for those of which another
	// region's component was raised by a Publish, not quietly, since the Import that
	// returned after, and for a few more. Each is yielded whole: all its regions' components
	// are in it, as they are now. yield must not block.
	//
	// It returns the Cursor for the next call. After an error that is after itself,
	// and what was yielded is still true.
	//
	// What it leaves out unless all are asked for: a component of region itself that
	// was raised alone, as the region has its own ways to know; the counts of a
	// Publish that did not return nil and was never repeated; and perhaps what a
	// store stored that is too slow to be in time again and again. So ask for all now
	// and then.
	Import(ctx context.Context, region string, nowMs int64, after Cursor, yield func(Imported)) (Cursor, error)

	// PublishDigest replaces what a node of region last said of the keys it sees. One
	// that has not changed need not be published again before it is about to expire.
	// ErrRefused is for one that will never be stored.
	PublishDigest(ctx context.Context, region string, d Digest) error

	// Digests calls yield for each digest of another region that expires after nowMs:
	// with the zero Cursor for all, otherwise for those replaced since the call that
	// returned after, and for a few more. yield may keep the Digest. It returns the
	// Cursor for the next call; after an error that is after itself.
	Digests(ctx context.Context, region string, nowMs int64, after Cursor, yield func(Digest)) (Cursor, error)

	// Settings reads what operators have set: the newest tuning for the region, or
	// the fleet's where the region has none, and all namespaces, overrides and resets.
	Settings(ctx context.Context, region string) (SettingsRows, error)

	// Heartbeat records what a node says of itself, replacing its earlier word. One that has
	// Stopped is not counted among the live nodes from then on.
	Heartbeat(ctx context.Context, beat heartbeat.Beat) error
}

// PublishRowsMax is how many rows one Publish may carry.
const PublishRowsMax = 500

// Cursor is a moment on the clock of a CountStore, in a form of its own: callers keep
// it and hand it back. Zero is before everything.
type Cursor int64

// Count is a region's count in one cell.
type Count struct {
	Cell  window.Cell
	Count int64

	// CountedAtMs is when the newest cost in Count was accepted, in Unix milliseconds
	// by the publisher's clock; 0 is unknown. It is stored with the count that it came
	// with, and not at all with one that is not larger than the stored one.
	CountedAtMs int64

	// Shared tells that the publisher knows of another region that uses this key.
	// Once stored as true it stays.
	Shared bool

	// Quiet tells that no other region needs to know yet: no Import has to tell of it
	// that does not ask for all. A row that was only ever raised quietly is told of with
	// the first Publish that is not quiet, whether that raises it or not; any other row
	// when it is next raised by one.
	Quiet bool
}

// Imported is what a CountStore holds of one cell, seen from a region.
type Imported struct {
	Cell    window.Cell
	Foreign int64 // sum of all other regions' components
	Own     int64 // the region's own component: a lower bound of its true count

	// The foreign component with the youngest cost in it, and when that was accepted
	// by its publisher's clock; of several as young, the one whose region is the
	// greatest as bytes. "" and 0 without a foreign component.
	NewestRegion string
	NewestAtMs   int64
}

// Digest is what a node tells of the keys it sees: which ones at all, or the counts of
// some (see Digest.Counts), in a form that only those who make and ask it can read.
type Digest struct {
	Region, Node string // 1 to 48 and 1 to 64 bytes; PublishDigest takes its own region's word
	Keys         int    // how many keys or counts are in Filter
	Filter       []byte // at most DigestBytesMax
	MadeAtMs     int64  // Unix milliseconds by the node's clock
	ExpiresAtMs  int64  // Unix milliseconds by the node's clock
}

// DigestBytesMax is how long a digest's filter may be.
const DigestBytesMax = 1 << 20

// SettingsRows are the stored settings, unread: the limiter parses and validates
// them, and keeps its last good ones if it cannot.
type SettingsRows struct {
	TuningVersion  int64  // 0 when no tuning was ever stored
	TuningDocument []byte // see package tuning; nil when TuningVersion is 0
	Namespaces     []NamespaceRow
	Overrides      []OverrideRow
	Resets         []ResetRow

	// NodesLive is how many nodes of the region have sent a heartbeat within
	// NodeLiveFor, by the store's clock; 0 is unknown.
	NodesLive int

	// Problem is why a part could not be read, while all else is good; that part is
	// empty. nil when nothing is missing.
	Problem error

	held map[resetName]bool // resets that stay in force; see heldResets
}

// NodeLiveFor is how long a heartbeat stands for its node: twelve of those that
// nodes send by the default tuning. A node that is gone makes the shares of the others a
// little smaller for so long; see headroom.go.
const NodeLiveFor = time.Minute

// NamespaceRow is what an operator has set for a namespace. Where text is empty, the
// first of its values stands.
type NamespaceRow struct {
	Workspace, Namespace string
	Shadow               bool   // decide and count, but let denied requests pass
	Mode                 string // "exact" or "estimate"
	Outage               string // "local", "open" or "closed"
	Headroom             string // "kick" or "wait"
	Estimate             string // knobs of the estimate mode as JSON, at most EstimateBytesMax; empty for their defaults
}

// EstimateBytesMax is how long NamespaceRow.Estimate may be.
const EstimateBytesMax = estimate.DocumentBytesMax

// OverrideRow replaces the limit, and the duration too where DurationMs > 0, of
// every identifier that Pattern matches. A pattern is compared as bytes; each '*'
// in it stands for any run of bytes, none included. Limit 0 blocks. Of several that match, the
// first by window.ComparePatterns applies. A look-up costs the same however many there are:
// at most window.PatternStarsMax '*' in one, and of those with more than one '*' at most
// window.PatternsAlikeMax that one identifier begins like; rows beyond are left out and reported.
type OverrideRow struct {
	Workspace, Namespace, Pattern string
	Limit                         int64
	DurationMs                    int64 // 0 keeps the request's
	Candidate                     int64 // judged beside Limit, and decides nothing; 0 for none
	Shadow                        bool  // decide and count, but let denied requests pass
}

// ResetRow forgets what was counted of an identifier before; see reset.go. Of two rows of
// one identifier the higher Generation stands.
type ResetRow struct {
	Workspace, Namespace, Identifier string
	Generation                       int64 // 1 to window.GenerationMax
	AtMs                             int64 // when it was made: Unix milliseconds by the store's clock
	ExpiresAtMs                      int64 // when nothing from before it can matter any more
}
