package mysqlcounts

import (
	"github.com/prometheus/client_golang/prometheus"
)

// totals are counters of events that no call returns. Each counter is reported from the start, as 0.
type totals struct {
	invalidRows prometheus.Counter
	usageErrors prometheus.Counter
	sentAgain   *prometheus.CounterVec
}

func (t totals) all() []prometheus.Collector {
	return []prometheus.Collector{t.invalidRows, t.usageErrors, t.sentAgain}
}

func newTotals() totals {
	t := totals{
		invalidRows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_mysql_invalid_rows_total",
			Help: "Imported rows that were left out because no relay can have written them.",
		}),
		usageErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_mysql_usage_errors_total",
			Help: "Reports of the usage of namespaces that were not stored; the next report has their cost too.",
		}),
		sentAgain: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_mysql_retries_total",
			Help: "Statements sent again because another writer won.",
		}, []string{"cause"}),
	}
	for _, cause := range []string{"deadlock", "lock_wait"} {
		t.sentAgain.WithLabelValues(cause)
	}
	return t
}

func (t totals) retries(cause string) { t.sentAgain.WithLabelValues(cause).Inc() }

// Describe implements prometheus.Collector, so you can register a Counts.
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
