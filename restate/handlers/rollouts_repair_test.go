package handlers

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/tuning"
)

// putState sets the single value of an object, and waits until it is stored; nil: it has none.
func (c *cluster) putState(service, object, key string, value any) {
	c.t.Helper()
	want := ""
	if value == nil {
		c.admin(http.MethodPost, "/services/"+service+"/state", map[string]any{"object_key": object, "new_state": map[string]any{}}, nil)
	} else {
		c.setState(service, object, key, value)
		text, err := json.Marshal(value)
		if err != nil {
			c.t.Fatal(err)
		}
		want = string(text)
	}
	await.NoError(c.t, "the state is another", func() error {
		if got := c.state(service, object, key); got != want {
			return errors.New(got)
		}
		return nil
	})
}

// If a rollout is over but unknown to the lock, starting it again returns its state and does not take the lock. Rolling
// it back does not undo newer rollouts. The keeper corrects a wrong lock, and a lost rollout blocks nothing.
func TestARolloutThatTheLockDoesNotKnow(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testARolloutThatTheLockDoesNotKnow)
}

func testARolloutThatTheLockDoesNotKnow(t *testing.T) {
	t.Parallel()
	cl, _, db, _, c := newRolloutCluster(t)
	start := func(id, document string) {
		t.Helper()
		spec := twoStages(200)
		spec.Tuning = document
		if _, err := c.Start(t.Context(), starting(id, spec)); err != nil {
			t.Fatal(err)
		}
		if r := reaches(t, c, id, "the end of "+id, over); r.Phase != rollout.Done {
			t.Fatalf("%s: %s %q", id, r.Phase, r.Why)
		}
		wantUnlocked(t, db, c, id, rollout.Done)
	}
	start("old", newTuning)
	cl.putState(RolloutsService, rolloutScope, rolloutsKey, rollout.Lock{})
	again := twoStages(200)
	if r, err := c.Start(t.Context(), starting("old", again)); err != nil || r.Phase != rollout.Done {
		t.Errorf("%s, %v", r.Phase, err)
	}
	if s, err := c.Standing(t.Context()); err != nil || s.Active != "" {
		t.Errorf("%q has the lock, %v", s.Active, err)
	}
	start("newer", otherTuning)
	cl.putState(RolloutsService, rolloutScope, rolloutsKey, rollout.Lock{})
	if _, err := c.Operate(t.Context(), "old", order(rollout.RollBack)); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "rollout newer is done and newer") {
		t.Errorf("%v", err)
	}
	wantInForce(t, db, otherTuning)
	if s, err := c.Standing(t.Context()); err != nil || s.Active != "" {
		t.Errorf("%+v, %v", s, err)
	}

	if _, err := db.ExecContext(t.Context(), "UPDATE ratelimit_rollouts SET saved = 0, phase = '', state = NULL WHERE id = 'old'"); err != nil {
		t.Fatal(err) // as an older build wrote it
	}
	cl.putState(RolloutService, "old", rolloutKey, nil)
	cl.putState(RolloutsService, rolloutScope, rolloutsKey, rollout.Lock{Active: "never-was", Since: 1})
	k := cl.keeper(nil)
	k.Rollouts = store.New(db).Rollouts
	if err := k.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, err := c.Standing(t.Context()); err != nil || s.Active != "" {
		t.Fatalf("%+v, %v", s, err)
	}
	list, err := rollout.NewWork(store.New(db), time.Minute).List(t.Context())
	if err != nil || len(list) != 2 || list[0].ID != "newer" || list[0].Phase != rollout.Done || list[1].ID != "old" || list[1].Phase != rollout.Lost || list[1].By.Actor != "ann" || list[1].EndedMs == 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := k.Once(t.Context()); err != nil { // nothing is wrong any more
		t.Error(err)
	}
	if repairs := metric(t, cl.options.Metrics, "weir_control_chain_repairs_total", ""); repairs != 1 {
		t.Errorf("weir_control_chain_repairs_total is %v", repairs)
	}

	other := tuning.Default()
	other.Floor = 0.77
	again.Tuning = quickly(other)
	for _, spec := range []rollout.Spec{again, twoStages(200)} {
		if _, err := c.Start(t.Context(), starting("old", spec)); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "the id old was used before, and version ") {
			t.Errorf("the id of a rollout that is lost: %v", err)
		}
	}
	wantInForce(t, db, otherTuning)
	start("next", newTuning)
	wantInForce(t, db, newTuning)
}

