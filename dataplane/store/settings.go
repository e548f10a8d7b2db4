package store

import (
	"context"
	"time"

	"github.com/weirhq/weir/shared/estimate"
	"github.com/weirhq/weir/shared/heartbeat"
)

// Settings is the store of the settings that a fleet shares, and of its nodes' heartbeats. All methods must be safe
// to call concurrently, and must obey ctx's deadline.
type Settings interface {
	// Settings returns the operators' settings: the newest tuning for the region, or the fleet's tuning if the region
	// has none, and all namespaces, overrides and resets.
	Settings(ctx context.Context, region string) (SettingsRows, error)

	// Heartbeat stores the heartbeats of nodes, at most HeartbeatsMax. Each replaces the node's earlier heartbeat. A
	// node that has Stopped is not counted among the live nodes from then on. An error that wraps ErrRefused means that
	// some heartbeats are out of bounds and will never be stored, and that all others are stored. With no beats,
	// Heartbeat returns without a call.
	Heartbeat(ctx context.Context, beats ...heartbeat.Heartbeat) error
}

// SettingsRows are the stored settings, unparsed: the limiter parses and validates them, and keeps its last valid
// settings if it cannot.
type SettingsRows struct {
	TuningVersion  int64  // 0 if no tuning was ever stored
	TuningDocument []byte // see package tuning; nil when TuningVersion is 0
	Namespaces     []NamespaceRow
	Overrides      []OverrideRow
	Resets         []ResetRow

	// Trial is a tuning, or a change of limits, that nodes of the region run instead, for as long as it is renewed. The
	// zero value means no trial.
	Trial TrialRow

	// Version identifies the rows: rows with the same Version differ at most in NodesLive, Trial.Left and Age. A limiter
	// that has already read a Version does not compile its rows again. It is empty if the source has no versions.
	Version string

	// NodesLive is how many nodes of the region have sent a heartbeat within NodeLiveFor, by the store's clock; 0 if
	// that is not counted.
	NodesLive int

	// Age is how long ago a relay read the rows or found them unchanged, by the origin's clock. It is 0 for rows that
	// come from the store itself. A limiter does not apply rows that are older than the rows in force.
	Age time.Duration

	// Problem is the reason why a part could not be read; that part is empty, and all others are valid. It is nil if
	// nothing is missing.
	Problem error
}

// TrialRow is a tuning or a change of limits on trial. A node that receives no renewal returns to the stored settings
// by itself. So a trial ends even if the control plane, the store, the relay or the origin has died.
type TrialRow struct {
	Number   int64  // of the trial, unique; 0: there is no trial
	Document []byte // a tuning, see package tuning, or a settings.LimitsTrial
	Below    int64  // nodes whose tuning.TrialShare is below it run the trial: 1 to tuning.TrialShares, which is all

	// Left is how long the trial lasts, from when the rows were read from the store. If it is less than Age, the trial
	// is over.
	Left time.Duration
}

// HeartbeatsMax is the highest number of heartbeats in a call.
const HeartbeatsMax = 100

// NodeLiveFor is how long a node counts as alive after a heartbeat: see [heartbeat.StandsFor].
const NodeLiveFor = heartbeat.StandsFor

// NamespaceRow has an operator's settings for a namespace. An empty text means the first of its values.
type NamespaceRow struct {
	Workspace, Namespace string
	Shadow               bool   // decide and count, but let denied requests pass
	Mode                 string // "exact" or "estimate"
	Outage               string // "local", "open" or "closed"
	NodeShare            string // "wait" or "flush"
	Window               Window // WindowCells or WindowPrecise; the estimate mode does not accept the latter
	// settings of the estimate mode as JSON, at most EstimateBytesMax, empty for their defaults: see package
	// shared/estimate for the fields
	Estimate string
}

// Window selects how a namespace counts the duration of a limit. The zero value is WindowCells.
type Window string

const (
	// WindowCells counts the current cell, and the previous cell by the share of it that the duration still covers. It
	// assumes that the previous cell's cost was spread evenly, so up to twice the limit can pass in a real window.
	WindowCells Window = "cells"

	// WindowPrecise also keeps when the cost of a cell was accepted, so that no more than the limit passes in any real
	// window on a node. Use it for sign-ins, password resets, messages that cost money and paid quotas. It takes 32
	// bytes more per key. A caller at the limit or above gets up to 9 % less than the limit, or up to half less with a
	// limit below 10.
	WindowPrecise Window = "precise"
)

// EstimateBytesMax is the length of the longest NamespaceRow.Estimate.
const EstimateBytesMax = estimate.DocumentBytesMax

// OverrideRow replaces the limit, and the duration too if DurationMs > 0, of every identifier that Pattern matches. A
// pattern is compared as bytes; each '*' in it stands for any run of bytes, also an empty run. For example,
// "team-7/*" matches all identifiers that begin with "team-7/". A pattern that is a network, such as "203.0.113.0/24",
// matches all identifiers that are addresses or networks in it; see window.Network. Limit 0 blocks. If several patterns
// match, the first by window.ComparePatterns applies.
//
// A look-up costs nearly the same whatever the number of rows: it is a binary search among networks. To ensure that, a
// pattern can have at most window.PatternStarsMax '*', and at most window.PatternsAlikeMax patterns with more than one
// '*' can match the beginning of the same identifier. Rows beyond these bounds are left out and reported. The number of
// networks has no bound of its own.
type OverrideRow struct {
	Workspace, Namespace, Pattern string
	Limit                         int64
	DurationMs                    int64 // 0 keeps the request's duration
	Candidate                     int64 // compared with the same counts as Limit, and decides nothing; 0 for none
	Shadow                        bool  // decide and count, but let denied requests pass
}

// ResetRow discards an identifier's earlier counts. For example, an operator resets a customer who was blocked by
// mistake. Of two rows of an identifier, the row with the higher Generation applies.
type ResetRow struct {
	Workspace, Namespace, Identifier string
	Generation                       int64 // 1 to window.GenerationMax
	AtMs                             int64 // time of the reset: Unix milliseconds by the store's clock
	ExpiresAtMs                      int64 // when no earlier count can matter any more
}

// ResetsMax is the highest number of resets that a node applies; further resets are left out.
const ResetsMax = 100_000
