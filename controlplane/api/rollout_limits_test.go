package api

import (
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/rollout/guard"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/heartbeat"
)

func limitsRequest() *controlv1.StartRolloutRequest {
	namespace := func(shadow bool) *controlv1.Namespace {
		return &controlv1.Namespace{Workspace: "acme", Namespace: "mail", Shadow: shadow, Mode: "exact", Outage: "local",
			NodeShare: "wait", Window: "cells"}
	}
	override := func(pattern string, limit int64) *controlv1.Override {
		return &controlv1.Override{Workspace: "acme", Namespace: "api", Pattern: pattern, Limit: limit}
	}
	return &controlv1.StartRolloutRequest{Actor: "ann", Reason: "x", Id: "r1",
		Limits: &controlv1.LimitsChange{
			Namespaces: []*controlv1.NamespaceChange{{Before: namespace(false), After: namespace(true)}},
			Overrides:  []*controlv1.OverrideChange{{Before: override("gone", 3)}, {After: override("new", 7)}, {Before: override("u*", 10), After: override("u*", 8)}},
		},
		Plan: &controlv1.RolloutPlan{
			Stages: []*controlv1.RolloutStage{{All: true, Shadow: true}, {All: true}},
			Guardrails: &controlv1.RolloutGuardrails{NewlyDeniedCallers: proto.Int64(5),
				Protected: []*controlv1.ProtectedCaller{{Workspace: "acme", Namespace: "api", Pattern: "vip"}}},
		}}
}

// A rollout of limits has its change, the stages' modes, the guardrails with their defaults, and the evidence.
func TestARolloutOfLimits(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewRolloutServiceClient(f.http, f.url)
	if _, err := client.StartRollout(t.Context(), connect.NewRequest(limitsRequest())); err != nil {
		t.Fatal(err)
	}
	one := f.rollouts.one
	one.Touched = rollout.Touches{{Region: "eu", Trial: 7}}
	one.Effect.Nodes = []guard.EffectNode{{ID: "n1", Region: "eu", Trial: 7, Newest: guard.EffectTally{100, 4, 6, 2, 1},
		Spaces: []guard.SpaceTally{{100, 4, 6, 2}}}}
	one.Effect.Callers = []guard.EffectCallers{{Region: "eu", Trial: 7, Set: heartbeat.Callers{5}}}
	one.Effect.Spaces = []guard.EffectSpace{{Workspace: []byte("acme"), Namespace: []byte("api")}}
	one.Effect.Top = []guard.AffectedCaller{{TopKey: heartbeat.TopKey{Workspace: []byte("acme"), Namespace: []byte("api"),
		Identifier: []byte("u\xff"), DurationMs: 1000, Limit: 8, Count: 2}, Protected: true}}
	answer, err := client.RolloutStatus(t.Context(), connect.NewRequest(&controlv1.RolloutStatusRequest{Id: "r1"}))
	if err != nil {
		t.Fatal(err)
	}
	r := answer.Msg.GetRollout()
	wantText(t, r.GetLimits(), limitsRequest().GetLimits())
	wantText(t, r.GetEvidence(), &controlv1.LimitsEvidence{Judged: 100, DeniedBefore: 4, DeniedAfter: 6, NewlyDenied: 2,
		Callers: 1, Protected: 1, Nodes: 1,
		Namespaces: []*controlv1.LimitsEvidenceNamespace{{Workspace: "acme", Namespace: "api", Judged: 100, DeniedBefore: 4, DeniedAfter: 6, NewlyDenied: 2}},
		Top:        []*controlv1.LimitsEvidenceCaller{{Workspace: "acme", Namespace: "api", Identifier: "u\uFFFD", DurationMs: 1000, Limit: 8, NewlyDenied: 2, Protected: true}},
	})
	g := r.GetGuardrails()
	if r.GetTuning() != "" || len(r.GetStages()) != 2 || !r.GetStages()[0].GetShadow() || r.GetStages()[1].GetShadow() ||
		g.GetNewlyDeniedShare() != 0.01 || g.GetNewlyDeniedCallers() != 5 || g.GetProtected()[0].GetPattern() != "vip" {
		t.Errorf("%v", r)
	}
	var fields []string
	for _, rail := range r.GetRails() {
		fields = append(fields, rail.GetField())
	}
	if got := strings.Join(fields, " "); !strings.HasSuffix(got, "newly_denied_share newly_denied_callers protected") {
		t.Errorf("rails %s", got)
	}
}

// Errors name the field and the bound. A tuning has none of the fields of limits, and its answer has no evidence.
func TestStartsOfLimitsThatAreRejected(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewRolloutServiceClient(f.http, f.url)
	for says, change := range map[string]func(*controlv1.StartRolloutRequest){
		"tuning and limits are both set":                      func(r *controlv1.StartRolloutRequest) { r.Tuning = controltest.Document() },
		"the change has 0 items (1 to 500)":                   func(r *controlv1.StartRolloutRequest) { r.Limits = &controlv1.LimitsChange{} },
		"change of namespaces[0]: before and after want one":  func(r *controlv1.StartRolloutRequest) { r.Limits.Namespaces[0].Before = nil },
		"newly_denied_share is 2 (0 to 1)":                    func(r *controlv1.StartRolloutRequest) { r.Plan.Guardrails.NewlyDeniedShare = proto.Float64(2) },
		"stage 1 has shadow, and the rollout is of a tuning":  func(r *controlv1.StartRolloutRequest) { r.Limits, r.Tuning = nil, controltest.Document() },
		"stage 2 is the last: with limits, the last stage mu": func(r *controlv1.StartRolloutRequest) { r.Plan.Stages[1].Nodes = 1 },
	} {
		req := limitsRequest()
		change(req)
		if _, err := client.StartRollout(t.Context(), connect.NewRequest(req)); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	f.rollouts.err = fmt.Errorf("%w: override acme/api/u* is limit 12, not limit 10", controlplane.ErrChanged)
	_, err := client.StartRollout(t.Context(), connect.NewRequest(limitsRequest()))
	if connect.CodeOf(err) != connect.CodeAborted || !strings.Contains(err.Error(), "override acme/api/u* is limit 12, not limit 10") {
		t.Errorf("%v", err)
	}
}
