package rollout

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/heartbeat"
)

// Each stage: write the trial for the stage's regions -> wait until every live node there reports it applied -> bake ->
// next stage.
func TestRolloutReachesTheFleetStageByStage(t *testing.T) {
	l := newLand("eu", "us", "ap")
	r, steps := begin(t, l, spec(canary, plan.Stage{SharePercent: 60, BakeMs: 60_000}, all))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	for region, want := range map[string]string{"eu": document30, "us": defaultDocument,
		"ap": defaultDocument} {
		if got := l.inForce(region+"1", region); got != want {
			t.Errorf("while the canary bakes %s runs %s", region, got)
		}
	}
	if len(l.rows) != 0 {
		t.Errorf("%d versions are stored while the canary bakes", len(l.rows))
	}
	if at := l.now; at.Sub(controltest.Day) < 10*time.Second {
		t.Errorf("no baseline was taken: it bakes after %v", at.Sub(controltest.Day))
	}
	play(t, r, steps, nil)
	if r.Phase != Done || r.Why != "" || r.EndedMs != l.now.UnixMilli() {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
	wantFleet(t, l, document30, "eu", "us", "ap", "a region to come")
	var order, tried []string
	for _, w := range l.trials {
		tried = append(tried, w.Region)
	}
	for _, w := range l.rows {
		order = append(order, w.Region)
		if w.Actor != "ann" || w.Reason != "rollout r1: fewer rows" {
			t.Errorf("by %+v", w.By)
		}
	}
	if want := []string{"eu", "ap", "us", ""}; !slices.Equal(order, want) || !slices.Equal(tried, want) {
		t.Errorf("written in the order %q, tried in the order %q", order, tried)
	}
	if least := 3 * 70 * time.Second; l.now.Sub(controltest.Day) < least {
		t.Errorf("three stages of 10 s and 60 s took %v", l.now.Sub(controltest.Day))
	}
}

// A rollback ends the trials of every touched region, and writes no version. The status has a one-line reason with the
// figure, its bound, the node and the region, whichever stage they are in.
func TestRolloutRollsBackOnABreach(t *testing.T) {
	for name, tc := range map[string]struct {
		sick func(*heartbeat.Health)
		why  string
	}{
		"errors": {func(h *heartbeat.Health) { h.SettingsErrors++ },
			"stage 1 (eu): errors of relays and settings a node and minute: |, more than 6 (before the stage 0), of |region eu"},
		"rows": {func(h *heartbeat.Health) { relayRows(h, 5000) },
			"stage 1 (eu): MySQL rows of a region's relays a second: |, more than 1000 (before the stage 0), of region eu"},
		"denials": {func(h *heartbeat.Health) { h.DeniedTotal += 80 },
			"stage |: share of denied decisions: |, off by more than 0.2 (before the stage 0.1), of |region "},
		"degraded": {func(h *heartbeat.Health) { h.DegradedTotal += 50 },
			"stage 1 (eu): share of decisions without the origin: |, more than 0.01 (before the stage 0), of |region eu"},
		"slow": {func(h *heartbeat.Health) { h.DecisionP99Us = 5000 },
			"stage 1 (eu): decision latency in µs: 5000, more than 1000 (before the stage 0), of node eu1 in region eu"},
		"dropped": {func(h *heartbeat.Health) { h.DroppedCost = 3 },
			"stage 1 (eu): nodes dropped accepted cost: 3, more than 0, of node eu1 in region eu"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLand("eu", "us", "ap")
			l.rows = []tunings.Write{{Region: "us", Document: controltest.Document("floor=0.6")}}
			r, steps := begin(t, l, longBaseline(spec(canary, all)))
			play(t, r, steps, func() bool { return r.Stage == 1 && r.Phase == Baking })
			l.sick = func(h *heartbeat.Health, hasNew bool) {
				h.AllowedTotal += 90
				h.DeniedTotal += 10
				if hasNew {
					tc.sick(h)
				}
			}
			from := l.now
			play(t, r, steps, nil)
			wantRolledBack(t, r, strings.Split(tc.why, "|")...)
			if took := l.now.Sub(from); took > time.Minute {
				t.Errorf("it took %v, more than a bake", took)
			}
			wantFleet(t, l, defaultDocument, "eu", "ap")
			if _, got := l.newest("us"); got != controltest.Document("floor=0.6") {
				t.Errorf("us had a tuning of its own, and now runs %s", got)
			}
			if len(l.rows) != 1 {
				t.Errorf("versions were written: %+v", l.rows[1:])
			}
		})
	}
}

