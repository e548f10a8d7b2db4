package dataplane_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/window"
)

// gather returns every counter, gauge and histogram's count by its name and labels, as a scrape shows them.
func gather(t testing.TB, l *dataplane.Limiter) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(l)
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

// "Time one decision took; one in 256 is measured", of each kind of decision.
func TestLatencyIsSampled(t *testing.T) {
	for name, r := range map[string]dataplane.Request{"allowed": ask("k", 0, 10), "denied": ask("k", 11, 10)} {
		w := newWorld(t)
		n := w.alone()
		for range 20 * 256 {
			n.Allow(t.Context(), r)
		}
		// A moving stack may count on another stripe: of each the last few are not yet a sample's worth.
		if got := gather(t, n.Limiter)["weir_decision_seconds"]; got < 10 || got > 20 {
			t.Errorf("%s: %g samples of %d decisions", name, got, 20*256)
		}
	}
}
