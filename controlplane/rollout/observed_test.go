package rollout

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/shared/heartbeat"
)

// playSeldom is play with a control plane that makes each look late.
func playSeldom(t testing.TB, r *Rollout, steps inLand, late time.Duration, until func() bool) {
	t.Helper()
	for range 10_000 {
		if until() {
			return
		}
		wait, err := r.Advance(steps.on)
		if err != nil {
			t.Fatal(err)
		}
		if r.Settle(wait); wait < 0 {
			return
		}
		steps.pass(wait + late)
	}
	t.Fatalf("no end: %+v", r)
}

func overOrPaused(r *Rollout) func() bool {
	return func() bool { return r.Phase.Over() || r.Paused != nil }
}

// shortly returns a canary and all other regions, which bake for half a minute.
func shortly() Spec {
	return longBaseline(spec(plan.Stage{Regions: []string{"eu"}, BakeMs: 30_000}, plan.Stage{All: true, BakeMs: 30_000}))
}

// If the control plane stalls in a bake, it has too few looks to judge by, so the bake takes longer.
func TestASlowControlPlaneMissesNoHarm(t *testing.T) {
	for _, stall := range []time.Duration{15 * time.Second, 28 * time.Second, 4 * time.Minute} {
		l := newLand("eu", "us", "ap")
		r, steps := begin(t, l, shortly())
		l.sick = func(h *heartbeat.Health, hasNew bool) {
			if well(h); hasNew {
				h.SettingsErrors += 100
			}
		}
		stalled := -1 // the newest stage whose bake had a stall
		for !r.Phase.Over() && r.Paused == nil {
			wait := makeTransition(t, r, steps)
			if r.Phase == Baking && stalled < r.Stage {
				stalled = r.Stage
				steps.pass(stall)
			}
			steps.pass(wait)
		}
		wantRolledBack(t, r, "stage 1 (eu): errors of relays and settings a node and minute: ")
	}
}

// The status names the data that a bake lacks, and a harmless rollout passes all the same.
func TestABakeCountsTheTimeThatLooksCover(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, shortly())
	play(t, r, steps, func() bool { return r.Phase == Baking })
	from, waited := l.now, ""
	playSeldom(t, r, steps, 10*time.Second, func() bool {
		if strings.HasPrefix(r.Waiting, "watched") {
			waited = r.Waiting
		}
		return r.Stage == 1
	})
	if took := l.now.Sub(from); took < 100*time.Second {
		t.Errorf("ten looks, 11.5 s apart, took %v", took)
	}
	if want := "watched for 28.5s of 30s, as looks come late: a time between two looks counts for at most 3s"; waited != want {
		t.Errorf("waited for %q, want %q", waited, want)
	}
	if playSeldom(t, r, steps, 10*time.Second, overOrPaused(r)); r.Phase != Done {
		t.Errorf("%s %q, paused %+v", r.Phase, r.Why, r.Paused)
	}
}

// A bake that cannot be watched is paused after three times its length plus apply_timeout_ms. It begins again when an
// operator resumes it.
func TestABakeThatCannotBeWatchedPauses(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, shortly())
	play(t, r, steps, func() bool { return r.Phase == Baking })
	from := l.now
	playSeldom(t, r, steps, 40*time.Second, overOrPaused(r))
	const why = "the guardrails of stage 1 could not judge it in 4m11s: watched for 19.5s of 30s, as looks come late"
	if r.Paused == nil || r.Paused.Actor != "weir-control" || !strings.HasPrefix(r.Paused.Reason, why) || r.Stage != 0 {
		t.Fatalf("%s of stage %d after %v, paused %+v", r.Phase, r.Stage+1, l.now.Sub(from), r.Paused)
	}
	if last := r.Events[len(r.Events)-1]; last.What != "pause" || last.Actor != "weir-control" {
		t.Errorf("%+v", last)
	}
	if _, err := r.Operate(order(r, Resume, controltest.Ann), l.now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	if play(t, r, steps, nil); r.Phase != Done {
		t.Errorf("%s %q", r.Phase, r.Why)
	}
}

