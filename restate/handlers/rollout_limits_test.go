package handlers

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
	callerlimits "github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/settings"
)

// A change of limits goes through its stages and is stored; it can be rolled back. A start on other limits is rejected
// with the difference, and an edit during a stage ends the rollout.
func TestRolloutOfLimits(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testRolloutOfLimits)
}

func testRolloutOfLimits(t *testing.T) {
	t.Parallel()
	_, _, db, _, c := newRolloutCluster(t)
	stored := callerlimits.NewSettings(store.New(db))
	by := controlplane.By{Actor: "ann", Reason: "fewer calls"}
	set := func(limit int64) {
		t.Helper()
		if err := stored.SetOverride(t.Context(), callerlimits.Override{Workspace: "acme", Namespace: "api", Pattern: "u*", Limit: limit}, by); err != nil {
			t.Fatal(err)
		}
	}
	want := func(limit int64) {
		t.Helper()
		if o, err := stored.Override(t.Context(), "acme", "api", "u*"); err != nil || o.Limit != limit {
			t.Errorf("the limit is %d, want %d; %v", o.Limit, limit, err)
		}
	}
	item := func(limit int64) *settings.Override {
		return &settings.Override{Workspace: "acme", Namespace: "api", Pattern: "u*", Limit: limit}
	}
	spec := twoStages(200)
	spec.Tuning = ""
	spec.Limits = &settings.Change{Overrides: []settings.OverrideChange{{Before: item(10), After: item(8)}}}
	spec.Plan.Stages = []plan.Stage{{Regions: []string{"eu"}, BakeMs: 200, Shadow: true}, {All: true, BakeMs: 200}}
	spec.Plan.Guardrails.LimitsGuardrails = plan.DefaultLimitsGuardrails()

	set(11)
	_, err := c.Start(t.Context(), rollout.Start{ID: "l0", Spec: spec, By: by})
	if !errors.Is(err, controlplane.ErrChanged) || !strings.Contains(err.Error(), "override acme/api/u* is limit 11, not limit 10") {
		t.Fatalf("%v", err)
	}
	set(10)
	if _, err := c.Start(t.Context(), rollout.Start{ID: "l1", Spec: spec, By: by}); err != nil {
		t.Fatal(err)
	}
	if r := reaches(t, c, "l1", "an outcome", over); r.Phase != rollout.Done {
		t.Fatalf("%s, %q", r.Phase, r.Why)
	}
	want(8)
	wantUnlocked(t, db, c, "l1", rollout.Done)
	wantAudited(t, db, "l1", "rollout.start ann", "rollout.done weir-control")
	if _, err := c.Operate(t.Context(), "l1", rollout.Order{Action: rollout.RollBack, By: by}); err != nil {
		t.Fatal(err)
	}
	if r := reaches(t, c, "l1", "an outcome", over); r.Phase != rollout.RolledBack {
		t.Fatalf("%s, %q", r.Phase, r.Why)
	}
	want(10)
	wantUnlocked(t, db, c, "l1", rollout.RolledBack)

	spec.Plan.Stages[0].BakeMs = 60_000
	if _, err := c.Start(t.Context(), rollout.Start{ID: "l2", Spec: spec, By: by}); err != nil {
		t.Fatal(err)
	}
	reaches(t, c, "l2", "the bake", in(rollout.Baking, 0))
	set(12)
	if r := reaches(t, c, "l2", "an outcome", over); r.Phase != rollout.RolledBack || !strings.Contains(r.Why, "is limit 12, not limit 10") {
		t.Errorf("%s, %q", r.Phase, r.Why)
	}
	want(12)
}
