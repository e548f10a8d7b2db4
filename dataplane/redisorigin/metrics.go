package redisorigin

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Collector returns the metrics that only the Origin has: its pools of connections, one for each partition (the label
// is the partition's name, which is empty for a single partition without a name), and values that are no counts. Calls,
// their duration and their errors are the limiter's metrics.
//
//	weir_origin_pool_hits_total{partition}
//	weir_origin_pool_misses_total{partition}
//	weir_origin_pool_timeouts_total{partition}
//	weir_origin_pool_stale_connections_total{partition}
//	weir_origin_pool_connections{partition}
//	weir_origin_pool_idle_connections{partition}
//	weir_origin_garbage_values_total
func (h *Origin) Collector() prometheus.Collector { return collector{h} }

type collector struct{ origin *Origin }

var (
	hitsDesc     = poolDesc("hits_total", "Calls that found an idle connection.")
	missesDesc   = poolDesc("misses_total", "Calls that found no idle connection.")
	timeoutsDesc = poolDesc("timeouts_total", "Calls that timed out while they waited for a connection.")
	staleDesc    = poolDesc("stale_connections_total",
		"Connections that were removed because they were too old or broken.")
	openDesc    = poolDesc("connections", "Open connections.")
	idleDesc    = poolDesc("idle_connections", "Open connections that are idle.")
	garbageDesc = prometheus.NewDesc("weir_origin_garbage_values_total",
		"Values read from the origin that are no counts.", nil, nil)
)

func poolDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("weir_origin_pool_"+name, help, []string{"partition"}, nil)
}

func (c collector) Describe(descs chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(c, descs)
}

func (c collector) Collect(metrics chan<- prometheus.Metric) {
	for _, s := range c.origin.shards {
		pool := s.client.PoolStats()
		send := func(desc *prometheus.Desc, kind prometheus.ValueType, n uint32) {
			metrics <- prometheus.MustNewConstMetric(desc, kind, float64(n), s.name)
		}
		send(hitsDesc, prometheus.CounterValue, pool.Hits)
		send(missesDesc, prometheus.CounterValue, pool.Misses)
		send(timeoutsDesc, prometheus.CounterValue, pool.Timeouts)
		send(staleDesc, prometheus.CounterValue, pool.StaleConns)
		send(openDesc, prometheus.GaugeValue, pool.TotalConns)
		send(idleDesc, prometheus.GaugeValue, pool.IdleConns)
	}
	metrics <- prometheus.MustNewConstMetric(garbageDesc, prometheus.CounterValue, float64(c.origin.garbage.Load()))
}
