package controlplane

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/shared/bounded"
)

// Metrics are those of the control plane's process, one prometheus.Collector: their
// names and meanings are in NewMetrics, what to do about each in restate/RUNBOOK.md.
//
// Counters start at 0 with the process and are there from its start, so that an alert
// on their rate needs no first failure.
type Metrics struct {
	lagSeconds   prometheus.Gauge
	rowsDeleted  prometheus.Counter
	batchSeconds prometheus.Histogram
	batchErrors  prometheus.Counter
	nodesDeleted prometheus.Counter
	partitionMetrics
	runs         prometheus.Counter
	runErrors    prometheus.Counter
	paused       prometheus.Gauge
	mysqlUp      prometheus.Gauge
	restateUp    prometheus.Gauge
	chainRepairs prometheus.Counter
	authFailures map[AuthFailure]prometheus.Counter
	refused      map[bounded.Bound]prometheus.Counter
	unheard      map[bounded.Bound]prometheus.Counter
	findings     map[FindingKind]prometheus.Gauge
	overall      prometheus.Gauge
	lookedAt     prometheus.Gauge
	fleetMetrics
	retirementMetrics
	everyCollector []prometheus.Collector
}

// NewMetrics returns metrics that are registered nowhere yet.
func NewMetrics() *Metrics {
	m := &Metrics{}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		m.everyCollector = append(m.everyCollector, c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		m.everyCollector = append(m.everyCollector, g)
		return g
	}
	m.lagSeconds = gauge("weir_cleanup_lag_seconds",
		"How long ago the oldest expired row should have been deleted; 0 when there is none.")
	m.rowsDeleted = counter("weir_cleanup_rows_deleted_total", "Expired window counts deleted by this process in batches.")
	m.batchSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "weir_cleanup_batch_seconds",
		Help:    "Time of one bounded DELETE.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})
	m.batchErrors = counter("weir_cleanup_batch_errors_total", "Bounded DELETEs that failed; each is tried again.")
	m.partitionMetrics = newPartitionMetrics(counter, gauge)
	m.nodesDeleted = counter("weir_cleanup_dead_nodes_deleted_total",
		"Heartbeat rows of dead nodes deleted by this process.")
	m.runs = counter("weir_cleanup_runs_total", "Cleanup runs that this process finished, with and without an error.")
	m.runErrors = counter("weir_cleanup_run_errors_total", "Cleanup runs that ended in an error.")
	m.paused = gauge("weir_cleanup_paused", "1 while an operator has paused the cleanup's schedule.")
	up := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_control_dependency_up",
		Help: "1 when the dependency answered the last time it was asked.",
	}, []string{"dependency"})
	m.mysqlUp, m.restateUp = up.WithLabelValues("mysql"), up.WithLabelValues("restate")
	m.chainRepairs = counter("weir_control_chain_repairs_total", "Schedules that had died and were started again.")
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_control_auth_failures_total",
		Help: "Calls of the operators' API that were refused for their token, by reason.",
	}, []string{"reason"})
	m.authFailures = make(map[AuthFailure]prometheus.Counter, len(AuthFailures))
	for _, reason := range AuthFailures {
		m.authFailures[reason] = failures.WithLabelValues(string(reason))
	}
	var refused, unheard *prometheus.CounterVec
	m.refused, refused = refusals("weir_control_refused_total", "Connections that the operators' port closed and "+
		"calls that it refused to stay within a bound, by that bound.", bounded.Bounds)
	m.unheard, unheard = refusals("weir_handlers_refused_total", "Connections that the handlers' port closed and "+
		"requests that it refused, by the bound; identity: Restate has not signed the request.",
		HandlersBounds)
	findings := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_watch_findings",
		Help: "Findings of the watch at the moment, by kind.",
	}, []string{"kind"})
	m.findings = make(map[FindingKind]prometheus.Gauge, len(FindingKinds))
	for _, kind := range FindingKinds {
		m.findings[kind] = findings.WithLabelValues(string(kind))
	}
	m.overall = gauge("weir_watch_severity", "The worst of the watch's findings: 0 none, 1 warning, 2 critical.")
	m.lookedAt = gauge("weir_watch_looked_at_seconds",
		"Unix time of the check that made the watch's findings; 0 before the first.")
	m.fleetMetrics = newFleetMetrics()
	m.retirementMetrics = newRetirementMetrics(counter, gauge)
	m.everyCollector = append(append(m.everyCollector, m.batchSeconds, up, failures, refused, unheard, findings),
		m.fleetMetrics.all()...)
	return m
}