// A bake that is shorter than the time between heartbeats ends as soon as counts can be judged.
func TestABakeOutlastsThreeHeartbeatsOfEachNode(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(plan.Stage{Regions: []string{"eu"}, BakeMs: 100}, plan.Stage{All: true, BakeMs: 100}))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	from, waited := l.now, ""
	play(t, r, steps, func() bool {
		l.silent = l.now.Unix()%10 != 0
		if strings.HasPrefix(r.Waiting, "heartbeats in") {
			waited = r.Waiting
		}
		return r.Stage == 1
	})
	if took := l.now.Sub(from); took < 15*time.Second || took > time.Minute {
		t.Errorf("three heartbeats, 10 s apart, took %v", took)
	}
	if !strings.Contains(waited, "heartbeats in fewer than 3 parts of the bake: eu1 in eu (2), eu2 in eu (2)") {
		t.Errorf("waited for %q", waited)
	}
}

// A fleet without traffic bakes like any other, because its heartbeats report that nothing was decided.
func TestAFleetWithoutTrafficIsJudged(t *testing.T) {
	l := newLand("eu", "us")
	l.sick = func(*heartbeat.Health, bool) {}
	r, steps := begin(t, l, spec(canary, all))
	from := l.now
	if play(t, r, steps, nil); r.Phase != Done || l.now.Sub(from) > 4*time.Minute {
		t.Errorf("%s %q, paused %+v, after %v", r.Phase, r.Why, r.Paused, l.now.Sub(from))
	}
}

// If a measured figure exceeds its bound when the bake is over, the stage is held until the figure breaks its guardrail
// or is within its bound again.
func TestAFigureBeyondItsBoundHoldsTheStage(t *testing.T) {
	for name, c := range map[string]struct {
		lasts time.Duration
		want  Phase
	}{
		"for a moment": {20 * time.Second, Done},
		"for good":     {time.Hour, RolledBack},
	} {
		l := newLand("eu", "us")
		r, steps := begin(t, l, spec(canary, all))
		play(t, r, steps, func() bool { return r.Phase == Baking && r.DueMs-l.now.UnixMilli() < 10_000 })
		from := l.now
		l.sick = func(h *heartbeat.Health, hasNew bool) {
			well(h)
			if h.DecisionP99Us = 10; hasNew && l.now.Sub(from) < c.lasts {
				h.DecisionP99Us = 5000
			}
		}
		held := ""
		play(t, r, steps, func() bool {
			if strings.HasPrefix(r.Waiting, "decision latency") {
				held = r.Waiting
			}
			return r.Stage == 1 || r.Phase.Over()
		})
		if !strings.HasPrefix(held, "decision latency in µs is beyond its bound for ") || !strings.Contains(held, ", and breaks it after 30s, of node eu1 in eu") {
			t.Errorf("%s: held by %q", name, held)
		}
		if play(t, r, steps, nil); r.Phase != c.want {
			t.Errorf("%s: %s %q", name, r.Phase, r.Why)
		}
	}
}

// A measured figure breaks its guardrail after enough time between looks that found it beyond its bound. A gap between
// looks counts only in part, so it takes at least three looks.
func TestAMeasuredFigureIsJudgedByThreeLooks(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	l.sick = func(h *heartbeat.Health, hasNew bool) {
		if well(h); hasNew {
			h.DecisionP99Us = 5000
		}
	}
	looks := 0
	playSeldom(t, r, steps, 4*time.Minute, func() bool { looks++; return r.Phase != Baking })
	if looks < 3 || !strings.Contains(r.Why, "decision latency in µs: 5000") {
		t.Errorf("%d looks: %s %q", looks, r.Phase, r.Why)
	}
}
