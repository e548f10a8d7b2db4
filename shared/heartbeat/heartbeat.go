// Package heartbeat defines a node's report, which it sends once an interval: a single row. Operators, rollouts and
// watchers read these rows instead of calling nodes.
package heartbeat

import (
	"encoding/json"
	"time"
)

// StandsFor is how long a node counts as alive after a heartbeat: twelve intervals of the default
// tuning. After a node has crashed, the other nodes' shares of the remaining limits stay smaller
// for that long.
const StandsFor = time.Minute

// Heartbeat identifies a node and its build and tuning, and carries its health figures.
type Heartbeat struct {
	NodeID        string // unique in the fleet, 1 to 64 bytes
	Region        string // 1 to 48 bytes
	Build         string // version of the binary, at most 64 bytes
	TuningVersion int64  // version of the stored tuning; 0 is the built-in default. See Health.Trial
	StartedAtMs   int64  // Unix milliseconds by the node's clock
	SentAtMs      int64  // Unix milliseconds by the node's clock; the database's own stamp next to it shows skew
	Health        Health
	// time since the node sent it, if it came through its region's origin; the store subtracts it from its own clock
	Age     time.Duration
	Stopped bool // the node's last heartbeat: it is no part of the fleet from now on

	// Top is a document of Top, at most TopBytesMax. Empty means that nothing changed, and the node's earlier document
	// stays.
	Top string

	// Usage is a document of Usage, at most UsageBytesMax. Each heartbeat has the newest document, so no store or origin
	// needs to keep an earlier document. Empty means that the node reports no usage.
	Usage string
}

// Precedes reports whether a process sent the heartbeat before another of its heartbeats. A heartbeat with Stopped is
// the last.
func (b *Heartbeat) Precedes(other *Heartbeat) bool {
	switch {
	case b.StartedAtMs != other.StartedAtMs:
		return false
	case b.Stopped != other.Stopped:
		return other.Stopped
	}
	return b.SentAtMs < other.SentAtMs
}

// Bounds of a node's report about its relay.
const (
	RegionsMax = 64  // regions that a heartbeat has lags of
	ShardsMax  = 256 // of a region's origin

	ProblemsMax     = 4
	ProblemBytesMax = 500
)

// Health is a snapshot of a node's own figures. `…Total` only grow while the
// process lives and start at 0 with it; `…AtMs` are Unix milliseconds by the
// node's clock, 0 for never. Stored as JSON: readers must accept rows of older
// and newer builds, so fields are only ever added.
type Health struct {
	AllowedTotal  int64 `json:"allowed_total"`
	DeniedTotal   int64 `json:"denied_total"`
	ShadowedTotal int64 `json:"shadowed_total"`
	DegradedTotal int64 `json:"degraded_total"` // decisions made without the origin answer they wanted
	Entries       int64 `json:"entries"`
	TableFull     int64 `json:"table_full_total"` // first contacts that found no room
	TableFullAtMs int64 `json:"table_full_at_ms"` // when the latest of them found none
	PendingCost   int64 `json:"pending_cost"`     // accepted, not yet confirmed by the origin
	DroppedCost   int64 `json:"dropped_cost_total"`
	ReplayErrors  int64 `json:"replay_errors_total"`
	ReplayedAtMs  int64 `json:"replayed_at_ms"` // last replay that the origin confirmed in full
	BreakersOpen  int64 `json:"breakers_open"`  // shards of the origin that are not called, or only probed
	// DecisionP99Us is the 99th percentile, in µs, of a sample of the decisions of the last half to whole minute that were
	// made from memory. It includes waits for processors and for garbage collection, but no waits for the origin. 0 means
	// that there were too few decisions to measure.
	DecisionP99Us float64 `json:"decision_p99_us,omitempty"`

	// These figures describe callers, for predictions. They cover windows long enough to be shared: the keys for which
	// this node accepted cost in the current cell or the cell before, how many of them are past half their limits, and how
	// many of them other regions use too, nil if that is not measured. They are measured now and then; all are 0 before
	// the first measurement.
	ActiveKeys int64  `json:"active_keys,omitempty"`
	HotKeys    int64  `json:"hot_keys,omitempty"`
	SharedKeys *int64 `json:"shared_keys,omitempty"`

	Relay *Relay `json:"relay,omitempty"` // nil: the node has no relay, for example because it has no origin

	SettingsErrors int64 `json:"settings_errors_total"`
	SettingsAtMs   int64 `json:"settings_at_ms"` // last settings read that was applied or found unchanged
	// when the newest reset of a key that is in force was made, by the count store's clock
	ResetAtMs       int64   `json:"reset_at_ms"`
	Trial           int64   `json:"trial,omitempty"`            // number of the trial whose tuning is in force, or 0
	TuningHash      string  `json:"tuning_hash,omitempty"`      // tuning.Tuning.Hash of the tuning in force
	Limits          *Limits `json:"limits,omitempty"`           // of a trial of limits that the node runs; nil: none
	SettingsProblem string  `json:"settings_problem,omitempty"` // why the newest settings are not in force

	// Problems describe faults of the node's surroundings, such as a Redis that evicts keys. There
	// are at most ProblemsMax, of up to ProblemBytesMax bytes each.
	Problems []string `json:"problems,omitempty"`
}

