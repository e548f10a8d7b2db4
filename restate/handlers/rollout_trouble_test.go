package handlers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/servers"
)

// troubled is a store that cannot read nodes while it is down.
type troubled struct {
	*store.Store
	down atomic.Bool
}

func (s *troubled) FleetNodes(ctx context.Context, nodes int) (time.Time, []fleet.Row, error) {
	if s.down.Load() {
		return time.Time{}, nil, errors.New("no nodes today\nnor tomorrow")
	}
	return s.Store.FleetNodes(ctx, nodes)
}

// A step that fails for long is trouble, with a one-line description in the status. The rollout retries after a while,
// and meanwhile accepts operators' orders.
func TestARolloutInTrouble(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testARolloutInTrouble)
}

func testARolloutInTrouble(t *testing.T) {
	t.Parallel()
	db, _ := rows(t)
	newVillage(t, db)
	s := &troubled{Store: store.New(db)}
	o := rolloutOptions(s.Store)
	o.Rollouts, o.StepRetryMax = rollout.NewWork(s, 30*time.Second), 300*time.Millisecond
	cl := newCluster(t, o, func(*stepper) map[string]Job { return nil })
	c := RolloutClient{cl.client}
	if _, err := c.Start(t.Context(), starting("troubled", twoStages(1000))); err != nil {
		t.Fatal(err)
	}
	reaches(t, c, "troubled", "the canary bakes", in(rollout.Baking, 0))
	s.down.Store(true)
	inTrouble := func(r rollout.Rollout) bool { return strings.Contains(r.Trouble, "no nodes today") }
	first := reaches(t, c, "troubled", "trouble", inTrouble)
	if strings.Contains(first.Trouble, "\n") || first.Phase != rollout.Baking || first.TimerMs == 0 {
		t.Errorf("%s, trouble %q, timer at %d", first.Phase, first.Trouble, first.TimerMs)
	}
	reaches(t, c, "troubled", "it is tried again", func(r rollout.Rollout) bool { return inTrouble(r) && r.Epoch > first.Epoch })
	paused, err := c.Operate(t.Context(), "troubled", order(rollout.Pause))
	if err != nil || paused.Paused == nil || paused.Trouble != "" {
		t.Errorf("%v: paused %+v, trouble %q", err, paused.Paused, paused.Trouble)
	}
	s.down.Store(false)
	if _, err := c.Operate(t.Context(), "troubled", order(rollout.Resume)); err != nil {
		t.Fatal(err)
	}
	if r := reaches(t, c, "troubled", "the end", over); r.Phase != rollout.Done || r.Trouble != "" {
		t.Errorf("%s %q, trouble %q", r.Phase, r.Why, r.Trouble)
	}
	wantInForce(t, db, newTuning)
	wantUnlocked(t, db, c, "troubled", rollout.Done)

	over, _ := inForce(t.Context(), t, db, "eu")
	other := tunings.Write{ID: "restored", Region: "eu", Document: oldTuning, Over: over, By: operator}
	if written, err := s.WriteTunings(t.Context(), []tunings.Write{other}); err != nil || written.Refused != nil {
		t.Fatalf("%+v, %v", written, err)
	}
	_, err = c.Operate(t.Context(), "troubled", order(rollout.RollBack))
	if !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "of region eu, which has version ") {
		t.Errorf("a rollback over what something else wrote: %v", err)
	}
}

// Invalid or late requests to a rollout or the lock are rejected or change nothing. An outcome that the lock has not
// received is sent again.
func TestWhatRolloutsAreAskedWrongly(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testWhatRolloutsAreAskedWrongly)
}

func testWhatRolloutsAreAskedWrongly(t *testing.T) {
	t.Parallel()
	cl, _, db, _, c := newRolloutCluster(t)
	want := func(what string, err, is error, says string) {
		t.Helper()
		if !errors.Is(err, is) || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v, want %q", what, err, says)
		}
	}
	limit := 1.0
	unasked := twoStages(200)
	unasked.Plan.Guardrails.Queries = []queries.Rail{{Name: "errors", Query: "errors", Above: &limit}}
	_, err := c.Start(t.Context(), starting("one", unasked))
	want("queries that nothing answers", err, controlplane.ErrInvalid, "no --prometheus-url")

	if _, err := c.Start(t.Context(), starting("one", twoStages(60_000))); err != nil {
		t.Fatal(err)
	}
	bakes := reaches(t, c, "one", "the canary bakes", in(rollout.Baking, 0))
	_, err = askRollout[rollout.Order, rollout.Rollout](t.Context(), c.Client, RolloutService, "one", "Operate", order(rollout.RollBack))
	want("a rollback beside the list", err, controlplane.ErrInvalid, "a rollback goes through "+RolloutsService)
	if err := c.Ensure(t.Context(), "one", bakes.Epoch-1); err != nil {
		t.Fatal(err)
	}
	aborted, err := c.Operate(t.Context(), "one", order(rollout.Abort)) // in its turn, after Ensure
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range aborted.Events {
		if e.What == "revive" {
			t.Error("it was revived by what was known of an earlier transition")
		}
	}
	ended := reaches(t, c, "one", "the end", over)
	wantUnlocked(t, db, c, "one", rollout.Aborted)

	cl.putState(RolloutsService, rolloutScope, rolloutsKey, rollout.Lock{Active: "one", Since: bakes.Epoch})
	if err := c.Ensure(t.Context(), "one", ended.Epoch); err != nil {
		t.Fatal(err)
	}
	wantUnlocked(t, db, c, "one", rollout.Aborted)

	want("a long repair", c.Repair(t.Context(), make([]rollout.Trace, rollout.ListMax+1)), controlplane.ErrInvalid, "101 rollouts to look at (at most 100)")
	cl.putState(RolloutService, "newer", rolloutKey, rollout.Rollout{ID: "newer", Version: 99})
	err = c.Repair(t.Context(), []rollout.Trace{{Summary: rollout.Summary{ID: "newer"}}, {Summary: rollout.Summary{ID: "never-was"}}})
	want("a repair that cannot read a rollout", err, controlplane.ErrConflict, "run the newer weir-control")
	cl.putState(RolloutsService, rolloutScope, rolloutsKey, rollout.Lock{Version: 99})
	_, err = c.Start(t.Context(), starting("two", twoStages(200)))
	want("a lock of a newer build", err, controlplane.ErrConflict, "run the newer weir-control")
}
