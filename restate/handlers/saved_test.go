package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/access"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// memoryStates are states of jobs in memory, in place of MySQL.
type memoryStates struct {
	mu     sync.Mutex
	states map[string]controlplane.JobState
	err    error // MySQL does not answer
}

func (m *memoryStates) JobState(_ context.Context, name string) (controlplane.JobState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.states[name], m.err
}

func (m *memoryStates) SaveJobState(_ context.Context, s controlplane.JobState) (controlplane.JobState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return controlplane.JobState{}, m.err
	}
	if m.states == nil {
		m.states = map[string]controlplane.JobState{}
	}
	if s.Saved > m.states[s.Name].Saved {
		m.states[s.Name] = s
	}
	return m.states[s.Name], nil
}

func (m *memoryStates) away(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// lost empties Restate's state of an object.
func (c *cluster) lost(service, object, key string) { c.putState(service, object, key, nil) }

// An operator's pause of the cleanup outlives the loss of Restate's data, and so does the resume that ends it. While
// MySQL is down, the cleanup may be paused, so it is not started.
func TestAPauseOutlivesRestate(t *testing.T) {
	t.Parallel()
	var n counter
	saves := &memoryStates{}
	c := newCluster(t, Options{Saves: saves}, func(s *stepper) map[string]Job { return map[string]Job{CleanupJob: n.job(s)} })
	k := c.keeper(map[string]time.Duration{CleanupJob: 200 * time.Millisecond})
	k.Saves = saves
	once := func() {
		t.Helper()
		if err := k.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	once()
	await.NoError(t, "a run", n.reached(1))
	paused, err := c.client.Pause(t.Context(), CleanupJob, operator)
	if err != nil {
		t.Fatal(err)
	}
	for _, lost := range []string{"all of it", "what came after a backup"} {
		if lost == "all of it" {
			c.lost(CronService, CleanupJob, stateKey)
		} else { // which had no pause
			c.putState(CronService, CleanupJob, stateKey, State{Version: 1, Generation: 1, Sequence: 1, Running: true, IntervalMs: 200, DueMs: time.Now().UnixMilli()})
		}
		saves.away(errors.New("MySQL is away"))
		if err := k.Once(t.Context()); lost == "all of it" && (err == nil || !strings.Contains(err.Error(), "MySQL does not answer, so an operator may have paused it")) {
			t.Errorf("without MySQL: %v", err)
		}
		saves.away(nil)
		runs := n.count()
		once()
		s := c.status(CleanupJob)
		if s.Running || s.Pause == nil || s.Pause.By != operator || s.Pause.AtMs != paused.ordered() || len(c.ticks(CleanupJob)) != 0 || n.count() != runs {
			t.Errorf("Restate has lost %s: %+v, %d runs", lost, s, n.count()-runs)
		}
	}

	c.lost(CronService, CleanupJob, stateKey)
	// before the keeper has checked
	if _, err := c.client.Resume(t.Context(), CleanupJob, operator); err != nil {
		t.Fatal(err)
	}
	once()
	c.lost(CronService, CleanupJob, stateKey)
	once()
	runs := n.count()
	await.NoError(t, "it runs again", n.reached(runs+2))
	if s := c.status(CleanupJob); s.Pause != nil {
		t.Errorf("%+v", s)
	}
}

// A pause that could not be saved to MySQL at once still counts, and is saved later. So is a pause by a build that
// saves no orders.
func TestAPauseIsSavedLater(t *testing.T) {
	t.Parallel()
	var n counter
	saves := &memoryStates{}
	c := newCluster(t, Options{Saves: saves, StepRetryMax: 100 * time.Millisecond}, func(s *stepper) map[string]Job { return map[string]Job{CleanupJob: n.job(s)} })
	k := c.keeper(map[string]time.Duration{CleanupJob: time.Hour})
	k.Saves = saves
	saves.away(errors.New("MySQL is away"))
	paused, err := c.client.Pause(t.Context(), CleanupJob, operator)
	if err != nil || paused.Pause == nil {
		t.Fatalf("%+v, %v", paused, err)
	}
	saves.away(nil)
	savedAs := func(want controlplane.PauseOrder) {
		t.Helper()
		if err := k.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := controlplane.LoadPause(t.Context(), saves, CleanupJob); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	savedAs(controlplane.PauseOrder{By: operator, OrderedMs: paused.ordered(), Paused: true, Generation: paused.Generation})

	at := paused.ordered() + 1000
	c.putState(CronService, CleanupJob, stateKey, map[string]any{"version": 1, "generation": 2, "pause": map[string]any{"actor": "bob", "reason": "by the last build", "at_ms": at}})
	savedAs(controlplane.PauseOrder{By: controlplane.By{Actor: "bob", Reason: "by the last build"}, OrderedMs: at, Paused: true, Generation: 2})
}

// A retirement continues to its single outcome after Restate has lost it, and after an older state of it was restored.
func TestARetirementOutlivesRestate(t *testing.T) {
	t.Parallel()
	servers.EachSQL(t, testARetirementOutlivesRestate)
}

func testARetirementOutlivesRestate(t *testing.T) {
	t.Parallel()
	cl, db, _, c := newRetirementCluster(t)
	keeper := &Keeper{Registrar: cl.registrar(), Client: cl.client, Retiring: []string{retired}, Grace: time.Hour, Metrics: cl.options.Metrics, Log: cl.options.Log, Saves: store.New(db)}
	once := func() {
		t.Helper()
		if err := keeper.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	once() // of a table that has never been retired
	if _, err := c.Start(t.Context(), retired, briefly(), operator); err != nil {
		t.Fatal(err)
	}
	retires(t, c, "it is empty", at(retire.Awaiting))
	old := cl.state(RetirementService, retired, retirementKey)
	if _, err := c.ApproveRename(t.Context(), retired, shown(t, c, operator)); err != nil {
		t.Fatal(err)
	}
	before := retires(t, c, "the soak ends", at(retire.AwaitingFinal))
	for _, lost := range []json.RawMessage{nil, json.RawMessage(old)} {
		if lost == nil {
			cl.lost(RetirementService, retired, retirementKey)
		} else {
			cl.putState(RetirementService, retired, retirementKey, lost)
		}
		once()
		r := retires(t, c, "it stands where it stood", at(retire.AwaitingFinal))
		if r.ID != before.ID || r.Dated != before.Dated || r.Rename == nil || r.Rename.By != operator || r.Events[len(r.Events)-1].What != "restore" {
			t.Errorf("%+v", r)
		}
	}
	if _, err := c.ApproveDrop(t.Context(), retired, shown(t, c, operator)); err != nil {
		t.Fatal(err)
	}
	retires(t, c, "the end", at(retire.Dropped))
	if names := blocklistTables(t, db); names != "" {
		t.Errorf("tables %s", names)
	}
	cl.lost(RetirementService, retired, retirementKey)
	once()
	retires(t, c, "it stays as it ended", at(retire.Dropped))
}

// A retirement of the last build, which saved none, continues from its state, and is saved from then on.
func TestARetirementOfTheLastBuildGoesOn(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testARetirementOfTheLastBuildGoesOn)
}

func testARetirementOfTheLastBuildGoesOn(t *testing.T) {
	t.Parallel()
	cl, db, _, c := newRetirementCluster(t)
	const state = `{"version":1,"id":"20260102-150405","table":"ratelimit_blocklist","dated":"ratelimit_blocklist_retired_20260102_150405",
		"epoch":7,"timer_ms":1,"events":[{"at_ms":1,"actor":"ann","what":"start"}],"fence":0,
		"spec":{"quiet_ms":300,"soak_ms":300,"health_within_ms":60000,"batch_rows":10},"by":{"actor":"ann","reason":"x"},"started_ms":1,
		"phase":"observing","mark":{},"evidence":{},"rows_deleted":0}`
	cl.putState(RetirementService, retired, retirementKey, json.RawMessage(state))
	keeper := &Keeper{Registrar: cl.registrar(), Client: cl.client, Retiring: []string{retired}, Grace: time.Second, Metrics: cl.options.Metrics, Log: cl.options.Log, Saves: store.New(db)}
	if err := keeper.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := retires(t, c, "it is empty", at(retire.Awaiting))
	saved, err := store.New(db).JobState(t.Context(), controlplane.RetirementState(retired))
	if err != nil || saved.Saved == 0 || r.ID != "20260102-150405" {
		t.Errorf("%+v saved, %v: %+v", saved, err, r)
	}
}

// endedApprovers are approvers whose credentials have ended.
type endedApprovers struct {
	mu    sync.Mutex
	ended map[string]string
}

func (e *endedApprovers) end(actor, why string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended[actor] = why
}

func (e *endedApprovers) Ended(_ context.Context, actors []string, _ access.Role) (map[string]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ended := map[string]string{}
	for _, actor := range actors {
		if why, gone := e.ended[actor]; gone {
			ended[actor] = why
		}
	}
	return ended, nil
}

// An approval with a token that was revoked since does not count, neither for a rename nor for a rollout's stage.
func TestApprovalsOfRevokedTokensDoNotCount(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testApprovalsOfRevokedTokensDoNotCount)
}

func testApprovalsOfRevokedTokensDoNotCount(t *testing.T) {
	t.Parallel()
	db, _ := rows(t)
	newHamlet(t, db)
	approvers := &endedApprovers{ended: map[string]string{}}
	o := retirementOptions(store.New(db))
	o.Approvers = approvers
	c := RetirementClient{newCluster(t, o, func(*stepper) map[string]Job { return nil }).client}
	spec := briefly()
	spec.Approvers = 2
	if _, err := c.Start(t.Context(), retired, spec, operator); err != nil {
		t.Fatal(err)
	}
	retires(t, c, "it is empty", at(retire.Awaiting))
	approve := func(actor string) error {
		_, err := c.ApproveRename(t.Context(), retired, shown(t, c, controlplane.By{Actor: actor, Reason: "empty"}))
		return err
	}
	if err := approve("bob"); err != nil {
		t.Fatal(err)
	}
	approvers.end("bob", "the token was revoked")
	approvers.end("eve", "the token has expired")
	if err := approve("eve"); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "eve may not approve: the token has expired") {
		t.Errorf("by eve: %v", err)
	}
	retires(t, c, "the approval of bob is dropped", func(r retire.Retirement) bool {
		return r.Phase == retire.Awaiting && len(r.Approvals) == 0
	})
	if err := approve("ann"); err != nil {
		t.Fatal(err)
	}
	if r := retires(t, c, "one of two", func(retire.Retirement) bool { return true }); r.Phase != retire.Awaiting || len(r.Approvals) != 1 || r.Rename != nil {
		t.Errorf("%s, %+v", r.Phase, r.Approvals)
	}
	if err := approve("joe"); err != nil {
		t.Fatal(err)
	}
	retires(t, c, "the soak", func(r retire.Retirement) bool { return r.Rename != nil })
}

func TestAnApprovalOfARolloutDoesNotOutliveItsToken(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testAnApprovalOfARolloutDoesNotOutliveItsToken)
}

