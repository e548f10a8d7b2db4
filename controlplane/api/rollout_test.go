package api

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/tuning"
)

// rollouts takes one rollout, and keeps what it was asked for.
type rollouts struct {
	one   *controlplane.Rollout
	order controlplane.RolloutOrder
}

func (s *rollouts) Start(_ context.Context, id string, spec controlplane.RolloutSpec, by controlplane.By) (controlplane.Rollout, error) {
	if s.one != nil {
		return controlplane.Rollout{}, fmt.Errorf("%w: rollout %s is under way", controlplane.ErrConflict, s.one.ID)
	}
	r, err := controlplane.NewRollout(id, spec, by, []string{"eu"}, 5)
	if err != nil {
		return controlplane.Rollout{}, err
	}
	s.one = r
	return *r, nil
}

func (s *rollouts) Operate(_ context.Context, id string, order controlplane.RolloutOrder) (controlplane.Rollout, error) {
	s.order = order
	return s.Status(context.Background(), id)
}

func (s *rollouts) Status(_ context.Context, id string) (controlplane.Rollout, error) {
	if s.one == nil || s.one.ID != id {
		return controlplane.Rollout{}, fmt.Errorf("%w: there is no rollout %q", controlplane.ErrNotFound, id)
	}
	return *s.one, nil
}

func (s *rollouts) List(context.Context) ([]controlplane.RolloutSummary, error) {
	if s.one == nil {
		return nil, nil
	}
	return []controlplane.RolloutSummary{{ID: s.one.ID, Phase: "as it began"}}, nil
}

func TestRolloutCalls(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewRolloutServiceClient(f.http, f.url)
	start := &controlv1.StartRolloutRequest{Actor: "ann", Reason: "x", Tuning: wholeTuning(), Plan: &controlv1.RolloutPlan{Stages: []*controlv1.RolloutStage{{All: true}}}}
	began, err := client.StartRollout(t.Context(), connect.NewRequest(start))
	if err != nil {
		t.Fatal(err)
	}
	r := began.Msg.GetRollout()
	if len(r.GetId()) != len("20060102-150405-abcdef") || r.GetPhase() != "measuring" || r.GetStage() != 1 || r.GetStages()[0].GetState() != "active" || !strings.Contains(r.GetTuning(), `"floor":0.1`) {
		t.Errorf("%v", r)
	}
	if _, err := client.StartRollout(t.Context(), connect.NewRequest(start)); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "is under way") {
		t.Errorf("a second one: %v", err)
	}
	if _, err := client.RolloutStatus(t.Context(), connect.NewRequest(&controlv1.RolloutStatusRequest{Id: "other"})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("one that is not there: %v", err)
	}
	for to, action := range rolloutActions {
		_, err := client.OperateRollout(t.Context(), connect.NewRequest(&controlv1.OperateRolloutRequest{Actor: "ann", Reason: "y", Id: r.GetId(), Action: to, Stage: 2, Asked: 7}))
		want := controlplane.RolloutOrder{Action: action, By: controlplane.By{Actor: "ann", Reason: "y"}, Stage: 2, Asked: 7}
		if err != nil || f.rollouts.order != want {
			t.Errorf("%s: %+v, %v", to, f.rollouts.order, err)
		}
	}
	for says, req := range map[string]*controlv1.OperateRolloutRequest{
		"reason is empty": {Actor: "ann", Id: "r", Action: controlv1.RolloutAction_ROLLOUT_ACTION_ABORT},
		"action is ROLLOUT_ACTION_UNSPECIFIED (approve, pause, resume, abort or rollback)": {Actor: "ann", Reason: "y", Id: "r"},
		"an approval names its stage, from 1, and what was asked":                          {Actor: "ann", Reason: "y", Id: "r", Action: controlv1.RolloutAction_ROLLOUT_ACTION_APPROVE, Stage: 1},
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

// wholeTuning is a document with every field.
func wholeTuning() string {
	text, err := tuning.Default().Document()
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestGetTuning(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewRolloutServiceClient(f.http, f.url)
	answer, err := client.GetTuning(t.Context(), connect.NewRequest(&controlv1.GetTuningRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, answer.Msg, &controlv1.GetTuningResponse{Tunings: []*controlv1.RegionTuning{{Document: "{}"}, {Region: "e\uFFFD", Version: 7, Document: wholeTuning()}}})
	f.readyErr = controlplane.ErrUnavailable
	if _, err := client.GetTuning(t.Context(), connect.NewRequest(&controlv1.GetTuningRequest{})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("with MySQL down: %v", err)
	}
}
