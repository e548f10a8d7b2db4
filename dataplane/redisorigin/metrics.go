package redisorigin

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Collector is what only the Origin can see: its pools of connections, one for each
// partition (the label is its name, and empty where there is only one without), and
// values that are no counts. Calls, their duration and their errors are the limiter's
// metrics.
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

// poolMetric is one figure of a pool.
type poolMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*redis.PoolStats) uint32
}

func poolFigure(kind prometheus.ValueType, name, help string, read func(*redis.PoolStats) uint32) poolMetric {
	return poolMetric{prometheus.NewDesc("weir_origin_pool_"+name, help, []string{"partition"}, nil), kind, read}
}

var poolMetrics = []poolMetric{
	poolFigure(prometheus.CounterValue, "hits_total", "Calls that found an idle connection.",
		func(s *redis.PoolStats) uint32 { return s.Hits }),
	poolFigure(prometheus.CounterValue, "misses_total", "Calls that found no idle connection.",
		func(s *redis.PoolStats) uint32 {
			return s.Misses
		}),
	poolFigure(prometheus.CounterValue, "timeouts_total", "Calls that timed out while they waited for a connection.",
		func(s *redis.PoolStats) uint32 { return s.Timeouts }),
	poolFigure(prometheus.CounterValue, "stale_connections_total",
		"Connections that were removed because they were too old or broken.", func(s *redis.PoolStats) uint32 {
			return s.StaleConns
		}),
	poolFigure(prometheus.GaugeValue, "connections", "Open connections.", func(s *redis.PoolStats) uint32 {
		return s.TotalConns
	}),
	poolFigure(prometheus.GaugeValue, "idle_connections", "Open connections that are idle.",
		func(s *redis.PoolStats) uint32 { return s.IdleConns }),
}

var garbageDesc = prometheus.NewDesc("weir_origin_garbage_values_total",
	"Values read from the origin that are no counts.", nil, nil)

func (c collector) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range poolMetrics {
		descs <- m.desc
	}
	descs <- garbageDesc
}

func (c collector) Collect(metrics chan<- prometheus.Metric) {
	for _, s := range c.origin.shards {
		stats := s.client.PoolStats()
		for _, m := range poolMetrics {
			metrics <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(m.read(stats)), s.name)
		}
	}
	metrics <- prometheus.MustNewConstMetric(garbageDesc, prometheus.CounterValue, float64(c.origin.garbage.Load()))
}
