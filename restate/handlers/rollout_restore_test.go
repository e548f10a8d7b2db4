package handlers

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/shared/servers"
)

// A baking rollout continues without an operator, to a single outcome, after Restate has lost the rollout, or the lock,
// or both. If an old state is restored after the rollout is over, its outcome does not change.
func TestARolloutIsRestoredFromMySQL(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testARolloutIsRestoredFromMySQL)
}

func testARolloutIsRestoredFromMySQL(t *testing.T) {
	t.Parallel()
	cl, _, db, _, c := newRolloutCluster(t)
	k := cl.keeper(nil)
	k.Rollouts, k.Grace = store.New(db).Rollouts, time.Millisecond
	tunings := []string{newTuning, otherTuning, newTuning}
	for i, lost := range []struct {
		id            string
		rollout, lock bool
	}{{"both", true, true}, {"the-lock", false, true}, {"the-rollout", true, false}} {
		spec := twoStages(1000)
		spec.Tuning = tunings[i]
		if _, err := c.Start(t.Context(), rollout.Start{ID: lost.id, Spec: spec, By: operator}); err != nil {
			t.Fatal(err)
		}
		baking := reaches(t, c, lost.id, "the canary bakes", in(rollout.Baking, 0))
		old, lock := cl.state(RolloutService, lost.id, rolloutKey), cl.state(RolloutsService, rolloutScope, rolloutsKey)
		if lost.rollout {
			cl.putState(RolloutService, lost.id, rolloutKey, nil)
		}
		if lost.lock {
			cl.putState(RolloutsService, rolloutScope, rolloutsKey, nil)
		}
		if err := k.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended := reaches(t, c, lost.id, "the end", over)
		wantRestored(t, ended, lost.rollout)
		if ended.Phase != rollout.Done || ended.StartedMs != baking.StartedMs {
			t.Errorf("%s: %s %q, started at %d, before %d", lost.id, ended.Phase, ended.Why, ended.StartedMs, baking.StartedMs)
		}
		wantInForce(t, db, tunings[i])
		wantUnlocked(t, db, c, lost.id, rollout.Done)

		cl.putState(RolloutService, lost.id, rolloutKey, json.RawMessage(old))
		cl.putState(RolloutsService, rolloutScope, rolloutsKey, json.RawMessage(lock))
		if err := k.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := reaches(t, c, lost.id, "the end again", over)
		wantRestored(t, again, true)
		if again.Phase != rollout.Done || again.EndedMs != ended.EndedMs {
			t.Errorf("%s: ended as %s at %d, and before as %s at %d", lost.id, again.Phase, again.EndedMs, ended.Phase, ended.EndedMs)
		}
		wantInForce(t, db, tunings[i])
		wantUnlocked(t, db, c, lost.id, rollout.Done)
	}
}

// wantRestored checks whether the history has a restore.
func wantRestored(t *testing.T, r rollout.Rollout, want bool) {
	t.Helper()
	restored := 0
	for _, e := range r.Events {
		if e.What == "restore" {
			restored++
		}
	}
	if (restored > 0) != want {
		t.Errorf("rollout %s is restored %d times: %+v", r.ID, restored, r.Events)
	}
}

// An old state of a rollout does nothing before it was compared with MySQL: neither its timer nor an operator's order
// continues from it.
func TestAnOldStateOfARolloutDoesNothing(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testAnOldStateOfARolloutDoesNothing)
}

func testAnOldStateOfARolloutDoesNothing(t *testing.T) {
	t.Parallel()
	cl, _, db, _, c := newRolloutCluster(t)
	if _, err := c.Start(t.Context(), rollout.Start{ID: "old", Spec: twoStages(60_000), By: operator}); err != nil {
		t.Fatal(err)
	}
	reaches(t, c, "old", "the canary bakes", in(rollout.Baking, 0))
	baking := cl.state(RolloutService, "old", rolloutKey)
	if _, err := c.Operate(t.Context(), "old", order(rollout.Abort)); err != nil {
		t.Fatal(err)
	}
	reaches(t, c, "old", "the end", over)
	cl.putState(RolloutService, "old", rolloutKey, json.RawMessage(baking))
	if r, err := c.Operate(t.Context(), "old", order(rollout.Pause)); err == nil {
		t.Errorf("it is paused: %+v", r)
	}
	if r, err := c.Status(t.Context(), "old"); err != nil || r.Phase != rollout.Aborted {
		t.Errorf("%s, %v", r.Phase, err)
	}
	wantInForce(t, db, oldTuning)
	wantUnlocked(t, db, c, "old", rollout.Aborted)
}
