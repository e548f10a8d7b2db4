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
	for pattern, exact := range map[string]bool{"user_1": true, "user_*": false, "10.0.0.0/8": false} {
		f := serve(t)
		f.key = limits.KeyReport{Override: &limits.Override{Pattern: pattern}}
		answer, err := controlv1connect.NewTopKeysServiceClient(f.http, f.url).GetKey(t.Context(), connect.NewRequest(&controlv1.GetKeyRequest{Workspace: "acme", Namespace: "api", Identifier: "user_1"}))
		if err != nil || answer.Msg.GetOverrideExact() != exact {
			t.Errorf("%q: %v, %v", pattern, answer, err)
		}
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
	// In shadow mode a cost passes that nodes would deny.
	f.key.Shadow, f.key.Override.Shadow = true, true
	if answer, err = client.GetKey(t.Context(), connect.NewRequest(ask)); err != nil || !answer.Msg.GetShadow() || !answer.Msg.GetOverride().GetShadow() ||
		answer.Msg.GetWindows()[0].GetVerdict() != controlv1.KeyVerdict_KEY_VERDICT_PASSES {
		t.Errorf("in shadow mode: %v, %v", answer, err)
	}
	f.fleetErr = controlplane.ErrUnavailable
	if _, err := client.GetKey(t.Context(), connect.NewRequest(&controlv1.GetKeyRequest{})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("with MySQL down: %v", err)
	}
}

// A page of keys has what is known of each: without a limit there is no time at which it is free.
func TestListKeysCall(t *testing.T) {
	f := serve(t)
	client := controlv1connect.NewTopKeysServiceClient(f.http, f.url)
	ms := at.UnixMilli()
	start := window.Start(window.Sequence(ms, 60_000), 60_000)
	f.keys = limits.KeyPage{Now: at, Next: "user_2\xfe", ReportsErr: controlplane.ErrUnavailable, Keys: []limits.KeyListed{
		{Identifier: "user_1", KeyReport: limits.KeyReport{
			Override: &limits.Override{Pattern: "user_*", Limit: 5}, Reset: &limits.Reset{SetAt: at}, Truncated: true,
			Windows: []limits.KeyWindow{{DurationMs: 60_000, Effective: 5, Limit: new(int64(5)), LimitReported: true,
				Current: limits.KeyCell{StartMs: start, Count: 5}}},
		}},
		{Identifier: "user_2\xfe", KeyReport: limits.KeyReport{Windows: []limits.KeyWindow{{Mode: window.Estimate, DurationMs: 1000, Effective: 7}}}},
	}}
	answer, err := client.ListKeys(t.Context(), connect.NewRequest(&controlv1.ListKeysRequest{Workspace: "acme", Namespace: "api",
		Prefix: "user_", After: []byte("user_0\xff"), Limit: 7}))
	if err != nil {
		t.Fatal(err)
	}
	if want := (limits.KeysQuery{Workspace: "acme", Namespace: "api", Prefix: "user_", After: "user_0\xff", Limit: 7}); f.keysAsked != want {
		t.Errorf("asked for %+v, want %+v", f.keysAsked, want)
	}
	free, ok := window.PassesAt(5, 0, 1, 5, ms, 60_000)
	if !ok || free <= ms {
		t.Fatalf("free at %d, %v", free, ok)
	}
	wantText(t, answer.Msg, &controlv1.ListKeysResponse{NowMs: ms, Next: []byte("user_2\xfe"), LimitsProblem: controlplane.ErrUnavailable.Error(),
		Keys: []*controlv1.ListedKey{
			{Identifier: "user_1", Override: "user_*", ResetAtMs: ms, Truncated: true, Windows: []*controlv1.ListedWindow{
				{Mode: "exact", DurationMs: 60_000, Count: 5, Limit: new(int64(5)), LimitReported: true, FreeAtMs: &free}}},
			{Identifier: "user_2\uFFFD", Windows: []*controlv1.ListedWindow{{Mode: "estimate", DurationMs: 1000, Count: 7}}},
		}})
	// In shadow mode a cost of 1 passes now, also if the limit is unknown.
	for i := range f.keys.Keys {
		f.keys.Keys[i].Shadow = true
	}
	if answer, err = client.ListKeys(t.Context(), connect.NewRequest(&controlv1.ListKeysRequest{})); err != nil {
		t.Fatal(err)
	}
	for _, k := range answer.Msg.GetKeys() {
		if !k.GetShadow() || k.GetWindows()[0].GetFreeAtMs() != ms {
			t.Errorf("in shadow mode: %v", k)
		}
	}
	if _, err := client.ListKeys(t.Context(), connect.NewRequest(&controlv1.ListKeysRequest{})); err != nil || f.keysAsked.Limit != keysDefault {
		t.Errorf("%+v, %v", f.keysAsked, err)
	}
	f.fleetErr = controlplane.ErrUnavailable
	if _, err := client.ListKeys(t.Context(), connect.NewRequest(&controlv1.ListKeysRequest{})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("with MySQL down: %v", err)
	}
}
