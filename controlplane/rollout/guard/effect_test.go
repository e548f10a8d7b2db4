package guard

import (
	"slices"
	"testing"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/shared/heartbeat"
)

// A node that was silent and comes back does not count twice.
func TestANodeThatComesBackCountsOnce(t *testing.T) {
	var e Effect
	h := heartbeat.Health{Trial: 1, Limits: new(heartbeat.Limits)}
	judges(&h, 100, 5, 1, 2)
	node := fleet.NodeFigures{ID: "a", Region: "eu", StartedMs: 10, Trial: 1, Limits: h.Limits}
	here, gone := fleet.Look{Nodes: []fleet.NodeFigures{node}}, fleet.Look{}
	silent := fleet.Look{Unheard: []fleet.SilentNode{{ID: "a", Region: "eu"}}}
	trials := map[int64]bool{1: true}
	for name, looks := range map[string][]fleet.Look{
		"silent": {here, silent, here}, "gone": {here, gone, gone}, "moved on": {here, silent, gone},
	} {
		e = Effect{}
		for _, look := range looks {
			e.observe(look, trials)
		}
		got := e.Evidence(trials)
		if got.Judged != 100 || got.NewlyDenied != 5 || got.Callers != 2 || got.Nodes != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A node that restarts begins again at 0, and its earlier figures stay counted. So does a new trial.
func TestTheEffectKeepsFiguresOverRestarts(t *testing.T) {
	var e Effect
	look := func(trial, startedMs, judged, newly int64, callers heartbeat.Callers, ids ...string) {
		h := heartbeat.Health{Trial: trial, Limits: new(heartbeat.Limits)}
		judges(&h, judged, newly, callers...)
		var nodes []fleet.NodeFigures
		for _, id := range ids {
			nodes = append(nodes, fleet.NodeFigures{ID: id, Region: "eu", StartedMs: startedMs, Trial: trial, Limits: h.Limits})
		}
		e.observe(fleet.Look{Nodes: nodes}, map[int64]bool{trial: true})
	}
	r := func() LimitsEvidence { return e.Evidence(map[int64]bool{1: true, 2: true}) }
	look(1, 10, 100, 5, heartbeat.Callers{1, 2}, "a", "b")
	look(1, 20, 30, 1, heartbeat.Callers{3}, "a", "b") // both restart
	if got := r(); got.Judged != 260 || got.NewlyDenied != 12 || got.Callers != 3 || got.Nodes != 2 || got.Namespaces[0].Judged != 260 {
		t.Errorf("after restarts: %+v", got)
	}
	one := e
	e.Nodes = slices.Clone(e.Nodes)
	look(1, 20, 10, 0, nil, "a", "b") // the trial was void for a while
	if got := r(); got.Judged != 280 || got.NewlyDenied != 12 || got.Callers != 3 {
		t.Errorf("after the trial was void: %+v", got)
	}
	e = one
	e.Nodes = slices.Clone(e.Nodes)
	look(1, 30, 50, 2, heartbeat.Callers{1}, "a", "b") // they restart, and have judged more since
	if got := r(); got.Judged != 360 || got.NewlyDenied != 16 {
		t.Errorf("after busy restarts: %+v", got)
	}
	e = one
	look(1, 20, 40, 1, heartbeat.Callers{3}, "a") // b is gone
	if got := r(); got.Judged != 270 || got.Nodes != 2 || got.Callers != 3 || got.Namespaces[0].Judged != 270 {
		t.Errorf("after a node left: %+v", got)
	}
	look(2, 20, 7, 0, nil, "a")
	if got := r(); got.Judged != 7 || got.Nodes != 1 {
		t.Errorf("a new trial: %+v", got)
	}
}

func judges(h *heartbeat.Health, judged, newly int64, callers ...uint64) {
	t := h.Limits
	t.Judged, t.NewlyDenied, t.Callers = t.Judged+judged, t.NewlyDenied+newly, t.Callers.Union(callers)
	t.DeniedBefore, t.DeniedAfter = t.DeniedBefore+judged/10, t.DeniedAfter+judged/10+newly
	t.Namespaces = []heartbeat.LimitsNamespace{{Workspace: []byte("acme"), Namespace: []byte("api"), Judged: t.Judged,
		DeniedBefore: t.DeniedBefore, DeniedAfter: t.DeniedAfter, NewlyDenied: t.NewlyDenied}}
}
