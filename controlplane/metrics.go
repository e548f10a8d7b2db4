package controlplane

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/shared/bounded"
)

// Collectors are metrics that are registered together, as one prometheus.Collector.
type Collectors struct{ all []prometheus.Collector }

// Add adds metrics to the collectors.
func (c *Collectors) Add(metrics ...prometheus.Collector) { c.all = append(c.all, metrics...) }

// Counter adds a counter and returns it.
func (c *Collectors) Counter(name, help string) prometheus.Counter {
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	c.Add(counter)
	return counter
}

// Gauge adds a gauge and returns it.
func (c *Collectors) Gauge(name, help string) prometheus.Gauge {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	c.Add(gauge)
	return gauge
}

// Describe implements prometheus.Collector.
func (c *Collectors) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.all {
		m.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (c *Collectors) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.all {
		m.Collect(ch)
	}
}

// Metrics are the metrics of the control plane's process, one prometheus.Collector, apart from cleanup.Metrics and
// watch.Metrics. Names and meanings are in NewMetrics, and advice about each metric is in restate/RUNBOOK.md.
//
// Counters start at 0 with the process and are there from its start, so that an alert on their rate needs no first
// failure.
type Metrics struct {
	Collectors
	runs         prometheus.Counter
	runErrors    prometheus.Counter
	paused       prometheus.Gauge
	mysqlUp      prometheus.Gauge
	restateUp    prometheus.Gauge
	chainRepairs prometheus.Counter
	authFailures map[AuthFailure]prometheus.Counter
	refused      map[bounded.Bound]prometheus.Counter
	unheard      map[bounded.Bound]prometheus.Counter

	rowsRetired   prometheus.Counter
	retiring      prometheus.Gauge
	retireWaits   prometheus.Gauge
	retireTrouble prometheus.Gauge
}

// NewMetrics returns unregistered metrics.
func NewMetrics() *Metrics {
	m := &Metrics{}
	m.runs = m.Counter("weir_cleanup_runs_total", "Cleanup runs that this process finished, with and without an error.")
	m.runErrors = m.Counter("weir_cleanup_run_errors_total", "Cleanup runs that ended in an error.")
	m.paused = m.Gauge("weir_cleanup_paused", "1 while an operator has paused the cleanup's schedule.")
	up := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_control_dependency_up",
		Help: "1 when the dependency answered the last call.",
	}, []string{"dependency"})
	m.mysqlUp, m.restateUp = up.WithLabelValues("mysql"), up.WithLabelValues("restate")
	m.chainRepairs = m.Counter("weir_control_chain_repairs_total", "Schedules that had died and were started again.")
	m.authFailures = counters(&m.Collectors, "weir_control_auth_failures_total", "Calls of the operators' API that were "+
		"refused for their token, by reason.", "reason", AuthFailures)
	m.refused = counters(&m.Collectors, "weir_control_refused_total", "Connections that the operators' port closed and "+
		"calls that it refused to stay within a bound, by that bound.", "bound", bounded.Bounds)
	m.unheard = counters(&m.Collectors, "weir_handlers_refused_total", "Connections that the handlers' port closed and "+
		"requests that it refused, by the bound; identity: Restate has not signed the request.", "bound", HandlersBounds)
	m.rowsRetired = m.Counter("weir_retirement_rows_deleted_total",
		"Expired rows of retired tables deleted by this process.")
	m.retiring = m.Gauge("weir_retirement_under_way", "1 while a table is being retired.")
	m.retireWaits = m.Gauge("weir_retirement_awaiting_approval", "1 while a retirement waits for a person.")
	m.retireTrouble = m.Gauge("weir_retirement_trouble", "1 while a step of a retirement fails and is tried again.")
	m.Add(up)
	return m
}

// AuthFailure is the reason why a call is rejected. The list is fixed, because it is a label of metrics.
type AuthFailure string

// Why calls are refused.
const (
	AuthNoToken      AuthFailure = "no_token"      // no token, for example before signing in
	AuthUnknownToken AuthFailure = "unknown_token" // or a revoked token
	AuthRole         AuthFailure = "role"          // the token's role is not sufficient
	AuthScope        AuthFailure = "scope"         // the token is limited to other workspaces
)

// AuthFailures are all reasons.
var AuthFailures = []AuthFailure{AuthNoToken, AuthUnknownToken, AuthRole, AuthScope}

// BoundIdentity counts requests without the signature of the Restate that the handlers accept.
const BoundIdentity bounded.Bound = "identity"

// HandlersBounds are the bounds of the handlers' port.
var HandlersBounds = []bounded.Bound{bounded.BoundConnections, bounded.BoundCaller, bounded.BoundSlots,
	bounded.BoundBody, bounded.BoundMemory, bounded.BoundTime, bounded.BoundHost, BoundIdentity}

// counters makes a counter for each value of a label.
func counters[V ~string](c *Collectors, name, help, label string, values []V) map[V]prometheus.Counter {
	all := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	c.Add(all)
	each := make(map[V]prometheus.Counter, len(values))
	for _, value := range values {
		each[value] = all.WithLabelValues(string(value))
	}
	return each
}

// MySQLUp records whether MySQL answered.
func (m *Metrics) MySQLUp(up bool) { m.mysqlUp.Set(OneIf(up)) }

// RestateUp records whether Restate answered for an object.
func (m *Metrics) RestateUp(up bool) { m.restateUp.Set(OneIf(up)) }

// ChainRepaired counts a repaired schedule.
func (m *Metrics) ChainRepaired() { m.chainRepairs.Inc() }

// AuthFailed counts a call that was rejected for its token.
func (m *Metrics) AuthFailed(reason AuthFailure) {
	if counter, ok := m.authFailures[reason]; ok {
		counter.Inc()
	}
}

// Refused counts a connection or a call that exceeded a bound.
func (m *Metrics) Refused(bound bounded.Bound) {
	if counter, ok := m.refused[bound]; ok {
		counter.Inc()
	}
}

// HandlersRefused counts a connection or a request that the handlers' port rejected.
func (m *Metrics) HandlersRefused(bound bounded.Bound) {
	if counter, ok := m.unheard[bound]; ok {
		counter.Inc()
	}
}

// CleanupPaused records whether an operator has paused the cleanup.
func (m *Metrics) CleanupPaused(paused bool) { m.paused.Set(OneIf(paused)) }

// CleanupRun counts a run that has ended.
func (m *Metrics) CleanupRun(failed bool) {
	m.runs.Inc()
	if failed {
		m.runErrors.Inc()
	}
}

// RetirementSeen records the state of a table's retirement: whether it is under way, waits for a person, or has a step
// that fails.
func (m *Metrics) RetirementSeen(underWay, waits, trouble bool) {
	m.retiring.Set(OneIf(underWay))
	m.retireWaits.Set(OneIf(waits))
	m.retireTrouble.Set(OneIf(trouble))
}

// RowsRetired counts the deleted rows of a retired table.
func (m *Metrics) RowsRetired(rows int64) { m.rowsRetired.Add(float64(rows)) }

// OneIf returns 1 if b, and otherwise 0, for a gauge that is 1 while a condition holds.
func OneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
