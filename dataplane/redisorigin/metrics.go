package redisorigin

import "github.com/prometheus/client_golang/prometheus"

// Collector is what only the Origin can see: its pool of connections, and values that
// are no counts. Calls, their duration and their errors are the limiter's metrics.
func (o *Origin) Collector() prometheus.Collector { return collector{o} }

type collector struct{ origin *Origin }

func describe(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("weir_redis_"+name, help, nil, nil)
}

var (
	hitsDesc     = describe("pool_hits_total", "Calls that found an idle connection.")
	missesDesc   = describe("pool_misses_total", "Calls that found none.")
	timeoutsDesc = describe("pool_timeouts_total", "Calls that waited for a connection in vain.")
	staleDesc    = describe("pool_stale_connections_total", "Connections that were removed because they were too old or broken.")
	totalDesc    = describe("pool_connections", "Open connections.")
	idleDesc     = describe("pool_idle_connections", "Open connections that nobody uses.")
	garbageDesc  = describe("garbage_values_total", "Values that were read and were no counts.")
)

func (c collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{hitsDesc, missesDesc, timeoutsDesc, staleDesc, totalDesc, idleDesc, garbageDesc} {
		descs <- d
	}
}

func (c collector) Collect(metrics chan<- prometheus.Metric) {
	s := c.origin.shards[0].client.PoolStats()
	counter := func(d *prometheus.Desc, v uint32) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	gauge := func(d *prometheus.Desc, v uint32) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	counter(hitsDesc, s.Hits)
	counter(missesDesc, s.Misses)
	counter(timeoutsDesc, s.Timeouts)
	counter(staleDesc, s.StaleConns)
	gauge(totalDesc, s.TotalConns)
	gauge(idleDesc, s.IdleConns)
	metrics <- prometheus.MustNewConstMetric(garbageDesc, prometheus.CounterValue, float64(c.origin.garbage.Load()))
}
