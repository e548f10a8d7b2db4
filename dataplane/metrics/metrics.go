// Package metrics has a limiter's metrics as a collector for Prometheus.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane"
)

type collector struct{ limiter *dataplane.Limiter }

// New returns a collector of Limiter.Metrics, to be registered once.
func New(l *dataplane.Limiter) prometheus.Collector { return collector{l} }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for m := range c.limiter.Metrics() {
		ch <- series(&m)
	}
}

func series(m *dataplane.Metric) prometheus.Metric {
	names, values := make([]string, len(m.Labels)), make([]string, len(m.Labels))
	for i, label := range m.Labels {
		names[i], values[i] = label.Name, label.Value
	}
	d := prometheus.NewDesc(m.Name, m.Help, names, nil)
	switch m.Kind {
	case dataplane.KindHistogram:
		last := len(m.Buckets) - 1 // all values: Prometheus adds the bucket up to +Inf
		upTo := make(map[float64]uint64, last)
		for _, b := range m.Buckets[:last] {
			upTo[b.UpTo] = b.Count
		}
		return prometheus.MustNewConstHistogram(d, m.Buckets[last].Count, m.Sum, upTo, values...)
	case dataplane.KindGauge:
		return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, m.Value, values...)
	default:
		return prometheus.MustNewConstMetric(d, prometheus.CounterValue, m.Value, values...)
	}
}