// A stage waits until every live node reports the trial applied, or times out.
func TestRolloutRollsBackWhatNodesDoNotApply(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	l.stubborn = true
	play(t, r, steps, nil)
	if r.Phase != RolledBack ||
		r.Why != "stage 1 (eu): not all nodes run it in time: 0 of 2 live nodes have applied it; eu1 in eu runs version 0, not trial 1" {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
	wantFleet(t, l, defaultDocument, "eu", "us")
}

// A stage does not pass if its nodes fall silent during the bake.
func TestRolloutRollsBackWhenNodesFallSilent(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	l.silent = true
	play(t, r, steps, nil)
	if r.Phase != RolledBack || !strings.Contains(r.Why, "nodes without heartbeats: 2 of 2") {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
}

// A node that restarts counts from 0; that is neither a drop nor a loss.
func TestRestartsDuringABake(t *testing.T) {
	l := newLand("eu")
	r, steps := begin(t, l, spec(canary))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	for i := range l.nodes {
		l.nodes[i].Heartbeat.StartedAtMs, l.nodes[i].Health = 2, `{}`
	}
	play(t, r, steps, nil)
	if r.Phase != Done {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
}

// A stage with Approval waits until a person approves; the stage before bakes without approval.
func TestRolloutWaitsForApproval(t *testing.T) {
	l := newLand("eu", "us")
	gated := all
	gated.Approval = true
	r, steps := begin(t, l, spec(canary, gated))
	if _, err := r.Operate(order(r, Approve, controltest.Ann), 1); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("an approval that nobody asked for: %v", err)
	}
	play(t, r, steps, nil)
	if r.Phase != Awaiting || r.Stage != 1 {
		t.Fatalf("%s of stage %d", r.Phase, r.Stage)
	}
	if got := l.inForce("us1", "us"); got != defaultDocument {
		t.Error("applied without an approval")
	}
	if wait, err := r.Operate(order(r, Approve, controltest.Ann), l.now.UnixMilli()); wait != 0 || err != nil {
		t.Errorf("%v, %v", wait, err)
	}
	play(t, r, steps, nil)
	if r.Phase != Done {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
}

// A paused rollout does not advance, but its touched regions are watched. Once resumed, its stage bakes in full.
func TestRolloutPause(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Baking && l.now.Sub(controltest.Day) > 60*time.Second })
	if wait, err := r.Operate(order(r, Pause, controltest.Ann), l.now.UnixMilli()); wait <= 0 || err != nil ||
		!r.Takes(r.Epoch) {
		t.Errorf("%v, %v", wait, err)
	}
	if _, err := r.Operate(order(r, Pause, controltest.Ann), 1); !errors.Is(err, controlplane.ErrConflict) ||
		!strings.Contains(err.Error(), "baking, paused by ann") {
		t.Errorf("paused twice: %v", err)
	}
	paused := l.now
	play(t, r, steps, func() bool { return l.now.Sub(paused) > time.Hour })
	if r.Phase != Baking || r.Paused == nil {
		t.Errorf("%s", r.Phase)
	}
	if wait, err := r.Operate(order(r, Resume, controltest.Ann), l.now.UnixMilli()); wait != 0 || err != nil ||
		!r.Takes(r.Epoch) {
		t.Errorf("%v, %v", wait, err)
	}
	resumed := l.now
	play(t, r, steps, func() bool { return r.Stage == 1 })
	if baked := l.now.Sub(resumed); baked < time.Minute {
		t.Errorf("it baked for %v more", baked)
	}
	play(t, r, steps, nil)
	if r.Phase != Done {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
}

func TestAFinishedRolloutIsRolledBack(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, nil)
	if _, err := r.Operate(order(r, Abort, controltest.Ann), 1); !errors.Is(err, controlplane.ErrConflict) ||
		!strings.Contains(err.Error(), "roll it back instead of aborting it") {
		t.Errorf("%v", err)
	}
	if _, err := r.Operate(order(r, RollBack, controltest.Ann), l.now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	play(t, r, steps, nil)
	if r.Phase != RolledBack || r.Why != "rolled back by ann: fewer rows" {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
	var reverted []string
	for _, w := range l.rows[3:] {
		reverted = append(reverted, w.Region)
	}
	if !slices.Equal(reverted, []string{"", "us", "eu"}) {
		t.Errorf("reverted in the order %q", reverted)
	}
	wantFleet(t, l, defaultDocument, "eu", "us")
	for _, action := range []Action{Approve, Pause, Resume, Abort, RollBack} {
		if _, err := r.Operate(order(r, action, controltest.Ann), 1); !errors.Is(err, controlplane.ErrConflict) {
			t.Errorf("%s of one that is rolled back: %v", action, err)
		}
	}
	if _, err := r.Operate(order(r, "explode", controltest.Ann), 1); !errors.Is(err, controlplane.ErrInvalid) {
		t.Error(err)
	}
	if _, err := r.Operate(order(r, Resume, controlplane.By{Actor: "ann"}), 1); !errors.Is(err,
		controlplane.ErrInvalid) {
		t.Error(err)
	}
}

// A timer counts as lost when it is too late for any other reason. A rollout that waits for a person, or is over, has
// no timer to lose.
func TestRolloutIsDeadWhenItsTimerIsLate(t *testing.T) {
	l := newLand("eu")
	r, steps := begin(t, l, spec(plan.Stage{All: true, BakeMs: 1000}))
	at := l.now.UnixMilli()
	wait, err := r.Advance(steps.on)
	if err != nil {
		t.Fatal(err)
	}
	epoch := r.Epoch
	r.Settle(wait)
	if r.Epoch != epoch+1 || r.TimerMs != at+wait.Milliseconds() {
		t.Errorf("epoch %d after %d, timer at %d", r.Epoch, epoch, r.TimerMs)
	}
	for _, c := range []struct {
		what   string
		change func(*Rollout)
		afterS int64
		want   bool
	}{
		{"due", func(*Rollout) {}, 0, false},
		{"a little late", func(*Rollout) {}, 10, false},
		{"too late", func(*Rollout) {}, 11, true},
		{"paused", func(r *Rollout) { r.Paused = &Paused{} }, 11, false},
		{"waits for a person", func(r *Rollout) { r.Phase = Awaiting }, 11, false},
		{"paused, with something to watch", func(r *Rollout) { r.Paused, r.Touched = &Paused{}, []Touched{{}} }, 11,
			true},
		{"waits for a person, with something to watch", func(r *Rollout) {
			r.Phase, r.Touched = Awaiting,
				[]Touched{{}}
		}, 11, true},
		{"over", func(r *Rollout) { r.Phase = Done }, 11, false},
		{"written by an older build", func(r *Rollout) { r.TimerMs = 0 }, 0, true},
	} {
		one := *r
		c.change(&one)
		if got := one.Overdue(r.TimerMs+1000*c.afterS, 10*time.Second); got != c.want {
			t.Errorf("%s: dead is %v", c.what, got)
		}
	}
	r.Revive(at + 99)
	r.Settle(0)
	if last := r.Events[len(r.Events)-1]; last.What != "revive" || r.TimerMs != at+99 {
		t.Errorf("%+v, timer at %d", last, r.TimerMs)
	}
}
