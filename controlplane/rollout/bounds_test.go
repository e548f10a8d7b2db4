package rollout

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/heartbeat"
)

// Each total of a heartbeat counts in its figure.
func TestEveryTotalCounts(t *testing.T) {
	h := heartbeat.Health{
		AllowedTotal: 1, DeniedTotal: 10, ShadowedTotal: 100, DegradedTotal: 7, DroppedCost: 8,
		SettingsErrors: 100, Relay: &heartbeat.Relay{Errors: 11, Rows: 12, Shards: 2, Held: []int{1}},
	}
	want := fleet.Tally{fleet.TallyDecisions: 111, fleet.TallyDenied: 110, fleet.TallyDegraded: 7, fleet.TallyDropped: 8, fleet.TallyErrors: 111, fleet.TallyRows: 12}
	got := fleet.FiguresOf(fleet.Node{Heartbeat: heartbeat.Heartbeat{Health: h}})
	if got.Totals != want || got.Shards != 2 || !slices.Equal(got.Held, []int{1}) {
		t.Errorf("%+v, want %v", got, want)
	}
}

// If the answer of an apply is lost, the trial may exist all the same. The rollback finds it when it ends the trial,
// and waits for the nodes that run it.
func TestALostApplyIsWaitedFor(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Applying })
	if _, err := copyOf(r).Advance(steps.on); err != nil { // made, but the answer is lost
		t.Fatal(err)
	}
	if _, err := r.Operate(order(r, Pause, controltest.Ann), l.now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	l.pass(time.Second)
	l.stubborn = true
	if _, err := r.Operate(order(r, Abort, controltest.Ann), l.now.UnixMilli()); err != nil || r.Paused != nil {
		t.Fatalf("%v, paused %+v", err, r.Paused)
	}
	from := l.now
	play(t, r, steps, func() bool { return r.Phase.Over() || l.now.Sub(from) > time.Minute })
	if got := r.Touched[0]; r.Phase != RollingBack || got.Trial != 1 || got.Applied != 0 || !strings.Contains(r.Waiting, "eu1 in eu runs trial 1") {
		t.Errorf("%s, waiting for %q, %+v", r.Phase, r.Waiting, got)
	}
	l.stubborn = false
	play(t, r, steps, nil)
	if r.Phase != Aborted {
		t.Errorf("%s", r.Phase)
	}
}

func copyOf(r *Rollout) *Rollout {
	c := *r
	c.Touched, c.Watch = append([]Touched(nil), r.Touched...), nil
	return &c
}

// Documents of an older build keep their meaning: a rollback keeps its outcome, and an approval its request. A baseline
// begins again, with the present nodes.
func TestPhasesOfAnOlderBuild(t *testing.T) {
	stages := []plan.StagePlan{{BakeMs: 1000}}
	back := Rollout{Version: 1, Stages: stages, Phase: RollingBack, Wanted: Aborted, Why: "aborted by ann", Touched: []Touched{{Region: "eu", Applied: 1}}}
	back.Upgrade()
	if back.Wanted != Aborted || back.Why != "aborted by ann" {
		t.Errorf("%+v", back)
	}
	asked := Rollout{Version: 1, Stages: stages, Phase: Awaiting, Transitions: controlplane.Transitions{Epoch: 7}}
	asked.Upgrade()
	if o := (Order{Action: Approve, By: controltest.Ann, Stage: 1, Asked: 7}); asked.Asked != 7 || asked.Phase != Awaiting {
		t.Errorf("%+v does not approve %+v", o, asked)
	}
	measuring := Rollout{Version: 1, Stages: stages, Phase: Measuring, DueMs: 99}
	measuring.Upgrade()
	if measuring.DueMs != 0 || measuring.Phase != Measuring {
		t.Errorf("%+v", measuring)
	}
}

// Only a timer of the current epoch is taken, the history is bounded, a region with a newer version prevents a
// rollback, and a rollback clears the end.
func TestADocumentIsOfOneMoment(t *testing.T) {
	if !Lost.Over() {
		t.Error("a lost rollout is under way")
	}
	l := newLand("eu")
	r, steps := begin(t, l, spec(all))
	r.Settle(0)
	if r.Takes(r.Epoch-1) || r.Takes(r.Epoch+1) || !r.Takes(r.Epoch) {
		t.Error("a stale timer is taken")
	}
	for range 2 * controlplane.EventsMax {
		r.AddEvent(1, "ann", "resume", "x")
	}
	play(t, r, steps, nil)
	if len(r.Events) != controlplane.EventsMax || r.Events[len(r.Events)-1].What != string(Done) {
		t.Errorf("%d events", len(r.Events))
	}
	inForce := []tunings.RegionTuning{{Region: "eu", Version: r.Touched[0].Applied}, {Version: r.Touched[1].Applied + 1}}
	if err := r.Overtaken(inForce); err == nil || !strings.Contains(err.Error(), "of the fleet, which has version 3 since") {
		t.Errorf("%v", err)
	}
	if _, err := r.Operate(order(r, RollBack, controltest.Ann), l.now.UnixMilli()); err != nil || r.EndedMs != 0 {
		t.Errorf("%v: it is being rolled back, and ended at %d", err, r.EndedMs)
	}
}
