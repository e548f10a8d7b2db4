package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/tuning"
)

// us-2 has Redis and no MySQL. Its region's counts reach other regions and back, operators' settings reach it, and its
// heartbeats reach the fleet.
func TestANodeWithoutMySQLIsAFullMember(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testANodeWithoutMySQLIsAFullMember)
}

func testANodeWithoutMySQLIsAFullMember(t *testing.T) {
	s := start(t)
	member := s.Nodes[3]
	if metrics, err := member.Metrics(t.Context()); err != nil || s.HasMySQL(member.ID) ||
		strings.Contains(metrics, "weir_relay_") || strings.Contains(metrics, "go_sql_") {
		t.Fatalf("%s has MySQL (%v):\n%s", member.ID, err, metrics)
	}
	await.True(t, "us-1 relays us", func() bool { return s.Relay(t.Context(), "us") == s.Nodes[2] })
	sharesCounts(t, s.Nodes[0], member)
	sharesCounts(t, member, s.Nodes[0])
	followsSettings(t, s, member)
	followsRollouts(t, s, member)
	followsResets(t, s, member)
}

// sharesCounts uses a limit up on a node, and checks that another node denies it.
func sharesCounts(t *testing.T, spends, denies *stack.Node) {
	t.Helper()
	user, window := "of_"+spends.ID, roomyWindow()
	if r := limit(t, spends, limitRequest(user, 10, 10, window)); !r.Allowed {
		t.Fatalf("%s: %v", spends.ID, r)
	}
	await.True(t, denies.ID+" denies what "+spends.ID+" used up", func() bool {
		return !limit(t, denies, limitRequest(user, 1, 10, window)).Allowed
	})
}

// followsSettings sets an override and a namespace's settings, and takes the override away.
func followsSettings(t *testing.T, s *stack.Stack, member *stack.Node) {
	t.Helper()
	window := roomyWindow()
	settings := controlv1connect.NewSettingsServiceClient(http.DefaultClient, s.API())
	decides := func(most int64, shadowed bool) func() bool {
		return func() bool {
			r := limit(t, member, limitRequest("big_spender", 200, 100, window))
			return r.Limit == most && r.Shadowed == shadowed
		}
	}
	_, err := settings.SetOverride(t.Context(), connect.NewRequest(&controlv1.SetOverrideRequest{
		Actor: "ann", Reason: "test", Override: &controlv1.Override{Workspace: "acme", Namespace: "api", Pattern: "big_*", Limit: 3},
	}))
	mustSet(t, err)
	await.True(t, "decides by the override", decides(3, false))
	for _, shadow := range []bool{true, false} {
		_, err = settings.SetNamespace(t.Context(), connect.NewRequest(&controlv1.SetNamespaceRequest{
			Actor: "ann", Reason: "test", Workspace: "acme", Namespace: "api", Shadow: &shadow,
		}))
		mustSet(t, err)
		await.True(t, fmt.Sprint("the namespace's shadow is ", shadow), decides(3, shadow))
	}
	_, err = settings.DeleteOverride(t.Context(), connect.NewRequest(&controlv1.DeleteOverrideRequest{
		Actor: "ann", Reason: "test", Workspace: "acme", Namespace: "api", Pattern: "big_*",
	}))
	mustSet(t, err)
	await.True(t, "decides without the override", decides(100, false))
}

func mustSet(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// followsRollouts rolls a tuning out, and waits until the member's heartbeats report it.
func followsRollouts(t *testing.T, s *stack.Stack, member *stack.Node) {
	t.Helper()
	set := tuning.Default()
	set.Floor = 0.3
	document, err := set.Document()
	mustSet(t, err)
	soon, long := int64(100), await.Patience.Milliseconds()
	any := 1.0 // the member has denied most requests until now
	rollouts := controlv1connect.NewRolloutServiceClient(http.DefaultClient, s.API())
	_, err = rollouts.StartRollout(t.Context(),
		connect.NewRequest(&controlv1.StartRolloutRequest{Actor: "ann", Reason: "test", Id: "all", Tuning: string(document),
			Plan: &controlv1.RolloutPlan{BaselineMs: new(int64), ApplyTimeoutMs: &long,
				Guardrails: &controlv1.RolloutGuardrails{DeniedShareShift: &any}, Stages: []*controlv1.RolloutStage{{All: true, BakeMs: &soon}}}}))
	mustSet(t, err)
	await.True(t, "heartbeats tell of the tuning", func() bool {
		r, err := rollouts.RolloutStatus(t.Context(), connect.NewRequest(&controlv1.RolloutStatusRequest{Id: "all"}))
		if err == nil && r.Msg.GetRollout().GetPhase() == "rolled_back" {
			t.Fatalf("rolled back: %s", r.Msg.GetRollout().GetWhy())
		}
		n := heartbeatOf(t, s, member)
		return n.GetLive() && n.GetRegion() == "us" && n.GetTuningVersion() > 0
	})
	if n := heartbeatOf(t, s, member); n.GetHealth().GetRelay() != nil || n.GetHealth().GetAllowedTotal() == 0 {
		t.Errorf("its heartbeat: %v", n)
	}
}

// followsResets lets a caller who has used up a limit on the member pass there again.
func followsResets(t *testing.T, s *stack.Stack, member *stack.Node) {
	t.Helper()
	window := roomyWindow()
	if r := limit(t, member, limitRequest("user_42", 10, 10, window)); !r.Allowed {
		t.Fatal(r)
	}
	reset, err := controlv1connect.NewSettingsServiceClient(http.DefaultClient, s.API()).ResetKey(t.Context(),
		connect.NewRequest(&controlv1.ResetKeyRequest{Actor: "ann", Reason: "test", Workspace: "acme", Namespace: "api",
			Identifier: "user_42", LongestWindowMs: window.Milliseconds()}))
	mustSet(t, err)
	await.True(t, "the caller passes", func() bool {
		return limit(t, member, limitRequest("user_42", 0, 10, window)).Remaining == 10
	})
	await.True(t, "heartbeats tell of the reset", func() bool {
		return heartbeatOf(t, s, member).GetHealth().GetResetAtMs() >= reset.Msg.GetReset_().GetSetAtMs()
	})
}

// heartbeatOf returns a node's last heartbeat, or nil before the first.
func heartbeatOf(t *testing.T, s *stack.Stack, node *stack.Node) *controlv1.Node {
	t.Helper()
	fleet, err := controlv1connect.NewControlServiceClient(http.DefaultClient, s.API()).Fleet(t.Context(),
		connect.NewRequest(&controlv1.FleetRequest{}))
	mustSet(t, err)
	for _, n := range fleet.Msg.GetNodes() {
		if n.GetNodeId() == node.ID {
			return n
		}
	}
	return nil
}
