package api

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/watch"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// rollouts accepts one rollout, and records the calls that it gets.
type rollouts struct {
	one    *rollout.Rollout
	order  rollout.Order
	forced string // of the last start
	err    error  // of starts
}

func (s *rollouts) Start(_ context.Context, start rollout.Start) (rollout.Rollout, error) {
	if s.err != nil {
		return rollout.Rollout{}, s.err
	}
	s.forced = start.Forced
	if s.one != nil {
		return rollout.Rollout{}, fmt.Errorf("%w: rollout %s is under way", controlplane.ErrConflict, s.one.ID)
	}
	r, err := rollout.New(start.ID, start.Spec, start.By, []string{"eu"}, 5)
	if err != nil {
		return rollout.Rollout{}, err
	}
	s.one = r
	return *r, nil
}

func (s *rollouts) Operate(_ context.Context, id string, order rollout.Order) (rollout.Rollout, error) {
	s.order = order
	return s.Status(context.Background(), id)
}

func (s *rollouts) Status(_ context.Context, id string) (rollout.Rollout, error) {
	if s.one == nil || s.one.ID != id {
		return rollout.Rollout{}, fmt.Errorf("%w: there is no rollout %q", controlplane.ErrNotFound, id)
	}
	return *s.one, nil
}

func (s *rollouts) List(context.Context) ([]rollout.Summary, error) {
	if s.one == nil {
		return nil, nil
	}
	return []rollout.Summary{s.one.Summary()}, nil
}

func (s *rollouts) UnderWay(context.Context) (*rollout.Rollout, error) { return s.one, nil }

