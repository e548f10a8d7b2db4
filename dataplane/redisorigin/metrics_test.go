package redisorigin_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/shared/servers"
)

// gathered returns the values of the Origin's collector in a registry that checks them.
func gathered(t testing.TB, o *redisorigin.Origin) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(o.Collector())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return values
}

func TestCollectorShowsThePool(t *testing.T) {
	o := openAt(t, servers.RedisForTest(t).Addr(), redisorigin.Options{})
	for range 5 {
		read(t, o, cellNow("x", 1e9))
	}
	got := gathered(t, o)
	if got["weir_origin_pool_connections"] < 1 || got["weir_origin_pool_idle_connections"] < 1 {
		t.Errorf("no connection after five reads: %v", got)
	}
	if got["weir_origin_pool_hits_total"]+got["weir_origin_pool_misses_total"] < 5 {
		t.Errorf("less than five calls after five reads: %v", got)
	}
	for _, name := range []string{"pool_timeouts_total", "pool_stale_connections_total", "garbage_values_total"} {
		if v, ok := got["weir_origin_"+name]; !ok || v != 0 {
			t.Errorf("%s is %v, %v", name, v, ok)
		}
	}
}

// Each partition has a pool of its own, and its name is the label.
func TestCollectorTellsPartitionsApart(t *testing.T) {
	_, urls := partitionsForTest(t)
	o := openPartitions(t, urls)
	read(t, o, oneInEach(o)...)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(o.Collector())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "weir_origin_pool_connections" {
			continue
		}
		for i, m := range f.GetMetric() {
			if label := m.GetLabel()[0]; label.GetName() != "partition" || label.GetValue() != letters(3)[i] || m.GetGauge().GetValue() < 1 {
				t.Errorf("%v", m)
			}
		}
		if n := len(f.GetMetric()); n != 3 {
			t.Errorf("%d pools", n)
		}
		return
	}
	t.Error("no connections are counted")
}
