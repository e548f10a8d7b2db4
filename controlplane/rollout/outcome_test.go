package rollout

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/heartbeat"
)

// A rollout has exactly one outcome, and the fleet's tuning agrees with it, for any orders of operators at any moment,
// any steps that fail or are executed twice, and any sick nodes.
//
//weir:unraced
func TestRolloutHasOneOutcome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLand("eu", "us", "ap")
		gated := all
		gated.Approval = rapid.Bool().Draw(t, "gated")
		r, steps := beginRapid(t, l, spec(canary, plan.Stage{SharePercent: 50, BakeMs: 5_000}, gated))
		outcomes := 0
		actions := []Action{"", "", "", "", Approve, Pause, Resume, Abort, "sick", "stubborn", "mute", "kill", "fail", "lose"}
		over := func() bool { return r.Phase.Over() }
		for range rapid.IntRange(0, 60).Draw(t, "moves") {
			if over() {
				break
			}
			switch a := rapid.SampledFrom(actions).Draw(t, "action"); a {
			case "":
				if r.Takes(r.Epoch) {
					advance(t, r, steps)
				}
			case "sick":
				l.sick = func(h *heartbeat.Health, hasNew bool) {
					if hasNew {
						h.SettingsErrors += 10
					}
				}
			case "stubborn":
				l.stubborn = !l.stubborn
			case "mute": // for less than it takes to be lost
				l.silent = true
				l.pass(time.Duration(rapid.IntRange(1, 5).Draw(t, "seconds")) * time.Second)
				l.silent = false
			case "kill":
				l.dead[l.nodes[rapid.IntRange(0, len(l.nodes)-1).Draw(t, "victim")].Heartbeat.NodeID] = true
			case "fail": // nothing is recorded of a step that fails
				l.err = errors.New("MySQL is down")
				if _, err := clone(t, r).Advance(steps.on); err == nil && r.Takes(r.Epoch) {
					t.Fatalf("%s: a failing step went unseen", r.Phase)
				}
				l.err = nil
			case "lose": // executed, and its answer lost
				if r.Takes(r.Epoch) {
					_, _ = clone(t, r).Advance(steps.on)
				}
			default:
				_, _ = r.Operate(order(r, a, controltest.Ann), l.now.UnixMilli())
			}
		}
		for range 5_000 {
			if over() {
				break
			}
			if r.Phase == RollingBack { // a rollback waits forever for nodes that never follow
				l.stubborn = false
			}
			switch {
			case r.Paused != nil:
				_, _ = r.Operate(order(r, Resume, controltest.Ann), l.now.UnixMilli())
			case r.Phase == Awaiting:
				_, _ = r.Operate(order(r, Approve, controltest.Ann), l.now.UnixMilli())
			default:
				advance(t, r, steps)
			}
		}
		for _, e := range r.Events {
			if Phase(e.What).Over() {
				outcomes++
			}
		}
		if !over() || outcomes != 1 {
			t.Fatalf("%s, with %d outcomes: %+v", r.Phase, outcomes, r.Events)
		}
		want := defaultDocument
		if r.Phase == Done {
			want = document30
		}
		for _, n := range l.nodes { // the reported tuning is the real tuning
			if ran, _ := l.run(n.Heartbeat.NodeID); l.now.Sub(n.SeenAt) < 30*time.Second && ran != want {
				t.Fatalf("%s, and %s runs %s", r.Phase, n.Heartbeat.NodeID, ran)
			}
		}
		for _, region := range []string{"eu", "us", "ap", ""} {
			if _, got := l.newest(region); got != want {
				t.Fatalf("%s, and %q runs %s", r.Phase, region, got)
			}
		}
		wantNoTrial(t, l, "eu", "us", "ap", "")
		writes := map[string]bool{}
		for _, w := range l.rows {
			if writes[w.ID] {
				t.Fatalf("%s is written twice", w.ID)
			}
			writes[w.ID] = true
		}
	})
}

func documentOf(l *land, version int64) (int64, string) {
	if version == 0 {
		return 0, defaultDocument
	}
	return version, l.rows[version-1].Document
}

func beginRapid(t *rapid.T, l *land, s Spec) (*Rollout, inLand) {
	r, err := New("r1", s, controltest.Ann, []string{"eu", "us", "ap"}, l.now.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	return r, newInLand(l)
}

func advance(t *rapid.T, r *Rollout, steps inLand) {
	wait, err := r.Advance(steps.on)
	if err != nil {
		t.Fatal(err)
	}
	r.Epoch++
	steps.pass(max(wait, 0))
	*r = *clone(t, r) // only the document survives
}

func clone(t *rapid.T, r *Rollout) *Rollout {
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var c Rollout
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return &c
}

// A write that arrives after the rollback changes nothing. That holds for a trial, and for the versions that should
// stay.
func TestALateWriteChangesNothing(t *testing.T) {
	for _, phase := range []Phase{Applying, Keeping} {
		l := newLand("eu", "us")
		r, steps := begin(t, l, spec(canary, all))
		play(t, r, steps, func() bool { return r.Phase == phase })
		late := of(r, 0, fleet.Look{})
		trial, version := late.trialWrite(r.Touched[0], false), late.applyWrite(r.Touched[0])
		if _, err := r.Operate(order(r, Abort, controltest.Ann), l.now.UnixMilli()); err != nil {
			t.Fatal(err)
		}
		play(t, r, steps, nil)
		if _, err := steps.on.try([]tunings.TrialWrite{trial}, controltest.Ann); err != nil {
			t.Fatal(err)
		}
		if phase == Keeping {
			if _, err := steps.on.write([]tunings.Write{version}); err != nil {
				t.Fatal(err)
			}
		}
		if r.Phase != Aborted || r.Why != "aborted by ann: fewer rows" {
			t.Errorf("%s: %s, %q", phase, r.Phase, r.Why)
		}
		wantFleet(t, l, defaultDocument, "eu", "us")
	}
}
