package dataplane

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane/internal/collect"
)

// Collector is the limiter's metrics, all of whose names begin with weir_. Every counter is there from the start, at 0.
// A collection reads counters and queues; decisions do not wait for it.
func (l *Limiter) Collector() prometheus.Collector { return l.metrics }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	l := m.limiter
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}

	m.eachDecision(func(source Source, out outcome, n int64) { counter(descDecisions, n, source.String(), out.String()) })
	for _, out := range []outcome{outcomeAllowed, outcomeDenied} {
		counter(descCandidates, m.comparedAll(out), out.String())
	}
	m.latency.Local.Collect(ch)
	m.latency.Origin.Collect(ch)
	gauge(descEntries, float64(l.table.Len()))
	gauge(descCap, float64(l.cfg.EntriesMax))
	gauge(descNodes, float64(l.nodes.Load()))
	counter(descEvictions, l.table.Evicted.Expired.Load(), "expired")
	counter(descEvictions, l.table.Evicted.Idle.Load(), "idle")
	counter(descEvictions, l.table.Evicted.Share.Load(), "share")
	counter(descFull, l.table.Full.Load())
	counter(descCrowd, m.crowd.byOrigin.Load(), "origin")
	counter(descCrowd, m.crowd.byOverflow.Load(), "overflow")
	counter(descWindows, l.table.Created.Load())
	counter(descStrict, m.strictActivations.Load())
	counter(descOvershoot, m.merged.Overshoot.Load())

	for op := range m.originSeconds {
		m.originSeconds[op].Collect(ch)
		m.originSize[op].Collect(ch)
		counter(descRecords, m.originRecords[op].Load(), originOp(op).String())
		counter(descOriginErrors, m.originErrors[op].Load(), originOp(op).String())
	}
	for t := range m.tickSeconds {
		m.tickSeconds[t].Collect(ch)
	}
	for _, sh := range l.shards {
		gauge(descBreaker, float64(sh.asks.State()), sh.label, "asks")
		gauge(descBreaker, float64(sh.sends.State()), sh.label, "sends")
		gauge(descPendingSync, float64(l.pendingKeys(sh)+sh.syncs.size()), sh.label)
	}
	counter(descKicks, m.kicks.Load())
	counter(descWaits, m.waits[waitReplied].Load(), "replied")
	counter(descWaits, m.waits[waitOutage].Load(), "outage")
	counter(descClaims, m.claims[claimAdded].Load(), "added")
	counter(descClaims, m.claims[claimRefused].Load(), "refused")
	counter(descClaims, m.claims[claimFailed].Load(), "failed")
	counter(descReplayed, m.replayedCells.Load())
	gauge(descPending, float64(l.pendingCost()))
	gauge(descReplayedAt, float64(l.replayedAtMs())/1000)
	counter(descRestored, m.restored.Load())
	counter(descDropped, m.dropped[droppedExpired].Load(), "expired")
	counter(descDropped, m.dropped[droppedFull].Load(), "full")
	heldBack, _, _ := l.table.NewKeys.HeldBack()
	counter(descHeldBack, heldBack)

	set := l.settings.Load()
	gauge(descTuning, float64(set.version))
	gauge(descTrial, float64(set.number))
	counter(descSettingsErrors, m.settingsErrors.Load())
	l.collectEstimate(ch)

	collect.Node(ch, l.cfg.Region, l.cfg.NodeID, l.cfg.Build)
	collect.Leases(ch, l.slots.Stats(), &l.leases)
	collect.Reservations(ch, &l.here, &l.there)
}

var (
	descDecisions = desc("weir_decisions_total", "Requests decided, items of batches among them. batch_denied: the item "+
		"fits, and another item denied its batch, so it was not counted.", "source", "outcome")
	descCandidates = desc("weir_candidate_decisions_total",
		"Requests for which a candidate limit was evaluated beside the live one, by the candidate's outcome.", "outcome")
	descEntries = desc("weir_entries", "Keys held in memory.")
	descCap     = desc("weir_entries_max", "Most keys that may be held in memory.")
	descNodes   = desc("weir_region_nodes",
		"Nodes that share the rest of a limit: the nodes of the region by their heartbeats, or as configured.")
	descEvictions = desc("weir_evictions_total",
		"Keys forgotten: expired, idle when room was needed, or of a namespace that had more than its share of a full table.",
		"cause")
	descFull  = desc("weir_table_full_total", "First requests of a key that found the table full.")
	descCrowd = desc("weir_untracked_decisions_total",
		"Decisions on keys without room in the table, by what counted them: the origin, or the overflow sketch, which errs "+
			"towards denying.", "by")
	descWindows   = desc("weir_windows_created_total", "Keys that requests added to memory.")
	descOvershoot = desc("weir_overshoot_cost_total",
		"Cost above its key's limit, found when counts of others were merged: the fleet's overshoot is at least this. "+
			"Every node that counts a key reports all of it.")
	descStrict = desc("weir_strict_mode_activations_total", "Times a key entered strict mode.")

	descOriginErrors = desc("weir_origin_errors_total", "Calls to the origin that failed, in whole or in part.", "op")
	descReplayed     = desc("weir_replay_cells_total", "Increments that the origin confirmed.")
	descBreaker      = desc("weir_origin_breaker_state",
		"State of the breakers of each shard of the origin: of calls that decisions wait for (asks) and of background "+
			"sends (sends). 0 closed, 1 half-open, 2 open.", "shard", "calls")
	descPendingSync = desc("weir_origin_pending_sync",
		"Keys that wait to be sent to a shard of the origin, or for a sync with it.", "shard")
	descPending    = desc("weir_replay_pending_cost", "Accepted cost that the origin has not confirmed yet.")
	descReplayedAt = desc("weir_replay_last_success_timestamp_seconds",
		"Unix time at which the origin had last confirmed all pending cost; 0 for never.")
	descKicks = desc("weir_headroom_kicks_total",
		"Times a key was sent at once because its unsent cost was past half its share.")
	descWaits = desc("weir_headroom_waits_total",
		"Decisions that waited until the origin had confirmed the key's unsent cost.", "result")
	descClaims   = desc("weir_origin_claims_total", "Costs that were decided at the origin.", "result")
	descRestored = desc("weir_origin_restored_keys_total", "Keys sent again after the origin had lost its counts.")
	descRecords  = desc("weir_origin_records_total", "Cells that calls to the origin carried, failed ones included.", "op")
	descHeldBack = desc("weir_held_back_keys_total",
		"Times a new key was not begun at the origin because its namespace had begun too many: it counts at its node alone.")
	descDropped = desc("weir_dropped_cost_total", "Accepted cost that never reached the origin.", "cause")

	descTuning = desc("weir_tuning_version", "Version of the stored tuning; 0 is the built-in default.")
	descTrial  = desc("weir_tuning_trial",
		"Number of the trial whose tuning is in force instead of the stored one; 0 without a trial.")
	descSettingsErrors = desc("weir_settings_errors_total",
		"Reads of the settings that failed or held something unusable.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}
