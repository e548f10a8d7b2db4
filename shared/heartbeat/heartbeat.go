// Package heartbeat is what a node says of itself once an interval: the one row
// that operators, rollouts and watchers read instead of asking nodes.
package heartbeat

import "time"

// StandsFor is how long a node counts as alive after a heartbeat: twelve intervals of the default
// tuning. After a node has crashed, the other nodes' shares of the remaining limits stay smaller
// for that long.
const StandsFor = time.Minute

// Heartbeat identifies a node and what it runs, and carries its health figures.
type Heartbeat struct {
	NodeID        string // unique in the fleet, 1 to 64 bytes
	Region        string // 1 to 48 bytes
	Build         string // version of the binary, at most 64 bytes
	TuningVersion int64  // version of the stored tuning; 0 is the built-in default. See Health.Trial
	StartedAtMs   int64  // Unix milliseconds by the node's clock
	SentAtMs      int64  // Unix milliseconds by the node's clock; beside the database's own stamp it shows skew
	Health        Health
	// since the node has sent it, if it came by its region's origin; what stores it takes it off its own clock
	Age     time.Duration
	Stopped bool // the node's last word: it is no part of the fleet from now on

	// Top is a document of Top, at most TopBytesMax; empty: nothing new, the node's
	// earlier one stands.
	Top string
}

// Precedes is true of a heartbeat that its process has sent before another one of its own: what has Stopped says no
// more.
func (b *Heartbeat) Precedes(other *Heartbeat) bool {
	switch {
	case b.StartedAtMs != other.StartedAtMs:
		return false
	case b.Stopped != other.Stopped:
		return other.Stopped
	}
	return b.SentAtMs < other.SentAtMs
}

// Bounds of what a node says of its relay.
const (
	RegionsMax = 64  // regions that a beat has lags of
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
	TableFullAtMs int64 `json:"table_full_at_ms"` // when the last one did
	PendingCost   int64 `json:"pending_cost"`     // accepted, not yet confirmed by the origin
	DroppedCost   int64 `json:"dropped_cost_total"`
	ReplayErrors  int64 `json:"replay_errors_total"`
	ReplayedAtMs  int64 `json:"replayed_at_ms"` // last replay that the origin confirmed in full
	BreakersOpen  int64 `json:"breakers_open"`  // shards of the origin that are not called, or only probed
	// DecisionP99Us is the 99th percentile, in µs, of a sample of the decisions of the last
	// half to whole minute that were made from memory: waits for processors and for garbage
	// collection are in it, waits for the origin are not. 0: too few, not measured.
	DecisionP99Us float64 `json:"decision_p99_us,omitempty"`

	// What callers are like, for predictions, of windows long enough to be shared: keys that
	// cost was accepted on here in the current cell or the one before; of them those past
	// half their limits; of them those that other regions use too, nil where that is not
	// known. Measured now and then; all 0: not yet.
	ActiveKeys int64  `json:"active_keys,omitempty"`
	HotKeys    int64  `json:"hot_keys,omitempty"`
	SharedKeys *int64 `json:"shared_keys,omitempty"`

	Relay *Relay `json:"relay,omitempty"` // nil: the node has no relay, as one without an origin

	SettingsErrors int64 `json:"settings_errors_total"`
	SettingsAtMs   int64 `json:"settings_at_ms"` // last settings read that was applied or found unchanged
	// when the newest reset of a key that is in force was made, by the count store's clock
	ResetAtMs       int64  `json:"reset_at_ms"`
	Trial           int64  `json:"trial,omitempty"`            // number of the trial whose tuning is in force; 0: the stored one is
	TuningHash      string `json:"tuning_hash,omitempty"`      // tuning.Tuning.Hash of the tuning in force
	SettingsProblem string `json:"settings_problem,omitempty"` // why the newest settings are not in force

	// Problems describe faults of the node's surroundings, such as a Redis that evicts keys. There
	// are at most ProblemsMax, of up to ProblemBytesMax bytes each.
	Problems []string `json:"problems,omitempty"`
}

// Relay is how a node's relay does, which carries counts between its region's origin and other regions. Each shard of
// an origin is relayed by one of the region's nodes at a time, the one that holds its lease.
type Relay struct {
	Held   []int `json:"held,omitempty"` // shards whose lease it holds, ascending
	Shards int   `json:"shards"`         // that the origin has, 1 to ShardsMax

	// InStepAtMs is when it had last told what was due and read what others tell, without an error, for all shards that
	// it holds; 0: it holds none.
	InStepAtMs int64 `json:"in_step_at_ms,omitempty"`

	UnpublishedMs int64 `json:"unpublished_ms"` // how long the oldest count that is due to be told has waited

	// LagP99Ms has the regions whose news was read within LagKeptFor: the 99th percentile of how old it was when it
	// was read, by the database's clock, in the newest interval between heartbeats that had some. At most RegionsMax.
	LagP99Ms map[string]int64 `json:"lag_p99_ms,omitempty"`

	Errors int64 `json:"errors_total"` // turns of its loops that failed
	Rows   int64 `json:"rows_total"`   // of MySQL: news written and read, counts stored
	Stored int64 `json:"stored_total"` // counts that were stored for good
	Healed int64 `json:"healed_total"` // times that a shard of the origin had lost its counts and was raised again
	Fenced int64 `json:"fenced_total"` // times that another relay of the same shard had written first
}

// LagKeptFor is how long a lag stands for a region that tells nothing new. Any relay tells of itself within ten
// seconds, or a news interval of up to a minute.
const LagKeptFor = 2 * time.Minute

// Lag is the largest lag, of any region; ok is false if it relays nothing, or has read no news.
func (r *Relay) Lag() (ms int64, ok bool) {
	if r == nil || len(r.Held) == 0 || len(r.LagP99Ms) == 0 || len(r.LagP99Ms) > RegionsMax {
		return 0, false
	}
	for _, lag := range r.LagP99Ms {
		ms = max(ms, lag)
	}
	return ms, true
}