// Relay describes the state of a node's relay, which carries counts between its region's origin and other regions. Each
// shard of an origin is relayed by one of the region's nodes at a time: the node that holds the shard's lease.
type Relay struct {
	Held   []int `json:"held,omitempty"` // shards whose lease it holds, ascending
	Shards int   `json:"shards"`         // that the origin has, 1 to ShardsMax

	// InStepAtMs is when the relay had last published all due counts and read all other regions' rows, without an error,
	// for all shards that it holds. 0 means that it holds no shard.
	InStepAtMs int64 `json:"in_step_at_ms,omitempty"`

	UnpublishedMs int64 `json:"unpublished_ms"` // how long the oldest count that is due has waited to be published

	// LagP99Ms has the regions whose changes were read within LagKeptFor. It is the 99th percentile of the age of changes
	// when they were read, by the database's clock, in the newest interval between heartbeats with changes. At most
	// RegionsMax.
	LagP99Ms map[string]int64 `json:"lag_p99_ms,omitempty"`

	Errors int64 `json:"errors_total"` // turns of its loops that failed
	Rows   int64 `json:"rows_total"`   // of MySQL: changes written and read, counts stored
	Stored int64 `json:"stored_total"` // counts that were stored durably
	Healed int64 `json:"healed_total"` // times that a shard of the origin had lost its counts and was raised again
	Fenced int64 `json:"fenced_total"` // times that another relay of the same shard had written first
}

// LagKeptFor is how long a lag stands for a region that publishes nothing new. Any relay publishes at least every ten
// seconds, or once a feed interval of up to a minute.
const LagKeptFor = 2 * time.Minute

// Lag returns the largest lag of any region. ok is false if the relay relays nothing, or has read no changes.
func (r *Relay) Lag() (ms int64, ok bool) {
	if r == nil || len(r.Held) == 0 || len(r.LagP99Ms) == 0 || len(r.LagP99Ms) > RegionsMax {
		return 0, false
	}
	for _, lag := range r.LagP99Ms {
		ms = max(ms, lag)
	}
	return ms, true
}

// Limits compares a trial of limits with the limits before it, on one node: each decision about a key whose limit the
// trial changes is judged by both, at the same counts. The figures begin at 0 with the trial.
type Limits struct {
	Judged       int64 `json:"judged_total"`        // decisions judged by both
	DeniedBefore int64 `json:"denied_before_total"` // that the limits before the trial deny
	DeniedAfter  int64 `json:"denied_after_total"`  // that the limits of the trial deny
	NewlyDenied  int64 `json:"newly_denied_total"`  // that only the limits of the trial deny
	Protected    int64 `json:"protected_total"`     // newly denied decisions of protected callers

	// Callers has the callers with newly denied decisions.
	Callers Callers `json:"callers,omitempty"`

	// Caller is a protected caller that was newly denied, nil: none.
	Caller *TopKey `json:"caller,omitempty"`

	// Top has the keys with the most newly denied decisions in the last minute or two, largest first, at most
	// LimitsTopMax. Count is the number of these decisions, and Limit the limit of the trial.
	Top []TopKey `json:"top,omitempty"`

	// Namespaces has the namespaces with the most newly denied decisions, largest first, at most LimitsNamespacesMax.
	Namespaces []LimitsNamespace `json:"namespaces,omitempty"`
}

// LimitsNamespace is the part of Limits that belongs to a namespace.
type LimitsNamespace struct {
	Workspace    []byte `json:"w"`
	Namespace    []byte `json:"n"`
	Judged       int64  `json:"judged"`
	DeniedBefore int64  `json:"denied_before"`
	DeniedAfter  int64  `json:"denied_after"`
	NewlyDenied  int64  `json:"newly_denied"`
}

// Bounds of Limits.
const (
	LimitsTopMax        = 10
	LimitsNamespacesMax = 20
)

// LimitsBytesMax bounds the document of Limits. Names that are much longer than usual make its lists shorter.
const LimitsBytesMax = 12 << 10

// Bounded returns l, or a copy that keeps the bounds: it lacks the last entries of lists that are too long, or whose
// names are. A copy shares its entries with l.
func (l *Limits) Bounded() *Limits {
	if l == nil {
		return nil
	}
	b := *l
	b.Top = b.Top[:min(len(b.Top), LimitsTopMax)]
	b.Namespaces = b.Namespaces[:min(len(b.Namespaces), LimitsNamespacesMax)]
	for {
		document, err := json.Marshal(&b)
		switch {
		case err == nil && len(document) <= LimitsBytesMax:
			return &b
		case len(b.Namespaces) > len(b.Top):
			b.Namespaces = b.Namespaces[:len(b.Namespaces)-1]
		case len(b.Top) > 0:
			b.Top = b.Top[:len(b.Top)-1]
		case b.Caller != nil:
			b.Caller = nil
		default:
			return &b // numbers alone
		}
	}
}
