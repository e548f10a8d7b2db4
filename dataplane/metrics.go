package dataplane

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane/internal/cell"
)

// outcome is what became of a request.
type outcome uint8

const (
	outcomeAllowed outcome = iota
	outcomeDenied
	outcomeShadowed
	outcomes
)

func (o outcome) String() string { return [...]string{"allowed", "denied", "shadowed"}[o] }

// originOp is a kind of call to the origin.
type originOp uint8

const (
	opRead originOp = iota
	opAdd
	opClaim
	opRaise
	originOps
)

func (o originOp) String() string { return [...]string{"read", "add", "claim", "raise"}[o] }

// What became of a decision that waited for its share.
const (
	waitReplied = iota
	waitOutage  // no reply in time, or none to be expected
	waitResults
)

// What became of a claim.
const (
	claimAdded = iota
	claimRefused
	claimFailed
	claimResults
)

// Causes for which accepted cost never reaches the origin.
const (
	droppedExpired = iota // its cell expired while the origin was away
	droppedFull           // the table had no room for its key
	droppedCauses
)

const (
	sources     = 6   // Source values
	stripes     = 64  // of the decision counters; a power of two
	sampleEvery = 256 // decisions of a stripe and outcome for each latency sample; a power of two
)

// tick is a loop that calls the origin.
type tick uint8

const (
	tickReplay tick = iota
	tickSync
	ticks
)

func (t tick) String() string { return [...]string{"replay", "sync"}[t] }

// stripe is one share of the decision counters, on cache lines of its own. A goroutine
// nearly always counts on the same one, so two processors seldom meet there, even when
// they decide about the same key.
type stripe struct {
	// Of denials, shadowed ones too, as TopDenied samples them; see denials.go.
	deniedMs, exactLeft atomic.Int64

	timeNext  atomic.Bool // the latency of the next decision is measured
	decisions [sources][outcomes]atomic.Int64
	estimates [outcomes]atomic.Int64 // of the estimate mode, all local
	misses    atomic.Int64           // estimates that met a key for the first time

	candidates [2]atomic.Int64 // that candidate limits would have allowed, and denied
	refused    atomic.Int64    // denials that say nothing about their key: an outage policy's
	sampled    int64           // of all other denials, those that TopDenied has; under top.mu

	_ [128 - ((sources+1)*int(outcomes)+8)*8%128]byte
}

// metrics are plain atomics that the loops and the request path own; Collect turns
// them into Prometheus' form when it is asked, so nothing is looked up by label on
// the way of a request.
type metrics struct {
	limiter     *Limiter
	startedAtMs int64

	decisions [stripes]stripe
	latency   latency

	strictActivations atomic.Int64
	crowd             crowd

	originErrors  [originOps]atomic.Int64
	originRecords [originOps]atomic.Int64
	originSeconds [originOps]prometheus.Histogram
	originSize    [originOps]prometheus.Histogram
	tickSeconds   [ticks]prometheus.Histogram
	merged        cell.Counters
	replayedCells atomic.Int64
	ambiguous     atomic.Int64
	healed        atomic.Int64
	kicks         atomic.Int64
	waits         [waitResults]atomic.Int64
	claims        [claimResults]atomic.Int64
	dropped       [droppedCauses]atomic.Int64

	flushedRows, flushErrors, refusedRows, flushedAtMs                    atomic.Int64
	importedRows, importErrors, importApplied, rowsLastPoll, importedAtMs atomic.Int64
	flushSeconds, importSeconds                                           prometheus.Histogram

	estimateMetrics

	digestKeys, digestBytes, digestMatches, digestLeftOut, digestErrors atomic.Int64
	bulletinCells, bulletinBytes, bulletinApplied                       atomic.Int64
	delays                                                              delays

	settingsErrors, settingsAtMs atomic.Int64
	settingsProblem              atomic.Pointer[string]
}

