package mysqlcounts

import (
	"github.com/prometheus/client_golang/prometheus"
)

// totals are what nobody sees in an answer. Each is at 0 from the start.
type totals struct {
	invalidRows prometheus.Counter
	sentAgain   *prometheus.CounterVec
	touched     prometheus.Counter
	fullImports *prometheus.CounterVec
	replicaLag  prometheus.Gauge
	replicaLeft *prometheus.CounterVec
}

func (t totals) all() []prometheus.Collector {
	return []prometheus.Collector{t.invalidRows, t.sentAgain, t.touched, t.fullImports, t.replicaLag, t.replicaLeft}
}

func newTotals() totals {
	t := totals{
		invalidRows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_mysql_invalid_rows_total",
			Help: "Imported rows that no data plane can have written, left out.",
		}),
		sentAgain: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_mysql_retries_total",
			Help: "Statements sent again because another writer won.",
		}, []string{"cause"}),
		touched: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_mysql_late_publishes_total",
			Help: "Publishes that took so long that their rows must be stamped anew, or an import could overlook them.",
		}),
		fullImports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_mysql_full_imports_total",
			Help: "Imports that read all live cells: asked for, after a long pause, or because the database's clock went back.",
		}, []string{"cause"}),
		replicaLag: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_mysql_replica_lag_seconds",
			Help: "Age of the newest change that the replica has, by the primary's clock; 0 without a replica. A fleet without traffic shows the age of its last heartbeat.",
		}),
		replicaLeft: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_mysql_replica_fallbacks_total",
			Help: "Reads that went to the primary because the replica failed or was too far behind.",
		}, []string{"cause"}),
	}
	for vec, causes := range map[*prometheus.CounterVec][]string{
		t.sentAgain:   {"deadlock", "lock_wait"},
		t.fullImports: {"asked", "pause", "clock"},
		t.replicaLeft: {"error", "lag"},
	} {
		for _, cause := range causes {
			vec.WithLabelValues(cause)
		}
	}
	return t
}

func (t totals) retries(cause string) { t.sentAgain.WithLabelValues(cause).Inc() }

// Describe implements prometheus.Collector: a store can be registered as it is.
func (c *Counts) Describe(ch chan<- *prometheus.Desc) {
	for _, t := range c.totals.all() {
		t.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (c *Counts) Collect(ch chan<- prometheus.Metric) {
	for _, t := range c.totals.all() {
		t.Collect(ch)
	}
}

var _ prometheus.Collector = (*Counts)(nil)
