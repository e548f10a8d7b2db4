// Package heartbeat is what a node says of itself once an interval: the one row
// that operators, rollouts and watchers read instead of asking nodes.
package heartbeat

// Beat identifies a node and what it runs, and carries its health figures.
type Beat struct {
	NodeID        string // unique in the fleet, 1 to 64 bytes
	Region        string // 1 to 48 bytes
	Build         string // version of the binary, at most 64 bytes
	TuningVersion int64  // version of the tuning document in force; 0 is the built-in default
	StartedAtMs   int64  // Unix milliseconds by the node's clock
	SentAtMs      int64  // Unix milliseconds by the node's clock; beside the database's own stamp it shows skew
	Health        Health
	Stopped       bool // the node's last word: it is no part of the fleet from now on

	// Top is a document of Top, at most TopBytesMax; empty: nothing new, the node's
	// earlier one stands.
	Top string
}

// RegionsMax is the most regions that Health tells apart.
const RegionsMax = 48

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
	FlushedRows   int64 `json:"flushed_rows_total"`
	FlushErrors   int64 `json:"flush_errors_total"`
	FlushedAtMs   int64 `json:"flushed_at_ms"` // last flush pass without an error
	RefusedRows   int64 `json:"refused_rows_total"`
	ImportedRows  int64 `json:"imported_rows_total"`
	ImportErrors  int64 `json:"import_errors_total"`
	ImportedAtMs  int64 `json:"imported_at_ms"` // last import without an error
	// Convergence is how long after its acceptance cost of other regions was first used
	// by a decision here, in milliseconds, of some of those since the last beat:
	// ConvergenceSamples of them.
	ConvergenceP50Ms   int64 `json:"convergence_p50_ms"`
	ConvergenceP99Ms   int64 `json:"convergence_p99_ms"`
	ConvergenceSamples int64 `json:"convergence_samples"`
	// ConvergenceFromMs is the 99th percentile of the same by the region that the cost is
	// of, for those that some came from: at most RegionsMax.
	ConvergenceFromMs map[string]int64 `json:"convergence_from_ms,omitempty"`
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

	SettingsErrors  int64  `json:"settings_errors_total"`
	SettingsAtMs    int64  `json:"settings_at_ms"`             // last settings read that was applied or found unchanged
	ResetAtMs       int64  `json:"reset_at_ms"`                // when the newest reset of a key that is in force was made, by the count store's clock
	SettingsProblem string `json:"settings_problem,omitempty"` // why the newest settings are not in force
}
