package store

import (
	"context"
	"time"

	"github.com/weirhq/weir/shared/estimate"
	"github.com/weirhq/weir/shared/heartbeat"
)

// Settings is where operators set what a fleet agrees on, and where nodes report. All methods may
// run concurrently and obey ctx's deadline.
type Settings interface {
	// Settings reads what operators have set: the newest tuning for the region, or
	// the fleet's where the region has none, and all namespaces, overrides and resets.
	Settings(ctx context.Context, region string) (SettingsRows, error)

	// Heartbeat records what nodes say of themselves, at most HeartbeatsMax of them, each replacing the node's earlier
	// word. One that has Stopped is not counted among the live nodes from then on. An error that wraps ErrRefused means
	// that some are out of bounds and will never be recorded, and all others are. No beats are no call.
	Heartbeat(ctx context.Context, beats ...heartbeat.Heartbeat) error
}

// SettingsRows are the stored settings, unread: the limiter parses and validates
// them, and keeps its last good ones if it cannot.
type SettingsRows struct {
	TuningVersion  int64  // 0 when no tuning was ever stored
	TuningDocument []byte // see package tuning; nil when TuningVersion is 0
	Namespaces     []NamespaceRow
	Overrides      []OverrideRow
	Resets         []ResetRow

	// Trial is a tuning that nodes of the region run instead, for as long as it is renewed; the zero value is none.
	Trial TrialRow

	// Version identifies the rows: two with the same one differ in NodesLive, Trial.Left and Age at most. A limiter that
	// has read it does not compile them again. Empty: unknown.
	Version string

	// NodesLive is how many nodes of the region have sent a heartbeat within
	// NodeLiveFor, by the store's clock; 0 is unknown.
	NodesLive int

	// Age is how long ago a relay read the rows or found them unchanged, by the origin's clock; 0 of rows that come from
	// the store itself. A limiter takes no rows that are older than those it has.
	Age time.Duration

	// Problem is why a part could not be read, while all else is good; that part is
	// empty. nil when nothing is missing.
	Problem error
}

// TrialRow is a tuning on trial. A node that hears of no renewal returns to the stored tuning by itself, so that a
// trial ends whatever has died: the control plane, the store, the relay or the origin.
type TrialRow struct {
	Number   int64  // of the trial, which no other one has; 0: none is
	Document []byte // see package tuning
	Below    int64  // nodes try it whose tuning.TrialShare is below it: 1 to tuning.TrialShares, which is all

	// Left is for how long it is good, from when the rows were read from the store; less than Age: it is over.
	Left time.Duration
}

// HeartbeatsMax is how many heartbeats one call may carry.
const HeartbeatsMax = 100

// NodeLiveFor is how long a node counts as alive after a heartbeat: see [heartbeat.StandsFor].
const NodeLiveFor = heartbeat.StandsFor

// NamespaceRow is what an operator has set for a namespace. Where text is empty, the
// first of its values stands.
type NamespaceRow struct {
	Workspace, Namespace string
	Shadow               bool   // decide and count, but let denied requests pass
	Mode                 string // "exact" or "estimate"
	Outage               string // "local", "open" or "closed"
	NodeShare            string // "flush" or "wait"
	// settings of the estimate mode as JSON, at most EstimateBytesMax, empty for their defaults: see package
	// shared/estimate for the fields
	Estimate string
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

// ResetRow forgets what was counted of an identifier before. Of two rows of
// one identifier the higher Generation stands.
type ResetRow struct {
	Workspace, Namespace, Identifier string
	Generation                       int64 // 1 to window.GenerationMax
	AtMs                             int64 // when it was made: Unix milliseconds by the store's clock
	ExpiresAtMs                      int64 // when nothing from before it can matter any more
}

// ResetsMax is how many resets a node heeds; more are left out.
const ResetsMax = 100_000
