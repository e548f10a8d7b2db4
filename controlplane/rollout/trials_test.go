package rollout

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/tunings"
)

// A lease must outlast a few looks, or it could end while the rollout is healthy.
func TestTheBoundsOfALease(t *testing.T) {
	for ms, c := range map[int64]struct {
		bakeMs, timeoutMs int64
		want              string
	}{
		999:       {100, 1_000, "lease_ms is 999 (1000 to 3600000)"},
		1_000:     {100, 1_000, ""},
		44_999:    {3_600_000, 1_000, "lease_ms is 44999 (45000 to 3600000)"},
		45_000:    {3_600_000, 1_000, ""},
		14_999:    {100, 3_600_000, "lease_ms is 14999 (15000 to 3600000)"},
		15_000:    {100, 3_600_000, ""},
		3_600_000: {100, 1_000, ""},
		3_600_001: {100, 1_000, "lease_ms is 3600001 (1000 to 3600000)"},
	} {
		p := plan.DefaultPlan()
		p.LeaseMs, p.ApplyTimeoutMs = ms, c.timeoutMs
		p.Stages = []plan.Stage{{All: true, BakeMs: c.bakeMs}}
		switch err := p.Validate(); {
		case c.want == "" && err != nil:
			t.Errorf("%d ms: %v", ms, err)
		case c.want != "" && (!errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%d ms: %v, want %q", ms, err, c.want)
		}
	}
}

// While a rollout is dead, nothing renews its trial, so its nodes return to the earlier tuning when the lease ends.
// Once the rollout is alive again, it rolls back with that reason, in any phase.
func TestATrialOutlivesItsRolloutByALease(t *testing.T) {
	for _, phase := range []Phase{Converging, Baking, Awaiting} {
		gated := all
		gated.Approval = true
		l := newLand("eu", "us")
		r, steps := begin(t, l, spec(canary, gated))
		play(t, r, steps, func() bool { return r.Phase == phase })
		lease := time.Duration(r.Spec.Plan.LeaseMs) * time.Millisecond
		l.pass(lease - 40*time.Second)
		if got, _ := l.run("eu1"); got != document30 {
			t.Errorf("%s: before the lease is over eu1 runs %s", phase, got)
		}
		l.pass(time.Minute)
		if got, _ := l.run("eu1"); got != defaultDocument {
			t.Errorf("%s: after the lease eu1 runs %s", phase, got)
		}
		play(t, r, steps, func() bool { return r.Phase.Over() })
		wantRolledBack(t, r, "stage 1 (eu): the trial of region eu was not renewed in time")
		wantFleet(t, l, defaultDocument, "eu", "us")
	}
}

// A node that no longer reads settings leaves the trial when its lease ends, although the rollout renews the trial. The
// stage cannot end, and names the node. A rollback waits until the node has left the trial.
func TestANodeThatIsCutOffLeavesTheTrial(t *testing.T) {
	l := newLand("eu", "us")
	s := spec(plan.Stage{Regions: []string{"eu"}, BakeMs: (10 * time.Minute).Milliseconds()}, all)
	r, steps := begin(t, l, s)
	play(t, r, steps, func() bool { return r.Phase == Baking })
	l.stubborn = true
	play(t, r, steps, func() bool { return r.Phase != Baking })
	if want := "eu1 in eu runs version 0, not trial 1"; r.Phase != RollingBack || !strings.Contains(r.Why, want) {
		t.Errorf("%s %q, want %q", r.Phase, r.Why, want)
	}
}

// If an operator changes the tuning of a region directly, its nodes run that version, and the rollout fails.
func TestADirectChangeEndsARollout(t *testing.T) {
	direct := controltest.Document("floor=0.7")
	for _, c := range []struct {
		phase Phase
		why   string
	}{
		{Applying, "not applied: region eu has version 1, which something else wrote meanwhile"},
		{Converging, "region eu has version 1, which something else wrote meanwhile, and nodes run it"},
		{Baking, "region eu has version 1, which something else wrote meanwhile, and nodes run it"},
		{Keeping, "not stored: region eu has version 1, which something else wrote meanwhile"},
	} {
		l := newLand("eu", "us")
		r, steps := begin(t, l, spec(canary, all))
		play(t, r, steps, func() bool { return r.Phase == c.phase })
		l.rows = append(l.rows, tunings.Write{ID: "direct", Region: "eu", Document: direct})
		play(t, r, steps, func() bool { return r.Phase.Over() })
		wantRolledBack(t, r, c.why)
		if _, got := l.newest("eu"); got != direct {
			t.Errorf("%s: region eu has %s", c.phase, got)
		}
		for node, want := range map[string]string{"eu1": direct, "us1": defaultDocument} {
			if got, _ := l.run(node); got != want {
				t.Errorf("%s: %s runs %s, want %s", c.phase, node, got, want)
			}
		}
		wantNoTrial(t, l, "eu", "us", "")
	}
}

// "done when every live node reports the document's version and hash": until then the state names the nodes that lag.
// If a node never follows, everything is rolled back.
func TestARolloutIsDoneWhenEachNodeHasKeptIt(t *testing.T) {
	for _, follows := range []bool{true, false} {
		l := newLand("eu", "us")
		r, steps := begin(t, l, spec(canary, all))
		play(t, r, steps, func() bool { return r.Phase == Keeping })
		l.stubborn = true
		from := l.now
		play(t, r, steps, func() bool { return r.Phase != Keeping || l.now.Sub(from) > time.Minute })
		if want := "0 of 4 live nodes have applied it; eu1 in eu runs trial 1, not version 1"; r.Phase != Keeping || r.Waiting != want {
			t.Errorf("%s, waiting for %q, want %q", r.Phase, r.Waiting, want)
		}
		if _, err := r.Operate(order(r, Pause, controltest.Ann), l.now.UnixMilli()); !errors.Is(err, controlplane.ErrConflict) {
			t.Errorf("paused while it is kept: %v", err)
		}
		if follows {
			l.stubborn = false
			play(t, r, steps, nil)
			if r.Phase != Done {
				t.Errorf("%s %q", r.Phase, r.Why)
			}
			wantFleet(t, l, document30, "eu", "us")
			continue
		}
		play(t, r, steps, func() bool { return r.Phase == RollingBack })
		l.stubborn = false
		play(t, r, steps, nil)
		wantRolledBack(t, r, "not all nodes run the stored tuning in time: 0 of 4")
		wantFleet(t, l, defaultDocument, "eu", "us")
	}
}

// A node that reports the version with the hash of another document does not run the tuning.
func TestTheHashOfWhatNodesRun(t *testing.T) {
	r := Rollout{Document: document30, Touched: []Touched{{Region: "eu", Trial: 3, Applied: 7}}}
	n := fleet.NodeFigures{ID: "eu1", Region: "eu", Version: 7, Hash: hashed(r.Document)}
	scope := fleet.Scope{Regions: []string{"eu"}}
	for what, c := range map[string]struct {
		change func(*fleet.NodeFigures)
		want   int
	}{
		"runs it":            {func(*fleet.NodeFigures) {}, 1},
		"another version":    {func(n *fleet.NodeFigures) { n.Version = 6 }, 0},
		"another document":   {func(n *fleet.NodeFigures) { n.Hash = hashed(defaultDocument) }, 0},
		"no hash":            {func(n *fleet.NodeFigures) { n.Hash = "" }, 0},
		"still on the trial": {func(n *fleet.NodeFigures) { n.Trial = 3 }, 0},
	} {
		one := n
		c.change(&one)
		if a := r.Touched.applied(fleet.Look{Nodes: []fleet.NodeFigures{one}}, scope, r.Document); a.Applied != c.want || a.Live != 1 {
			t.Errorf("%s: %+v", what, a)
		}
	}
}

// The rollback names the nodes that still report the trial.
func TestARollbackNamesNodesOnTheTrial(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	l.stubborn = true
	operate(t, r, steps, Abort)
	playFor(t, r, steps, 10*time.Second)
	if want := "2 of 2 live nodes still run the withdrawn tuning: eu1 in eu runs trial 1, eu2 in eu runs trial 1"; r.Waiting != want {
		t.Errorf("%s, waiting for %q, want %q", r.Phase, r.Waiting, want)
	}
	if slices.ContainsFunc(l.trials, func(t landTrial) bool { return t.endsMs > 0 }) || len(l.rows) != 0 {
		t.Errorf("trials %+v, versions %+v", l.trials, l.rows)
	}
	play(t, r, steps, nil) // the leases end
	if r.Phase != Aborted {
		t.Errorf("%s %q", r.Phase, r.Waiting)
	}
}

// Version 2 of the state has no trials: its stages wrote versions, which are kept, or reverted.
func TestADocumentWithoutTrials(t *testing.T) {
	for _, action := range []Action{"", Abort} {
		l := newLand("eu", "us")
		r, steps := begin(t, l, spec(canary, all))
		play(t, r, steps, func() bool { return r.Phase == Baking })
		l.rows, l.trials = []tunings.Write{of(r, 0, fleet.Look{}).applyWrite(r.Touched[0])}, nil
		clear(l.tries)
		r.Version, r.Keeps, r.Spec.Plan.LeaseMs, r.Touched[0].Trial, r.Touched[0].Applied = 2, false, 0, 0, 1
		l.pass(time.Second)
		r.Upgrade()
		want, phase := document30, Done
		if action != "" {
			operate(t, r, steps, action)
			want, phase = defaultDocument, Aborted
		}
		play(t, r, steps, nil)
		if r.Phase != phase {
			t.Errorf("%s %q", r.Phase, r.Why)
		}
		wantFleet(t, l, want, "eu", "us")
	}
}
