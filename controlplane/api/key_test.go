package api

import (
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/window"
)

func TestGetKeyCall(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewTopKeysServiceClient(f.http, f.url)
	f.key = limits.KeyReport{
		Now: at, Truncated: true,
		Override: &limits.Override{Workspace: "acme", Namespace: "api", Pattern: "user_1", Limit: 100},
		Reset:    &limits.Reset{Workspace: "acme", Namespace: "api", Identifier: "user_1", Generation: 2, SetAt: at, ExpiresAt: at},
		Windows: []limits.KeyWindow{
			{Mode: window.Estimate, DurationMs: 1000, Weight: 0.5, Effective: 7, Limit: new(int64(100)),
				Current: limits.KeyCell{StartMs: 9000, Generation: 2, Count: 7, Parts: []limits.KeyPart{{Region: "eu\xfe", Count: 7, UpdatedAt: at.Add(time.Second)}}}},
			{DurationMs: 60_000},
		},
	}
	answer, err := client.GetKey(t.Context(), connect.NewRequest(&controlv1.GetKeyRequest{Workspace: "acme", Namespace: "api", Identifier: "user_1", Limit: 9}))
	if err != nil {
		t.Fatal(err)
	}
	if want := (limits.KeyQuery{Workspace: "acme", Namespace: "api", Identifier: "user_1", Limit: 9, Cost: 1}); f.keyAsked != want {
		t.Errorf("asked for %+v, want %+v", f.keyAsked, want)
	}
	ms := at.UnixMilli()
	limit, reported := int64(100), int64(100)
	wantText(t, answer.Msg, &controlv1.GetKeyResponse{
		NowMs: ms, Truncated: true, OverrideExact: true,
		Override: &controlv1.Override{Workspace: "acme", Namespace: "api", Pattern: "user_1", Limit: 100},
		Reset_:   &controlv1.Reset{Workspace: "acme", Namespace: "api", Identifier: "user_1", Generation: 2, SetAtMs: ms, ExpiresAtMs: ms},
		Windows: []*controlv1.KeyWindow{
			{Mode: "estimate", DurationMs: 1000, Weight: 0.5, Effective: 7, Limit: &limit, Previous: &controlv1.KeyCell{},
				Current: &controlv1.KeyCell{StartMs: 9000, Generation: 2, Count: 7, Parts: []*controlv1.KeyPart{{Region: "eu\uFFFD", Count: 7, UpdatedAtMs: ms + 1000}}}},
			{Mode: "exact", DurationMs: 60_000, Current: &controlv1.KeyCell{}, Previous: &controlv1.KeyCell{}},
		},
	})
	// With judge the verdict is explicit in every window, "unknown" included.
	f.top = limits.TopKeys{Keys: []limits.TopKey{{Workspace: "acme", Namespace: "api", Identifier: "user_1", DurationMs: 1000, Limit: 100, Count: 100, ReportedAt: at.Add(time.Millisecond)}}}
	ask := &controlv1.GetKeyRequest{Workspace: "acme", Namespace: "api", Identifier: "user_1", Judge: true}
	if answer, err = client.GetKey(t.Context(), connect.NewRequest(ask)); err != nil {
		t.Fatal(err)
	}
	if want := (limits.TopQuery{Workspace: "acme", Namespace: "api", Identifier: "user_1", Limit: limits.TopKeysMax}); f.topAsked != want {
		t.Errorf("asked for %+v, want %+v", f.topAsked, want)
	}
	for i, want := range []*controlv1.KeyWindow{{Verdict: controlv1.KeyVerdict_KEY_VERDICT_DENIED, Reported: &reported}, {Verdict: controlv1.KeyVerdict_KEY_VERDICT_UNKNOWN}} {
		got := answer.Msg.GetWindows()[i]
		wantText(t, &controlv1.KeyWindow{Verdict: got.GetVerdict(), Reported: got.Reported}, want)
	}
	f.fleetErr = controlplane.ErrUnavailable
	if _, err := client.GetKey(t.Context(), connect.NewRequest(&controlv1.GetKeyRequest{})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("with MySQL down: %v", err)
	}
}