func newMetrics(l *Limiter) *metrics {
	m := &metrics{limiter: l, startedAtMs: l.nowMs()}
	m.estimateMetrics.init()
	m.latency.init(m.startedAtMs)
	for op := range m.originSeconds {
		m.originSeconds[op] = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_origin_pipeline_seconds", Help: "Time one call to the origin took, failed ones included.",
			ConstLabels: prometheus.Labels{"op": originOp(op).String()},
			Buckets:     prometheus.ExponentialBuckets(100e-6, 2.5, 11),
		})
		m.originSize[op] = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_origin_pipeline_size", Help: "Cells that one call to the origin carried, failed ones included.",
			ConstLabels: prometheus.Labels{"op": originOp(op).String()},
			Buckets:     prometheus.ExponentialBuckets(1, 4, 6),
		})
	}
	for t := range m.tickSeconds {
		m.tickSeconds[t] = prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_origin_tick_seconds", Help: "Time that a turn of a loop with something to send took with one shard of the origin, all its calls together.",
			ConstLabels: prometheus.Labels{"loop": tick(t).String()},
			Buckets:     prometheus.ExponentialBuckets(100e-6, 2.5, 11),
		})
	}
	m.flushSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "weir_global_flush_seconds", Help: "Time one flush of counts took.", Buckets: prometheus.ExponentialBuckets(500e-6, 3, 10)})
	m.importSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "weir_global_import_seconds", Help: "Time one import of counts took.", Buckets: prometheus.ExponentialBuckets(500e-6, 3, 10)})
	return m
}

// stripe is where the calling goroutine counts. local is any variable on its stack: which
// stripe it is only matters for speed, so it does no harm that stacks can move.
func (m *metrics) stripe(local *call) *stripe {
	at := uintptr(unsafe.Pointer(local))
	return &m.decisions[(at>>11^at>>17)%stripes]
}

// samples is true when the latency of the goroutine's next decision should be measured:
// once for each sampleEvery decisions of a kind.
func (s *stripe) samples() bool {
	if !s.timeNext.Load() {
		return false
	}
	s.timeNext.Store(false)
	return true
}

// decided counts n decisions, and returns how many there have been of their kind.
func (s *stripe) decided(source Source, out outcome, n int64) (total int64) {
	total = s.decisions[source][out].Add(n)
	if uint64(total)%sampleEvery < uint64(n) {
		s.timeNext.Store(true)
	}
	return total
}

// denials are those so far that say something about their key, shadowed ones too.
func (s *stripe) denials() (n int64) {
	for _, out := range []outcome{outcomeDenied, outcomeShadowed} {
		n += s.estimates[out].Load()
		for source := range s.decisions {
			n += s.decisions[source][out].Load()
		}
	}
	return n - s.refused.Load()
}

// compared counts what a candidate limit would have said.
func (s *stripe) compared(d *Decision) {
	if d.CandidateDenied {
		s.candidates[outcomeDenied].Add(1)
	} else {
		s.candidates[outcomeAllowed].Add(1)
	}
}

func (m *metrics) comparedAll(out outcome) (n int64) {
	for i := range m.decisions {
		n += m.decisions[i].candidates[out].Load()
	}
	return n
}

func (m *metrics) eachDecision(f func(Source, outcome, int64)) {
	estimates, _ := m.estimates()
	for source := SourceLocal; source < sources; source++ {
		for out := range outcomes {
			var n int64
			if source == SourceLocal {
				n = estimates[out]
			}
			for i := range m.decisions {
				n += m.decisions[i].decisions[source][out].Load()
			}
			f(source, out, n)
		}
	}
}

// origin takes note of a call to the origin that carried cells.
func (m *metrics) origin(op originOp, cells int, took time.Duration, err error) {
	m.originSeconds[op].Observe(took.Seconds())
	m.originSize[op].Observe(float64(cells))
	m.originRecords[op].Add(int64(cells))
	if err != nil {
		m.originErrors[op].Add(1)
	}
}

// ticked takes note of a loop's turn that had something to send.
func (m *metrics) ticked(t tick, began time.Time) {
	m.tickSeconds[t].Observe(time.Since(began).Seconds())
}

func (m *metrics) flush(took time.Duration, err error, nowMs int64) {
	m.flushSeconds.Observe(took.Seconds())
	if err != nil {
		m.flushErrors.Add(1)
		return
	}
	m.flushedAtMs.Store(nowMs)
}

func (m *metrics) imported(took time.Duration, rows, applied int64, err error, nowMs int64) {
	m.importSeconds.Observe(took.Seconds())
	m.importedRows.Add(rows)
	m.importApplied.Add(applied)
	m.rowsLastPoll.Store(rows)
	if err != nil {
		m.importErrors.Add(1)
		return
	}
	m.importedAtMs.Store(nowMs)
}