func testAnApprovalOfARolloutDoesNotOutliveItsToken(t *testing.T) {
	t.Parallel()
	db, _ := rows(t)
	newVillage(t, db)
	approvers := &endedApprovers{ended: map[string]string{}}
	o := rolloutOptions(store.New(db))
	o.Approvers = approvers
	c := RolloutClient{newCluster(t, o, func(*stepper) map[string]Job { return nil }).client}
	spec := twoStages(60_000)
	spec.Plan.Stages[0].Approval = true
	spec.Plan.Approvers = 2
	if _, err := c.Start(t.Context(), starting("gated", spec)); err != nil {
		t.Fatal(err)
	}
	approve := func(actor string) (rollout.Rollout, error) {
		t.Helper()
		r := reaches(t, c, "gated", "it waits for an approval", in(rollout.Awaiting, 0))
		return c.Operate(t.Context(), "gated", rollout.Order{Action: rollout.Approve, By: controlplane.By{Actor: actor, Reason: "fine"}, Stage: 1, Asked: r.Asked, Evidence: r.Evidence()})
	}
	if _, err := approve("bob"); err != nil {
		t.Fatal(err)
	}
	approvers.end("bob", "the token was revoked")
	if _, err := approve("ann"); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "the approval of bob no longer counts, because the token was revoked") {
		t.Errorf("ann, after bob's token was revoked: %v", err)
	}
	if r, err := approve("ann"); err != nil || r.Phase != rollout.Awaiting || len(r.Approvals) != 1 {
		t.Errorf("ann again: %s, %+v, %v", r.Phase, r.Approvals, err)
	}
	if r, err := approve("joe"); err != nil || r.Phase == rollout.Awaiting {
		t.Errorf("joe: %s, %v", r.Phase, err)
	}
	wantAudited(t, db, "gated", "rollout.approve bob", "rollout.withdraw weir-control", "rollout.approve ann", "rollout.approve joe")
}
