package metrics_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/metrics"
)

func limiter(t *testing.T) *dataplane.Limiter {
	t.Helper()
	l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "eu-1",
		Origin: memstore.NewOrigin(memstore.OriginOptions{Shards: 2})})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A pedantic registry rejects series that disagree, and the linter rejects non-standard names.
func TestPrometheusTakesAllMetrics(t *testing.T) {
	l := limiter(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.New(l))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, f := range families {
		series += len(f.GetMetric())
	}
	want := 0
	for range l.Metrics() {
		want++
	}
	if series != want || want < 100 {
		t.Errorf("%d series, want the limiter's %d, which are 100 or more", series, want)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// Counters, gauges and histograms have the values that the limiter has, under the labels that it gives them.
func TestMetricsHaveTheLimitersValues(t *testing.T) {
	l := limiter(t)
	r := dataplane.Request{Workspace: "w", Namespace: "n", Identifier: "k", Limit: 1, Duration: time.Hour, Cost: 1}
	l.Allow(t.Context(), r)
	l.Allow(t.Context(), r)
	for name, want := range map[string]string{
		"weir_entries": "# HELP weir_entries Keys held in memory.\n# TYPE weir_entries gauge\nweir_entries 1\n",
		"weir_windows_created_total": "# HELP weir_windows_created_total Keys that requests added to memory.\n" +
			"# TYPE weir_windows_created_total counter\nweir_windows_created_total 1\n",
		"weir_node_info": "# HELP weir_node_info Always 1: the node's region, id and build.\n# TYPE weir_node_info gauge\n" +
			`weir_node_info{build="",node_id="eu-1",region="eu"} 1` + "\n",
	} {
		if err := testutil.CollectAndCompare(metrics.New(l), strings.NewReader(want), name); err != nil {
			t.Error(err)
		}
	}
	for m := range l.Metrics() {
		if m.Name != "weir_origin_pipeline_size" || m.Labels[0] != (dataplane.MetricLabel{Name: "op", Value: "read"}) {
			continue
		}
		last := m.Buckets[len(m.Buckets)-1]
		if m.Kind != dataplane.KindHistogram || m.Sum != 2 || last.Count != 1 || !math.IsInf(last.UpTo, 1) {
			t.Errorf("%+v, want one call with two cells", m)
		}
	}
}

func TestReadingMayEndEarly(t *testing.T) {
	n := 0
	for range limiter(t).Metrics() {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("%d read, want 3", n)
	}
}
