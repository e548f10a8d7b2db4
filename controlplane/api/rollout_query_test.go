package api

import (
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/queries"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// The response has a plan's queries as they were given, with their values.
func TestRolloutQueries(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewRolloutServiceClient(f.http, f.url)
	query := &controlv1.RolloutQuery{Name: "errors", Query: `errors{region="{{region}}"}`, TimesBaseline: proto.Float64(2), Required: true}
	_, err := client.StartRollout(t.Context(), connect.NewRequest(&controlv1.StartRolloutRequest{
		Actor: "ann", Reason: "x", Id: "q", Tuning: controltest.Document(),
		Plan: &controlv1.RolloutPlan{
			Stages:     []*controlv1.RolloutStage{{All: true}},
			Guardrails: &controlv1.RolloutGuardrails{Queries: []*controlv1.RolloutQuery{query}},
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	before := 0.5
	f.rollouts.one.QueriesBefore = []queries.Value{{Name: "errors", Region: "eu", Value: &before}}
	f.rollouts.one.QueriesNow = []queries.Value{{Name: "errors", Region: "eu", Problem: "down"}}
	answer, err := client.RolloutStatus(t.Context(), connect.NewRequest(&controlv1.RolloutStatusRequest{Id: "q"}))
	if err != nil {
		t.Fatal(err)
	}
	r := answer.Msg.GetRollout()
	if got := r.GetGuardrails().GetQueries(); len(got) != 1 {
		t.Errorf("%v", got)
	} else {
		wantText(t, got[0], query)
	}
	if got := r.GetQueries(); len(got) != 1 {
		t.Errorf("%v", got)
	} else {
		wantText(t, got[0], &controlv1.RolloutQueryValue{Name: "errors", Region: "eu", Bound: "at most 2 times before", Before: &before, Problem: "down"})
	}
}
