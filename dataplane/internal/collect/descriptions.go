package collect

// Descriptions of a limiter's counts.
var (
	Decisions = NewCounter("weir_decisions_total",
		"Requests decided, items of batches among them. batch_denied: the item "+
			"fits, and another item denied its batch, so it was not counted.", "source", "outcome")
	Candidates = NewCounter("weir_candidate_decisions_total",
		"Requests for which a candidate limit was evaluated in addition to the live limit, by the candidate's outcome.",
		"outcome")
	TrialDecisions = NewCounter("weir_trial_decisions_total",
		"Requests judged by the limits of a trial and by the limits before it: allowed or denied by both, newly_denied by "+
			"the trial alone, or newly_allowed by the trial alone.", "outcome")
	Latency = counts("weir_decision_seconds",
		"Time of one decision, from memory (local) or with a call to the origin (origin); one in 256 is measured.", "source")
	Entries = NewGauge("weir_entries", "Keys held in memory.")
	Cap     = NewGauge("weir_entries_max", "Most keys that may be held in memory.")
	Nodes   = NewGauge("weir_region_nodes",
		"Nodes that share the rest of a limit: the nodes of the region by their heartbeats, or as configured.")
	Evictions = NewCounter("weir_evictions_total",
		"Keys forgotten: expired, idle when room was needed, or of a namespace that had more than its share of a full table.",
		"cause")
	Full      = NewCounter("weir_table_full_total", "First requests of a key that found the table full.")
	Untracked = NewCounter("weir_untracked_decisions_total",
		"Decisions on keys without room in the table, by the counter that decided: the origin, or the overflow sketch, "+
			"which errs towards denying.", "by")
	Windows   = NewCounter("weir_windows_created_total", "Keys that requests added to memory.")
	Overshoot = NewCounter("weir_overshoot_cost_total",
		"Cost above its key's limit, found when counts of others were merged: the fleet's overshoot is at least this. "+
			"Every node that counts a key reports all of it.")
	Strict = NewCounter("weir_strict_mode_activations_total", "Times a key entered strict mode.")

	Replayed = NewCounter("weir_replay_cells_total", "Increments that the origin confirmed.")
	Breaker  = NewGauge("weir_origin_breaker_state",
		"State of the breakers of each shard of the origin: of calls that decisions wait for (asks) and of background "+
			"sends (sends). 0 closed, 1 half-open, 2 open.", "shard", "calls")
	PendingSync = NewGauge("weir_origin_pending_sync",
		"Keys that wait to be sent to a shard of the origin, or for a sync with it.", "shard")
	Pending    = NewGauge("weir_replay_pending_cost", "Accepted cost that the origin has not confirmed yet.")
	ReplayedAt = NewGauge("weir_replay_last_success_timestamp_seconds",
		"Unix time at which the origin had last confirmed all pending cost; 0 for never.")
	Flushes = NewCounter("weir_node_share_flushes_total",
		"Times a key was sent at once because its unsent cost was past half its share.")
	Waits = NewCounter("weir_node_share_waits_total",
		"Decisions that waited until the origin had confirmed the key's unsent cost.", "result")
	Claims   = NewCounter("weir_origin_claims_total", "Costs that were decided at the origin.", "result")
	Restored = NewCounter("weir_origin_restored_keys_total", "Keys sent again after the origin had lost its counts.")
	HeldBack = NewCounter("weir_held_back_keys_total",
		"Times a new key was not created at the origin because its namespace created too many; its node alone counts it.")
	Dropped = NewCounter("weir_dropped_cost_total",
		"Accepted cost that did not reach the origin before its cell expired.", "cause")

	Tuning = NewGauge("weir_tuning_version", "Version of the stored tuning; 0 is the built-in default.")
	Trial  = NewGauge("weir_tuning_trial",
		"Number of the trial whose tuning or limits are in force instead of the stored ones, or are compared with them; "+
			"0 without a trial.")
	SettingsErrors = NewCounter("weir_settings_errors_total",
		"Reads of the settings that failed or held something unusable.")
)

// Descriptions of a limiter's counts in the estimate mode.
var (
	Evals = NewCounter("weir_eval_counts_total", "Requests decided in the estimate mode.", "result")
	Cache = NewCounter("weir_cache_counts_total",
		"Keys of the estimate mode that requests found in memory, or did not, and syncs that they requested.", "result")
	SyncRefused = NewCounter("weir_sync_refused_total",
		"Syncs that were refused because pending_max keys of the namespace were waiting.")
	TierKeys  = NewGauge("weir_sync_tier_keys", "Keys of the estimate mode, by pressure.", "tier")
	TierMoves = NewCounter("weir_tier_transitions_total", "Keys that went from one tier to another.", "from", "to")
	Unsynced  = NewCounter("weir_estimate_unsynced_cost_total",
		"Cost of the estimate mode that expired below its floor, and so was never sent.")
	Drift     = counts("weir_estimate_drift_ratio", "Change of a key's level by a sync, as a share of its limit.")
	Staleness = counts("weir_sync_staleness_seconds", "Time since a key's previous sync, at each sync.")
)