// BoundIdentity is no signature of the Restate whose requests the handlers take.
const BoundIdentity bounded.Bound = "identity"

// HandlersBounds are those of the handlers' port.
var HandlersBounds = []bounded.Bound{bounded.BoundConnections, bounded.BoundCaller, bounded.BoundSlots,
	bounded.BoundBody, bounded.BoundMemory, bounded.BoundTime, bounded.BoundHost, BoundIdentity}

func refusals(name, help string, bounds []bounded.Bound) (map[bounded.Bound]prometheus.Counter,
	*prometheus.CounterVec) {
	all := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"bound"})
	each := make(map[bounded.Bound]prometheus.Counter, len(bounds))
	for _, bound := range bounds {
		each[bound] = all.WithLabelValues(string(bound))
	}
	return each, all
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.everyCollector {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.everyCollector {
		c.Collect(ch)
	}
}

// MySQLUp records whether MySQL answered.
func (m *Metrics) MySQLUp(up bool) { m.mysqlUp.Set(oneIf(up)) }

// RestateUp records whether Restate answered for an object.
func (m *Metrics) RestateUp(up bool) { m.restateUp.Set(oneIf(up)) }

// ChainRepaired counts a schedule that had died.
func (m *Metrics) ChainRepaired() { m.chainRepairs.Inc() }

// AuthFailed counts a call that was refused for its token.
func (m *Metrics) AuthFailed(reason AuthFailure) {
	if counter, ok := m.authFailures[reason]; ok {
		counter.Inc()
	}
}

// Refused counts a connection or a call that ran into a bound.
func (m *Metrics) Refused(bound bounded.Bound) {
	if counter, ok := m.refused[bound]; ok {
		counter.Inc()
	}
}

// HandlersRefused counts a connection or a request that the handlers' port refused.
func (m *Metrics) HandlersRefused(bound bounded.Bound) {
	if counter, ok := m.unheard[bound]; ok {
		counter.Inc()
	}
}

// CleanupPaused records whether an operator has paused the cleanup.
func (m *Metrics) CleanupPaused(paused bool) { m.paused.Set(oneIf(paused)) }

// CleanupRun counts a run that is over.
func (m *Metrics) CleanupRun(failed bool) {
	m.runs.Inc()
	if failed {
		m.runErrors.Inc()
	}
}

// Health records what the watch finds.
func (m *Metrics) Health(d HealthDocument) {
	found := map[FindingKind]int{}
	for _, f := range d.Findings {
		found[f.Kind]++
	}
	for kind, gauge := range m.findings { // a kind of a newer build has none
		gauge.Set(float64(found[kind]))
	}
	m.overall.Set(float64(max(0, slices.Index([]Severity{SeverityOK, SeverityWarning, SeverityCritical}, d.Overall))))
	m.lookedAt.Set(float64(d.AtMs) / 1000)
}

func (m *Metrics) batch(b Batch, err error) {
	m.batchSeconds.Observe(b.Took.Seconds())
	m.rowsDeleted.Add(float64(b.Rows))
	if err != nil {
		m.batchErrors.Inc()
	}
}

func (m *Metrics) deadNodes(deleted int64) { m.nodesDeleted.Add(float64(deleted)) }

func (m *Metrics) lag(lag time.Duration) { m.lagSeconds.Set(lag.Seconds()) }

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