func TestRolloutCalls(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewRolloutServiceClient(f.http, f.url)
	start := &controlv1.StartRolloutRequest{Actor: "ann", Reason: "x", Tuning: controltest.Document(), Plan: &controlv1.RolloutPlan{Stages: []*controlv1.RolloutStage{{All: true}}}}
	began, err := client.StartRollout(t.Context(), connect.NewRequest(start))
	if err != nil {
		t.Fatal(err)
	}
	r := began.Msg.GetRollout()
	if len(r.GetId()) != len("20060102-150405-abcdef") || r.GetPhase() != "measuring" || r.GetStage() != 1 || r.GetStages()[0].GetState() != "active" || !strings.Contains(r.GetTuning(), `"floor":0.1`) {
		t.Errorf("%v", r)
	}
	if rails := r.GetRails(); len(rails) != 9 || rails[0].GetField() != "errors_per_minute" || rails[0].GetMost() != 6 || rails[0].Now != nil || rails[0].Margin != nil {
		t.Errorf("rails %v", rails)
	}
	if _, err := client.StartRollout(t.Context(), connect.NewRequest(start)); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "is under way") {
		t.Errorf("a second one: %v", err)
	}
	if _, err := client.RolloutStatus(t.Context(), connect.NewRequest(&controlv1.RolloutStatusRequest{Id: "other"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("one that is not there: %v", err)
	}
	for to, action := range rolloutActions {
		_, err := client.OperateRollout(t.Context(), connect.NewRequest(&controlv1.OperateRolloutRequest{Actor: "ann", Reason: "y", Id: r.GetId(), Action: to, Stage: 2, Asked: 7, Evidence: "e"}))
		want := rollout.Order{Action: action, By: controlplane.By{Actor: "ann", Reason: "y"}, Stage: 2, Asked: 7, Evidence: "e"}
		if err != nil || f.rollouts.order != want {
			t.Errorf("%s: %+v, %v", to, f.rollouts.order, err)
		}
	}
	for says, req := range map[string]*controlv1.OperateRolloutRequest{
		"reason is empty": {Actor: "ann", Id: "r", Action: controlv1.RolloutAction_ROLLOUT_ACTION_ABORT},
		"action is ROLLOUT_ACTION_UNSPECIFIED (approve, pause, resume, abort or rollback)": {Actor: "ann", Reason: "y", Id: "r"},
		"an approval names its stage and the request":                                      {Actor: "ann", Reason: "y", Id: "r", Action: controlv1.RolloutAction_ROLLOUT_ACTION_APPROVE, Stage: 1},
		"id is empty": {Actor: "ann", Reason: "y", Action: controlv1.RolloutAction_ROLLOUT_ACTION_ABORT},
	} {
		if _, err := client.OperateRollout(t.Context(), connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	list, err := client.ListRollouts(t.Context(), connect.NewRequest(&controlv1.ListRolloutsRequest{}))
	if err != nil || len(list.Msg.GetRollouts()) != 1 || list.Msg.GetRollouts()[0].GetPhase() != "measuring" {
		t.Errorf("%v, %v", list, err)
	}
}

// Versions have the document as it was written. For a document that this build cannot read, the response has the
// reason.
func TestListTunings(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewRolloutServiceClient(f.http, f.url)
	fleet := ""
	answer, err := client.ListTunings(t.Context(), connect.NewRequest(&controlv1.ListTuningsRequest{Region: &fleet, BeforeVersion: 9, Limit: 1}))
	if err != nil || f.versionsAsked != "true 9 2" {
		t.Fatalf("%s, %v", f.versionsAsked, err)
	}
	wantText(t, answer.Msg, &controlv1.ListTuningsResponse{HasMore: true, Versions: []*controlv1.TuningVersion{
		{Version: 8, Region: "e\uFFFD", Document: controltest.Document(), Actor: "ann", Reason: "r", CreatedAtMs: at.UnixMilli(), Rollout: "r1"},
	}})
	answer, err = client.ListTunings(t.Context(), connect.NewRequest(&controlv1.ListTuningsRequest{}))
	if err != nil || f.versionsAsked != "false 9223372036854775807 21" || answer.Msg.GetHasMore() || answer.Msg.GetVersions()[1].GetProblem() == "" || answer.Msg.GetVersions()[1].GetDocument() != "[]" {
		t.Errorf("%s, %v %v", f.versionsAsked, answer, err)
	}
	long := strings.Repeat("r", 49)
	for says, req := range map[string]*controlv1.ListTuningsRequest{
		"limit is 101 (1 to 100, 0 for 20)": {Limit: 101}, "limit is -1": {Limit: -1},
		"before_version is -1 (0 for the newest": {BeforeVersion: -1}, "region is 49 bytes long (at most 48)": {Region: &long},
	} {
		if _, err := client.ListTunings(t.Context(), connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
	f.readyErr = controlplane.ErrUnavailable
	if _, err := client.ListTunings(t.Context(), connect.NewRequest(&controlv1.ListTuningsRequest{})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("with MySQL down: %v", err)
	}
}

func TestGetTuning(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewRolloutServiceClient(f.http, f.url)
	answer, err := client.GetTuning(t.Context(), connect.NewRequest(&controlv1.GetTuningRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, answer.Msg, &controlv1.GetTuningResponse{Tunings: []*controlv1.RegionTuning{{Document: "{}"}, {Region: "e\uFFFD", Version: 7, Document: controltest.Document()}}})
	f.readyErr = controlplane.ErrUnavailable
	if _, err := client.GetTuning(t.Context(), connect.NewRequest(&controlv1.GetTuningRequest{})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("with MySQL down: %v", err)
	}
}

// A fleet that does not work is not changed without force; a start that is tried again is answered.
func TestStartOnACriticalFleet(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewRolloutServiceClient(f.http, f.url)
	f.health = watch.HealthDocument{Overall: watch.SeverityCritical, Findings: []watch.Finding{{Kind: watch.FindingRegionDark, Subject: "eu", Severity: watch.SeverityCritical, What: "No node is live."}}}
	start := &controlv1.StartRolloutRequest{Actor: "ann", Reason: "r", Id: "r1", Tuning: controltest.Document(), Plan: &controlv1.RolloutPlan{Stages: []*controlv1.RolloutStage{{All: true}}}}
	_, err := client.StartRollout(t.Context(), connect.NewRequest(start))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "critical (region_dark eu: No node is live); force") {
		t.Fatal(err)
	}
	start.Force = true
	if _, err := client.StartRollout(t.Context(), connect.NewRequest(start)); err != nil || f.rollouts.forced != "region_dark eu: No node is live" {
		t.Fatalf("%q, %v", f.rollouts.forced, err)
	}
	start.Force = false
	if _, err := client.StartRollout(t.Context(), connect.NewRequest(start)); err == nil || strings.Contains(err.Error(), "critical") {
		t.Errorf("again: %v", err) // the fixture's own answer, as for a healthy fleet
	}
}

// A plan's lease is used. Without a lease the plan has the default.
func TestThePlansLease(t *testing.T) {
	ms := int64(90_000)
	if got := rolloutPlan(&controlv1.RolloutPlan{LeaseMs: &ms}).LeaseMs; got != ms {
		t.Errorf("%d", got)
	}
	if got := rolloutPlan(nil).LeaseMs; got != plan.DefaultPlan().LeaseMs {
		t.Errorf("%d by default", got)
	}
}
