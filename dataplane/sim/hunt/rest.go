package hunt

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane/metrics"
)

// restFor is how long expired data may stay: a minute on nodes and relays, whose clocks may be some seconds apart, plus
// the 5 s between sweeps.
const restFor = 90 * time.Second

// rest waits until all cells are over, and checks that nodes no longer hold any of them.
func (w *world) rest() *check {
	time.Sleep(2*w.plan.Longest() + restFor)
	c := &check{world: w}
	for _, l := range w.lives() {
		c.empty(l)
	}
	return c
}

// leftOver lists the gauges that must be zero on a node at rest.
var leftOver = []string{
	"weir_entries", "weir_replay_pending_cost", "weir_origin_pending_sync", "weir_relay_cells",
	"weir_relay_unpublished_age_seconds",
}

func (c *check) empty(l *life) {
	figures := c.figures(l)
	for _, name := range leftOver {
		if n := figures[name]; n != 0 {
			c.violate("memory", "%v has %v of %s after all cells have ended", l, n, name)
		}
	}
}

// bounded checks that a node keeps to its bounds: a table has as many entries as it may have, and a relay the cells of
// its region and of others that were accepted in, and that have not ended.
func (c *check) bounded(l *life) {
	figures := c.figures(l)
	if n, most := figures["weir_entries"], figures["weir_entries_max"]; n > most {
		c.violate("memory", "%v has %v entries, at most %v may be", l, n, most)
	}
	most := c.reservations.alive(time.Now().Add(-restFor))
	for _, a := range c.ledger.all() {
		if a.cell.ExpiresAtMs() > time.Now().Add(-restFor).UnixMilli() {
			most++
		}
	}
	if n := figures["weir_relay_cells"]; n > float64(most) {
		c.violate("memory", "%v relays %v cells, and %d were accepted in of late", l, n, most)
	}
}

// figures returns a life's gauges, each the sum of all its shards.
func (c *check) figures(l *life) map[string]float64 {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(l.Limiter))
	if l.Relay != nil {
		registry.MustRegister(l.Relay.Collector())
	}
	families, err := registry.Gather()
	if err != nil {
		c.violate("error", "%v: %v", l, err)
	}
	sums := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sums[f.GetName()] += m.GetGauge().GetValue()
		}
	}
	return sums
}
