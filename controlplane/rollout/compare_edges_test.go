package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/guard"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/tuning"
)

// A stage whose only region has a tuning but no node compares nothing, and passes.
func TestAStageWithoutNodesIsNotCompared(t *testing.T) {
	l := newLand("eu", "us")
	l.rows = append(l.rows, tunings.Write{ID: "x", Region: "ap", Document: defaultDocument})
	r, steps := begin(t, l, spec(canary, plan.Stage{SharePercent: 66, BakeMs: 60_000}, all))
	play(t, r, steps, nil)
	if r.Phase != Done {
		t.Errorf("%s %q", r.Phase, r.Why)
	}
}

// inTide returns a rollout of 1 node of 20 and then of all nodes, in a fleet of one region in which each node behaves
// as second does.
func inTide(t *testing.T, baselineMs int64, second does) (*tide, *Rollout, inLand) {
	t.Helper()
	l := newTide(1, 20, second, "a")
	p := plan.DefaultPlan()
	p.BaselineMs, p.Guardrails.DeniedShareShift = baselineMs, 1
	p.Stages = []plan.Stage{part(plan.StageNodes{Nodes: 1}), {All: true}}
	for i := range p.Stages {
		p.Stages[i].BakeMs = 300_000
	}
	r, steps := begin(t, l.land, Spec{Tuning: document30, Plan: p})
	return l, r, steps
}

// One or two errors of a node that had none for a long time are chance, even though its samples never varied before.
//
//weir:unraced
func TestOneErrorIsNoHarm(t *testing.T) {
	for _, errors := range []int{1, 2} {
		for _, baselineMs := range []int64{120_000, 300_000} {
			var began time.Time
			made := 0
			_, r, steps := inTide(t, baselineMs, func(l *tide, h *heartbeat.Health, n *fleet.Row, hasNew bool) {
				l.second(h, n, 0.1, 1)
				if hasNew && began.IsZero() {
					began = l.now
				}
				if hasNew && made < errors && l.now.Sub(began) > time.Minute {
					h.SettingsErrors++
					made++
				}
			})
			play(t, r, steps, nil)
			if r.Phase != Done || made != errors {
				t.Errorf("%d errors after a baseline of %d ms: %s %q", made, baselineMs, r.Phase, r.Why)
			}
		}
	}
}

// A node that joins the share may differ from the nodes of the baseline through no fault of the tuning, so it is not
// compared. The same holds when a node outside the share goes.
func TestNodesThatComeAndGoAreNotCompared(t *testing.T) {
	for _, what := range []string{"joins", "goes"} {
		first := ""
		l, r, steps := inTide(t, 120_000, func(l *tide, h *heartbeat.Health, n *fleet.Row, _ bool) {
			if first == "" {
				first = byShare(l.land, "a")[0]
			}
			denied := map[bool]float64{false: 0.1, true: 0.3}[n.Heartbeat.NodeID == first]
			if what == "goes" {
				denied = map[bool]float64{false: 0.1, true: 0.9}[n.Heartbeat.NodeID == byShare(l.land, "a")[19]]
			}
			l.second(h, n, denied, 1)
		})
		play(t, r, steps, func() bool { return r.Phase == Baking })
		l.pass(30 * time.Second)
		switch what {
		case "joins":
			for i := 0; ; i++ {
				if id := fmt.Sprint("n", i); tuning.TrialShare(id) <= tuning.TrialShare(first) {
					l.join(id, "a")
					break
				}
			}
		case "goes":
			l.dead[byShare(l.land, "a")[19]] = true
		}
		play(t, r, steps, func() bool { return r.Stage == 1 || r.Phase.Over() })
		if r.Phase.Over() {
			t.Errorf("a node %s: %s %q", what, r.Phase, r.Why)
		}
	}
}

// "A baseline begins again" after a pause: earlier comparisons are dropped.
//
//weir:unraced
func TestAPauseForgetsWhatWasCompared(t *testing.T) {
	l := landOf(20, "a")
	s := spec(part(plan.StageNodes{Nodes: 1}), all)
	s.Plan.BaselineMs = 120_000
	r, steps := begin(t, l, s)
	play(t, r, steps, func() bool { return len(r.Compared.Regions) > 0 && len(r.Compared.Regions[0].Beside) > 6 })
	for _, action := range []Action{Pause, Resume} {
		if _, err := r.Operate(order(r, action, controltest.Ann), l.now.UnixMilli()); err != nil {
			t.Fatal(err)
		}
		l.pass(time.Hour)
	}
	if c := r.Compared.Regions[0]; len(c.Beside) != 0 || len(c.Slots) != 0 {
		t.Errorf("%d and %d slots are kept", len(c.Beside), len(c.Slots))
	}
}

// Nodes that come and go while a stage waits for an approval are dropped.
func TestNodesThatComeAndGoAreForgotten(t *testing.T) {
	l := newLand("eu", "us")
	waits := all
	waits.Approval = true
	r, steps := begin(t, l, spec(canary, waits))
	play(t, r, steps, func() bool { return r.Phase == Awaiting })
	for i := range 20 {
		id := fmt.Sprint("us-pod-", i)
		l.join(id, "us")
		for range 3 {
			wait := makeTransition(t, r, steps)
			l.pass(wait)
		}
		l.dead[id] = true
		l.pass(40 * time.Second)
	}
	i := slices.IndexFunc(r.Compared.Regions, func(c guard.ComparedRegion) bool { return c.Region == "us" })
	if b, _ := json.Marshal(r.Compared); len(r.Compared.Regions[i].Nodes) > 5 {
		t.Errorf("%d nodes, %d bytes", len(r.Compared.Regions[i].Nodes), len(b))
	}
}

// All series that can ever exist share the error rate, also the series of regions that come later.
func TestTheErrorRateIsSharedByAll(t *testing.T) {
	l := landOf(4, "eu")
	r, steps := begin(t, l, spec(part(plan.StageNodes{NodesPercent: 25}), part(plan.StageNodes{NodesPercent: 50}),
		part(plan.StageNodes{NodesPercent: 75}), all))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	for i := range 6 {
		for j := range 4 {
			l.join(fmt.Sprintf("x%d-%d", i, j), fmt.Sprint("x", i))
		}
	}
	series := map[int]int{}
	play(t, r, steps, func() bool {
		for _, s := range r.Compared.Stages {
			series[s.Stage] = max(series[s.Stage], len(s.Regions)+len(s.Nodes))
		}
		return r.Stage == 3 && r.Phase == Baking || r.Phase.Over()
	})
	all := 0
	for _, n := range series {
		all += n
	}
	const figures = 5
	each := 1 - r.judge(0).Comparisons()[0].Enough
	if shared := r.Spec.Plan.Guardrails.Comparison.ErrorRate / 2 / figures / each; all <= 10 || float64(all) > shared+0.01 {
		t.Errorf("%d series share the error rate as %v", all, shared)
	}
}

// When a stage is applied, the comparison of nodes of earlier stages ends, because their control group gets the tuning
// too.
func TestNodesOfEarlierStagesAreForgotten(t *testing.T) {
	l := landOf(20, "a")
	r, steps := begin(t, l, spec(part(plan.StageNodes{Nodes: 1}), part(plan.StageNodes{NodesPercent: 50}), all))
	play(t, r, steps, func() bool { return r.Stage == 1 && r.Phase == Baking })
	if len(r.Compared.Stages) != 2 || r.Compared.Stages[0].Nodes != nil || len(r.Compared.Stages[1].Nodes) != 1 {
		t.Errorf("%+v", r.Compared.Stages)
	}
}
