package rollout

import (
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// While a rollout is paused no approval is accepted. An approval is valid for its stage only, even if it names the
// current request.
func TestApprovalsOutOfOrder(t *testing.T) {
	gated := canary
	gated.Approval = true
	l := newLand("eu", "us")
	r, _ := begin(t, l, spec(gated, all))
	wrong := order(r, Approve, controltest.Ann)
	wrong.Stage = 2
	if _, err := r.Operate(wrong, 1); !errors.Is(err, controlplane.ErrConflict) || r.Phase != Awaiting {
		t.Errorf("of another stage: %s, %v", r.Phase, err)
	}
	if _, err := r.Operate(order(r, Pause, controltest.Ann), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Operate(order(r, Approve, controltest.Ann), 1); !errors.Is(err, controlplane.ErrConflict) || r.Phase != Awaiting {
		t.Errorf("while paused: %s, %v", r.Phase, err)
	}
}

// After a pause each wait of a phase has its full time again, and so does a required query.
func TestAPauseGivesPhasesTheirTime(t *testing.T) {
	for _, c := range []struct {
		phase Phase
		least time.Duration // until it is over
	}{{Measuring, 10 * time.Second}, {Converging, 2 * time.Minute}} {
		l := newLand("eu", "us")
		r, steps := begin(t, l, spec(canary, all))
		play(t, r, steps, func() bool {
			l.stubborn = l.stubborn || r.Phase == Applying && c.phase == Converging
			return r.Phase == c.phase && r.DueMs > 0
		})
		if _, err := r.Operate(order(r, Pause, controltest.Ann), l.now.UnixMilli()); err != nil {
			t.Fatal(err)
		}
		r.Blind = 1
		if c.phase == Measuring {
			l.pass(time.Hour)
		} else {
			playFor(t, r, steps, time.Hour) // it renews the trial
		}
		resumed := l.now
		if _, err := r.Operate(order(r, Resume, controltest.Ann), l.now.UnixMilli()); err != nil || r.Blind != 0 {
			t.Fatalf("%v, blind for %d ms", err, r.Blind)
		}
		play(t, r, steps, func() bool { return r.Phase != c.phase })
		if took := l.now.Sub(resumed); took < c.least {
			t.Errorf("%s takes %v after the pause, want %v", c.phase, took, c.least)
		}
	}
}

// A trial of the fleet's row touches every region, also regions that come later.
func TestTheFleetsRowTouchesAll(t *testing.T) {
	r := Rollout{Touched: []Touched{{Region: "eu"}}}
	if s := r.Touched.scope(); !s.Has("eu") || s.Has("to come") {
		t.Errorf("%+v", s)
	}
	r.Touched = append(r.Touched, Touched{Region: ""})
	if s := r.Touched.scope(); !s.Has("eu") || !s.Has("to come") {
		t.Errorf("%+v", s)
	}
}

// A rollback is neither paused nor begun twice, a rollout under way cannot be rolled back as if it were done, and a
// rejected order changes nothing.
func TestOrdersThatComeAtTheWrongTime(t *testing.T) {
	r := Rollout{ID: "r1", Stages: []plan.StagePlan{{BakeMs: 1000}}, MovedMs: 7, Touched: []Touched{{Region: "eu"}}}
	for _, c := range []struct {
		phase  Phase
		action Action
	}{
		{RollingBack, Pause}, {RollingBack, Abort}, {RollingBack, RollBack},
		{Baking, RollBack}, {Converging, Approve},
	} {
		r.Phase = c.phase
		if _, err := r.Operate(order(&r, c.action, controltest.Ann), 9); !errors.Is(err, controlplane.ErrConflict) || r.Paused != nil || r.Phase != c.phase || r.MovedMs != 7 {
			t.Errorf("%s while %s: %v, %+v", c.action, c.phase, err, r)
		}
	}
}

// A node on the built-in tuning, version 0, does not run a withdrawn tuning.
func TestAVersionThatWasNeverWrittenIsNotWithdrawn(t *testing.T) {
	r := Rollout{Touched: []Touched{{Region: "eu", Newer: 3}}}
	if lag := of(&r, 0, fleet.Look{Nodes: []fleet.NodeFigures{{ID: "eu1", Region: "eu", SeenMs: 1}}}).laggards(); lag != "" {
		t.Error(lag)
	}
}

// A heartbeat of the very moment at which the last version was withdrawn may have been sent before it.
func TestAHeartbeatOfTheMomentOfARollback(t *testing.T) {
	r := Rollout{SinceMs: 5000, Touched: []Touched{{Region: "eu", Applied: 3, Reverted: 4}}}
	for seenMs, heard := range map[int64]bool{4999: false, 5000: false, 5001: true} {
		lag := of(&r, 0, fleet.Look{Nodes: []fleet.NodeFigures{{ID: "eu1", Region: "eu", Version: 4, SeenMs: seenMs}}}).laggards()
		if (lag == "") != heard {
			t.Errorf("at %d: %q", seenMs, lag)
		}
	}
}

// A rollback waits for heartbeats after its own last write, regardless of earlier waits of a bake.
func TestARollbackWaitsForItsOwnHeartbeats(t *testing.T) {
	for action, phase := range map[Action]Phase{Abort: Converging, RollBack: Done} {
		r := Rollout{ID: "r1", Stages: []plan.StagePlan{{BakeMs: 1000}}, Phase: phase, SinceMs: 5000, Touched: []Touched{{Region: "eu", Applied: 3}}}
		if _, err := r.Operate(order(&r, action, controltest.Ann), 9000); err != nil {
			t.Fatal(err)
		}
		r.Touched[0].Reverted = 4
		heard := fleet.NodeFigures{ID: "eu1", Region: "eu", Version: 2, SeenMs: 6000}
		if of(&r, 9000, fleet.Look{AtMs: 9000, Nodes: []fleet.NodeFigures{heard}}).withdraw(); r.Phase != RollingBack {
			t.Errorf("%s: %s by a heartbeat of before it", action, r.Phase)
		}
		heard.SeenMs = 9500
		if of(&r, 9600, fleet.Look{AtMs: 9600, Nodes: []fleet.NodeFigures{heard}}).withdraw(); !r.Phase.Over() {
			t.Errorf("%s: %s, waiting for %q", action, r.Phase, r.Waiting)
		}
	}
}

// of returns a transition of a rollout after a look.
func of(r *Rollout, nowMs int64, look fleet.Look) *transition {
	return &transition{Rollout: r, nowMs: nowMs, look: look}
}
