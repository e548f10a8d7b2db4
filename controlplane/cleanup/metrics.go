package cleanup

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/controlplane"
)

// Metrics are the metrics of the cleanup's steps in this process, as a prometheus.Collector.
type Metrics struct {
	controlplane.Collectors
	lagSeconds        prometheus.Gauge
	rowsDeleted       prometheus.Counter
	batchSeconds      prometheus.Histogram
	batchErrors       prometheus.Counter
	nodesDeleted      prometheus.Counter
	usageDeleted      prometheus.Counter
	partitionsDropped prometheus.Counter
	partitionRows     prometheus.Counter
	partitionsBusy    prometheus.Counter
	partitionsMissing prometheus.Gauge
	partitionsRefused prometheus.Gauge
}

// NewMetrics returns metrics that are not registered.
func NewMetrics() *Metrics {
	m := &Metrics{batchSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "weir_cleanup_batch_seconds",
		Help:    "Time of one bounded DELETE.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})}
	m.Add(m.batchSeconds)
	m.lagSeconds = m.Gauge("weir_cleanup_lag_seconds",
		"How long ago the oldest expired row should have been deleted; 0 when there is none.")
	m.rowsDeleted = m.Counter("weir_cleanup_rows_deleted_total",
		"Expired window counts deleted by this process in batches.")
	m.batchErrors = m.Counter("weir_cleanup_batch_errors_total", "Bounded DELETEs that failed; each is tried again.")
	m.nodesDeleted = m.Counter("weir_cleanup_dead_nodes_deleted_total",
		"Heartbeat rows of dead nodes deleted by this process.")
	m.usageDeleted = m.Counter("weir_cleanup_usage_deleted_total",
		"Rows of the usage of namespaces older than 90 days deleted by this process.")
	m.partitionsDropped = m.Counter("weir_cleanup_partitions_dropped_total",
		"Partitions of expired window counts dropped by this process.")
	m.partitionRows = m.Counter("weir_cleanup_partition_rows_total",
		"Estimated window counts in the dropped partitions, by the statistics of the database.")
	m.partitionsBusy = m.Counter("weir_cleanup_partitions_busy_total",
		"Partitions not dropped or made because a transaction held the table for a second; the next run retries.")
	m.partitionsMissing = m.Gauge("weir_cleanup_partitions_missing",
		"Classes of window counts without partitions made ahead, since too many rows would have to be copied.")
	m.partitionsRefused = m.Gauge("weir_cleanup_partitions_refused",
		"1 while the cleanup deletes rows in batches, since the table has no partitions or the server drops or adds none.")
	return m
}

func (m *Metrics) batch(b Batch, err error) {
	m.batchSeconds.Observe(b.Took.Seconds())
	m.rowsDeleted.Add(float64(b.Rows))
	if err != nil {
		m.batchErrors.Inc()
	}
}

func (m *Metrics) dropped(d Dropped) {
	if d.Partition == "" {
		return
	}
	m.partitionsDropped.Inc()
	m.partitionRows.Add(float64(d.Rows))
}
