package console

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/rollout/guard"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/tuning"
)

// Each guardrail shows the margin that is left to its bound, and in which region and node. A guardrail of a newer build
// has its field as its name.
func TestRailsOfARollout(t *testing.T) {
	was, now, most, left, over := 100.0, 250.0, 1000.0, 0.75, -0.5
	drawn := rails(&controlv1.Rollout{Rails: []*controlv1.RolloutRail{
		{Field: "latency_us", Region: "us", Node: "n7", Before: &was, Now: &now, Most: &most, Margin: &left},
		{Field: "rows_per_second", Region: "eu", Now: &now, Most: &most, Margin: &over},
		{Field: "of_a_newer_build", Now: &now},
	}})
	if r := drawn[0]; r.Name != "Decision latency" || r.Where != "us, node n7" || !strings.HasPrefix(r.Margin, "75") || r.Broken || r.Off || r.NowAt != 60 || r.WasAt != 24 {
		t.Errorf("%+v", r)
	}
	if r := drawn[1]; r.Where != "eu" || !r.Broken || r.HasWas {
		t.Errorf("%+v", r)
	}
	if r := drawn[2]; r.Name != "of_a_newer_build" || !r.Off || r.Margin != "" {
		t.Errorf("%+v", r)
	}
}

// The page shows by which means a region runs the tuning, and when the region no longer runs it.
func TestWhereARolloutIs(t *testing.T) {
	w := full(t)
	b := w.as("viewer")
	for want, touched := range map[string]rollout.Touched{
		"being written":           {Region: "eu"},
		"on trial 7":              {Region: "eu", Trial: 7},
		"version 12":              {Region: "eu", Trial: 7, Applied: 12},
		"rolled back, version 13": {Region: "eu", Trial: 7, Applied: 12, Reverted: 13},
		"version 14, written by something else since": {Region: "eu", Trial: 7, Applied: 12, Newer: 14},
		"rolled back, trial 8 has ended":              {Region: "eu", Trial: 8},
		"rolled back, version 9":                      {Region: "eu", Trial: 8, Applied: 8, Reverted: 9},
	} {
		w.set(func() {
			w.one.Touched = []rollout.Touched{touched}
			w.one.TrialsEnded = touched.Trial == 8
		})
		if page := b.get("/console/rollouts/at/r1").body; !strings.Contains(page, "<b>eu</b> "+want) {
			t.Errorf("%+v: not %q", touched, want)
		}
	}
	w.set(func() {
		w.one.TrialsEnded = false
		w.one.Touched = []rollout.Touched{{Region: "eu", Trial: 7, Below: tuning.TrialShare("eu-1") + 1}}
		w.one.Watch = []guard.RegionWatch{{Region: "eu", Nodes: []guard.WatchedNode{{ID: "eu-1"}}}}
	})
	if page := b.get("/console/rollouts/at/r1").body; !strings.Contains(page, "<b>eu</b> on trial 7: 1 of 1 node") {
		t.Error("not how many nodes have it")
	}
}
