package controlplane

import "testing"

// A node that has started anew counts from 0: all that it has counted is since then. One
// that has not spoken again says nothing, and one that is not there any more is lost.
func TestRates(t *testing.T) {
	before := HealthSnapshot{Nodes: []NodeFigures{
		{ID: "runs", StartedMs: 1, SentMs: 1000, Errors: 100, Decisions: 1000, Denied: 500, Rows: 10},
		{ID: "restarts", StartedMs: 1, SentMs: 1000, Errors: 1000, Decisions: 5000, Denied: 5000, Dropped: 7},
		{ID: "silent", StartedMs: 1, SentMs: 1000},
		{ID: "gone", StartedMs: 1, SentMs: 1000},
	}}
	after := HealthSnapshot{Nodes: []NodeFigures{
		{ID: "runs", StartedMs: 1, SentMs: 31_000, Errors: 103, Decisions: 1100, Denied: 510, Rows: 70},
		{ID: "restarts", StartedMs: 2, SentMs: 31_000, Errors: 5, Decisions: 100, Denied: 40},
		{ID: "silent", StartedMs: 1, SentMs: 1000, Errors: 99},
		{ID: "new", StartedMs: 9, SentMs: 31_000, Errors: 99},
	}}
	r := before.Rates(after)
	if r.Nodes != 2 || r.NodesLost != 1 || r.DroppedCost != 0 {
		t.Errorf("%+v", r)
	}
	for name, f := range map[string]struct {
		got  *float64
		want float64
	}{
		"errors a node and minute": {r.ErrorsPerMinute, 8}, // 3 + 5 in twice 30 s
		"rows a node and second":   {r.RowsPerSecond, 1},   // 60 in twice 30 s
		"share denied":             {r.DeniedShare, 0.25},  // 10 + 40 of 100 + 100
		"share degraded":           {r.DegradedShare, 0},
	} {
		if f.got == nil || *f.got != f.want {
			t.Errorf("%s: %v, want %v", name, f.got, f.want)
		}
	}
	few := HealthSnapshot{Nodes: []NodeFigures{{ID: "a", SentMs: 1}}}
	if r := few.Rates(HealthSnapshot{Nodes: []NodeFigures{{ID: "a", SentMs: 2, Decisions: decisionsMin - 1, Denied: 50}}}); r.DeniedShare != nil {
		t.Errorf("a share of %d decisions: %v", decisionsMin-1, *r.DeniedShare)
	}
}

// What nodes report beside the rest is held to its ceiling; what they do not, is not.
func TestReportedFigures(t *testing.T) {
	row := FleetRow{Health: `{"convergence_p99_ms":40000,"convergence_samples":3,"decision_p99_us":12}`, SeenAt: day}
	row.Beat.NodeID, row.Beat.Region = "n", "eu"
	node := readNode(row, day, 0)
	s := TakeHealth(Fleet{Nodes: []Node{node, {Live: true, Beat: node.Beat}}}, RolloutScope{Rest: true}, nil)
	if s.ConvergenceMs == nil || *s.ConvergenceMs != 40000 || s.LatencyUs == nil || *s.LatencyUs != 12 {
		t.Fatalf("%+v", s)
	}
	g := DefaultGuardrails()
	if got, want := g.Breach(HealthRates{}, HealthRates{ConvergenceMs: s.ConvergenceMs}), "convergence delay in ms: 40000, more than 30000 (before the stage 0)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := g.Breach(HealthRates{ConvergenceMs: s.ConvergenceMs}, HealthRates{ConvergenceMs: s.ConvergenceMs}); got != "" {
		t.Errorf("as before: %q", got)
	}
	quick, noise := 1.0, 900.0
	if got := g.Breach(HealthRates{LatencyUs: &quick}, HealthRates{LatencyUs: &noise}); got != "" {
		t.Errorf("noise below a millisecond: %q", got)
	}
	g.ConvergenceMs.Off = true
	if got := g.Breach(HealthRates{}, HealthRates{ConvergenceMs: s.ConvergenceMs}); got != "" {
		t.Errorf("turned off: %q", got)
	}
}
