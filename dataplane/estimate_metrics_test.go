package dataplane_test

import (
	"strings"
	"testing"
	"time"
)

// All metrics exist from the start, and count as their names imply.
func TestMetricsOfTheMode(t *testing.T) {
	w := newWorld(t)
	w.estimates(posthog)
	n := w.node("eu", "a")
	for name, v := range gather(t, n.Limiter) {
		if strings.Contains(name, "sync_") || strings.Contains(name, "tier") || strings.Contains(name, "estimate") || strings.Contains(name, "counts_total") {
			if v != 0 {
				t.Errorf("%s is %v at the start", name, v)
			}
		}
	}
	n.known("k", 10, 10)
	n.take("k", 1, 10)
	w.clock.advance(8 * time.Second)
	n.take("k", 0, 10)
	got := gather(t, n.Limiter)
	for name, want := range map[string]float64{
		`weir_eval_counts_total{result="allowed"}`: 2, `weir_eval_counts_total{result="limited"}`: 1, `weir_eval_counts_total{result="shadowed"}`: 0,
		`weir_cache_counts_total{result="hit"}`: 2, `weir_cache_counts_total{result="miss"}`: 1, `weir_cache_counts_total{result="sync_queued"}`: 2,
		`weir_origin_pending_sync{shard="0"}`: 1, "weir_sync_refused_total": 0,
		`weir_sync_tier_keys{tier="hot"}`: 1, `weir_sync_tier_keys{tier="idle"}`: 0, `weir_tier_transitions_total{from="low",to="hot"}`: 1,
		"weir_estimate_drift_ratio": 0, "weir_sync_staleness_seconds": 0,
		`weir_decisions_total{outcome="allowed",source="local"}`: 2,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (there: %v), want %v", name, v, ok, want)
		}
	}
	n.sync()
	got = gather(t, n.Limiter)
	for _, name := range []string{"weir_estimate_drift_ratio", "weir_sync_staleness_seconds"} {
		if got[name] != 1 {
			t.Errorf("%s has %v observations", name, got[name])
		}
	}
	w.clock.advance(5 * time.Minute)
	n.replay()
	n.Sweep()
	if got := gather(t, n.Limiter)[`weir_sync_tier_keys{tier="low"}`]; n.Entries() != 0 || got != 0 {
		t.Errorf("%d keys, of them %v low", n.Entries(), got)
	}
}
