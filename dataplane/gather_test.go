package dataplane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/metrics"
	"github.com/weirhq/weir/shared/window"
)

// gather returns every counter, gauge and histogram's count by its name and labels, as a scrape shows them.
func gather(t testing.TB, l *dataplane.Limiter) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(metrics.New(l))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, p := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", p.GetName(), p.GetValue()))
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func windowKey(r dataplane.Request) window.Key {
	return window.Key{Workspace: r.Workspace, Namespace: r.Namespace, Identifier: r.Identifier, Duration: r.Duration}
}

// One decision in 256 is measured, for each kind of decision.
func TestLatencyIsSampled(t *testing.T) {
	for name, r := range map[string]dataplane.Request{"allowed": ask("k", 0, 10), "denied": ask("k", 11, 10)} {
		w := newWorld(t)
		n := w.alone()
		for range 20 * 256 {
			n.Allow(t.Context(), r)
		}
		// A stack that moves may count on another stripe. The last few decisions of each stripe are too few for a sample.
		if got := gather(t, n.Limiter)[`weir_decision_seconds{source="local"}`]; got < 10 || got > 20 {
			t.Errorf("%s: %g samples of %d decisions", name, got, 20*256)
		}
	}
}

// The overshoot is estimated: cost above the limit that is found when nodes or regions receive each other's counts is
// counted, once on each node that counts the key.
func TestOvershootIsCounted(t *testing.T) {
	const overshoot = "weir_overshoot_cost_total"
	w := newWorld(t)
	w.flushes()
	a, b, c := w.node("eu", "a"), w.node("eu", "b"), w.node("us", "c")
	for _, n := range []*node{a, b, c} {
		n.take("k", 0, 10) // all have read the key, and found nothing
	}
	a.take("k", 6, 10)
	a.take("k", 6, 10)
	b.take("k", 6, 10)
	c.take("k", 3, 10)
	a.take("fine", 5, 10)
	b.take("fine", 5, 10)
	a.replay()
	b.replay()
	w.clock.advance(6 * time.Second) // a's counts are no longer fresh
	a.take("k", 0, 10)
	a.take("fine", 0, 10)
	for _, n := range []*node{a, b} {
		if got := gather(t, n.Limiter)[overshoot]; got != 2 {
			t.Errorf("6 and 6 of 10 in a region: %g too many", got)
		}
	}
	c.replay()
	for _, n := range []*node{a, c, a, c} {
		n.replay()
		n.w.publish()
	}
	for name, n := range map[string]*node{"a": a, "c": c} {
		if got := gather(t, n.Limiter)[overshoot]; got != 5 {
			t.Errorf("6, 6 and 3 of 10 in two regions, on %s: %g too many", name, got)
		}
	}
}

// weir_origin_pipeline_size{op}, weir_origin_records_total{op}, weir_origin_tick_seconds: cells by call, and rounds
// that sent something.
func TestWhatTheOriginIsSentIsCounted(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	for _, identifier := range []string{"a", "b", "c"} {
		n.take(identifier, 1, 10) // hydrates: a call of two cells each
	}
	n.replay()
	n.replay() // has nothing to send
	got := gather(t, n.Limiter)
	for name, want := range map[string]float64{
		`weir_origin_records_total{op="read"}`:    6,
		`weir_origin_pipeline_size{op="read"}`:    3,
		`weir_origin_records_total{op="send"}`:    3,
		`weir_origin_pipeline_size{op="send"}`:    1,
		`weir_origin_records_total{op="claim"}`:   0,
		`weir_origin_tick_seconds{loop="replay"}`: 1,
		`weir_origin_tick_seconds{loop="sync"}`:   0,
	} {
		if v, there := got[name]; !there || v != want {
			t.Errorf("%s is %g, want %g", name, v, want)
		}
	}
}