// agedIn takes note of the age of a region's cost; nil where none is kept.
func (m *metrics) agedIn(region string) cell.Aged {
	if from := m.delays.from(region); from != nil {
		return from
	}
	return nil
}

func (m *metrics) settings(err error, nowMs int64) {
	if err != nil {
		m.settingsErrors.Add(1)
		text := errorText(err)
		m.settingsProblem.Store(&text)
		return
	}
	m.settingsAtMs.Store(nowMs)
	m.settingsProblem.Store(nil)
}

const errorBytesMax = 500

// errorText bounds an error for a heartbeat; an address it may hold is no secret,
// but a network error's own words are enough.
func errorText(err error) string {
	var op *net.OpError
	text := err.Error()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		text = "no answer in time"
	case errors.As(err, &op):
		text = op.Op + ": " + op.Err.Error()
	}
	return text[:min(len(text), errorBytesMax)]
}

var (
	descDecisions  = desc("weir_decisions_total", "Requests decided.", "source", "outcome")
	descCandidates = desc("weir_candidate_decisions_total", "Requests that a candidate limit was judged for beside the live one, by what it would have said.", "outcome")
	descEntries    = desc("weir_entries", "Keys held in memory.")
	descCap        = desc("weir_entries_max", "Most keys that may be held in memory.")
	descNodes      = desc("weir_region_nodes", "Nodes that share what is left of a limit: those of the region by their heartbeats, or as configured.")
	descEvictions  = desc("weir_evictions_total", "Keys forgotten: expired, idle when room was needed, or of a namespace that had more than its share of a full table.", "cause")
	descFull       = desc("weir_table_full_total", "First contacts for which no room could be made.")
	descCrowd      = desc("weir_untracked_decisions_total", "Decisions on keys that found no room, by what knew of them: the origin, or the overflow sketch, which errs towards denying.", "by")
	descWindows    = desc("weir_windows_created_total", "Keys that traffic brought into memory.")
	descOvershoot  = desc("weir_overshoot_cost_total", "Cost that turned out to be above its key's limit when others' counts were merged: at least so much was accepted too much in the fleet. Every node that counts a key sees all of it.")
	descStrict     = desc("weir_strict_mode_activations_total", "Times a key entered strict mode.")

	descOriginErrors = desc("weir_origin_errors_total", "Calls to the origin that failed, in whole or in part.", "op")
	descReplayed     = desc("weir_replay_cells_total", "Increments that the origin confirmed.")
	descBreaker      = desc("weir_origin_breaker_state", "State of the breakers of each shard of the origin, for what decisions wait for (asks) and for what loops send: 0 closed, 1 half-open, 2 open.", "shard", "calls")
	descPendingSync  = desc("weir_origin_pending_sync", "Keys that wait to be sent to a shard of the origin, or for a sync with it.", "shard")
	descPending      = desc("weir_replay_pending_cost", "Accepted cost that the origin has not confirmed yet.")
	descReplayedAt   = desc("weir_replay_last_success_timestamp_seconds", "When everything pending was last confirmed; 0 for never.")
	descAmbiguous    = desc("weir_replay_ambiguous_cost_total", "Cost whose confirmation was lost and that was sent again: it may count twice.")
	descKicks        = desc("weir_headroom_kicks_total", "Times a key was sent at once because its unsent cost was past half its share.")
	descWaits        = desc("weir_headroom_waits_total", "Decisions that waited for the reply to what was unsent.", "result")
	descClaims       = desc("weir_origin_claims_total", "Costs that were decided at the origin.", "result")
	descHealed       = desc("weir_origin_healed_cells_total", "Cells raised again after the origin had lost them.")
	descRecords      = desc("weir_origin_records_total", "Cells that calls to the origin carried, failed ones included.", "op")
	descDropped      = desc("weir_dropped_cost_total", "Accepted cost that never reached the origin.", "cause")

	descWrites       = desc("weir_global_writes_total", "Rows published to the other regions.")
	descWriteErrors  = desc("weir_global_write_errors_total", "Flushes that failed.")
	descRefused      = desc("weir_global_refused_rows_total", "Rows that the count store refused for good.")
	descFlushedAt    = desc("weir_global_flush_last_success_timestamp_seconds", "When a flush last succeeded; 0 for never.")
	descSyncRows     = desc("weir_global_sync_rows_applied_total", "Imported cells that changed something here.")
	descSyncErrors   = desc("weir_global_sync_errors_total", "Imports that failed.")
	descSyncCreated  = desc("weir_global_entries_created_total", "Keys that an import brought into memory.")
	descRowsLastPoll = desc("weir_global_rows_last_poll", "Cells that the last import returned.")
	descImportedAt   = desc("weir_global_import_last_success_timestamp_seconds", "When an import last succeeded; 0 for never.")

	descDigestKeys      = desc("weir_digest_keys", "Keys in the filter that other regions last got of this node.")
	descDigestBytes     = desc("weir_digest_bytes", "Bytes of what other regions last got of this node.", "kind")
	descDigestMatches   = desc("weir_digest_matches_total", "Cells published to other regions because one of them uses the key.")
	descDigestLeftOut   = desc("weir_digest_left_out_total", "Keys and counts that found no room in a digest; those with the smallest shares of their limits.")
	descDigestErrors    = desc("weir_digest_errors_total", "Digests that could not be published, read or understood.")
	descBulletinCells   = desc("weir_bulletin_cells", "Cells in the bulletin that was last published to other regions.")
	descBulletinApplied = desc("weir_bulletin_cells_applied_total", "Cells of other regions' bulletins that changed a count here.")

	descTuning         = desc("weir_tuning_version", "Version of the tuning document in force; 0 is the built-in default.")
	descSettingsErrors = desc("weir_settings_errors_total", "Reads of the settings that failed or held something unusable.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector: register the Limiter itself. It sends
// nothing, which makes it an unchecked collector; Collect always sends the same.
func (l *Limiter) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(l, ch) }

// Collect implements prometheus.Collector. Every counter is there from the start, at 0.
func (l *Limiter) Collect(ch chan<- prometheus.Metric) {
	m := l.metrics
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
	m.latency.local.Collect(ch)
	m.latency.origin.Collect(ch)
	gauge(descEntries, float64(l.table.Len()))
	gauge(descCap, float64(l.cfg.EntriesMax))
	gauge(descNodes, float64(l.nodes.Load()))
	counter(descEvictions, l.table.Evicted.Expired.Load(), "expired")
	counter(descEvictions, l.table.Evicted.Idle.Load(), "idle")
	counter(descEvictions, l.table.Evicted.Share.Load(), "share")
	counter(descFull, l.table.Full.Load())
	counter(descCrowd, m.crowd.byOrigin.Load(), "origin")
	counter(descCrowd, m.crowd.byOverflow.Load(), "overflow")
	counter(descWindows, l.table.Created.Traffic.Load())
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
	counter(descAmbiguous, m.ambiguous.Load())
	counter(descHealed, m.healed.Load())
	counter(descDropped, m.dropped[droppedExpired].Load(), "expired")
	counter(descDropped, m.dropped[droppedFull].Load(), "full")

	counter(descWrites, m.flushedRows.Load())
	counter(descWriteErrors, m.flushErrors.Load())
	counter(descRefused, m.refusedRows.Load())
	gauge(descFlushedAt, float64(m.flushedAtMs.Load())/1000)
	m.flushSeconds.Collect(ch)
	counter(descSyncRows, m.importApplied.Load())
	counter(descSyncErrors, m.importErrors.Load())
	counter(descSyncCreated, l.table.Created.Imported.Load())
	gauge(descRowsLastPoll, float64(m.rowsLastPoll.Load()))
	gauge(descImportedAt, float64(m.importedAtMs.Load())/1000)
	m.importSeconds.Collect(ch)

	gauge(descDigestKeys, float64(m.digestKeys.Load()))
	ch <- prometheus.MustNewConstMetric(descDigestBytes, prometheus.GaugeValue, float64(m.digestBytes.Load()), "filter")
	ch <- prometheus.MustNewConstMetric(descDigestBytes, prometheus.GaugeValue, float64(m.bulletinBytes.Load()), "bulletin")
	counter(descDigestMatches, m.digestMatches.Load())
	counter(descDigestLeftOut, m.digestLeftOut.Load())
	counter(descDigestErrors, m.digestErrors.Load())
	gauge(descBulletinCells, float64(m.bulletinCells.Load()))
	counter(descBulletinApplied, m.bulletinApplied.Load())
	m.delays.collect(ch)

	gauge(descTuning, float64(l.settings.Load().version))
	counter(descSettingsErrors, m.settingsErrors.Load())
	l.collectEstimate(ch)
}