// If the lock was lost, or restored from before a rollout, it is not given to another rollout while the first is under
// way in MySQL: a start finds the lock's holder by itself.
func TestStartFindsTheRolloutThatTheLockHasLost(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testStartFindsTheRolloutThatTheLockHasLost)
}

func testStartFindsTheRolloutThatTheLockHasLost(t *testing.T) {
	t.Parallel()
	cl, _, db, _, c := newRolloutCluster(t)
	spec := twoStages(200)
	spec.Plan.Stages[1].Approval = true
	if _, err := c.Start(t.Context(), starting("first", spec)); err != nil {
		t.Fatal(err)
	}
	reaches(t, c, "first", "it waits for an approval", func(r rollout.Rollout) bool {
		return r.Phase == rollout.Awaiting && r.Stage == 1
	})
	for name, lock := range map[string]any{"lost": nil, "restored": rollout.Lock{Version: 2},
		"of the last build": json.RawMessage(`{"version":2,"list":[{"id":"first","by":{},"started_ms":3,"phase":"measuring"}]}`)} {
		cl.putState(RolloutsService, rolloutScope, rolloutsKey, lock)
		if _, err := c.Start(t.Context(), starting("second", twoStages(200))); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "rollout first is under way") {
			t.Errorf("%s: %v", name, err)
		}
		cl.putState(RolloutsService, rolloutScope, rolloutsKey, lock)
		if _, err := c.Operate(t.Context(), "done", order(rollout.RollBack)); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "rollout first is under way") {
			t.Errorf("%s, taking back another: %v", name, err)
		}
		if s, err := c.Standing(t.Context()); err != nil || s.Active != "first" {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if _, err := c.Operate(t.Context(), "first", order(rollout.Abort)); err != nil {
		t.Fatal(err)
	}
	wantUnlocked(t, db, c, "first", rollout.Aborted)
	wantInForce(t, db, oldTuning)
	if _, err := c.Start(t.Context(), starting("second", twoStages(200))); err != nil {
		t.Error(err)
	}
}

// Restate keeps the state of a rollout as long as it is listed, and deletes it afterwards.
func TestTheStateOfARolloutEndsWithItsLine(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testTheStateOfARolloutEndsWithItsLine)
}

func testTheStateOfARolloutEndsWithItsLine(t *testing.T) {
	t.Parallel()
	cl, _, db, _, c := newRolloutCluster(t)
	for i := range rollout.ListMax {
		row := rollout.Row{ID: fmt.Sprintf("old-%d", i), StartedMs: int64(1000 - i), Saved: 1, Phase: rollout.Done, State: "{}"}
		if err := store.New(db).SaveRollout(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	last, before := fmt.Sprintf("old-%d", rollout.ListMax-1), fmt.Sprintf("old-%d", rollout.ListMax-2)
	for _, id := range []string{last, before} {
		cl.putState(RolloutService, id, rolloutKey, rollout.Rollout{Version: 2, ID: id, Phase: rollout.Done})
	}
	if _, err := c.Start(t.Context(), starting("new", twoStages(60_000))); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "the state of the oldest ends", func() error {
		if state := cl.state(RolloutService, last, rolloutKey); state != "" {
			return errors.New(state)
		}
		return nil
	})
	if state := cl.state(RolloutService, before, rolloutKey); state == "" {
		t.Error("one that is on the list has ended too")
	}
}
