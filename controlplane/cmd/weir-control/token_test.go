package main

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/tuning"
)

const adminToken = "0123456789abcdef0123456789abcdef"

// With tokens the API may listen on addresses that others reach. The file must have a token.
func TestTokenSettings(t *testing.T) {
	open := config{APIListen: "0.0.0.0:7080", APIAuth: "token"}
	if err := open.validate(); err != nil && strings.Contains(err.Error(), "api-listen") {
		t.Errorf("%v", err)
	}
	for words, content := range map[string]string{"is empty (openssl rand -hex 32 makes a token)": "\n", "the admin token is 5 bytes long": "short"} {
		t.Setenv("WEIR_MYSQL_DSN", "weir:s3cret@tcp(127.0.0.1:1)/weir")
		code, _, stderr := tried(t, "--api-listen", "127.0.0.1:0", "--handlers-listen", "127.0.0.1:0", "--api-auth", "token", "--api-admin-token-file", file(t, content))
		if code != exitFailure || !strings.Contains(stderr, "api-admin-token-file") || !strings.Contains(stderr, words) {
			t.Errorf("exit %d, %s", code, stderr)
		}
	}
}

// The whole way: the file's token creates another token, which may act as its role allows, and reaches rollouts and
// settings behind the API.
func TestTokensOpenTheAPI(t *testing.T) { servers.EachSQL(t, testTokensOpenTheAPI) }

func testTokensOpenTheAPI(t *testing.T) {
	r, mysql := startWithTokens(t)
	migrated(t, mysql.DSN("weir"))
	if _, err := r.client.Fleet(t.Context(), connect.NewRequest(&controlv1.FleetRequest{})); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("without a token: %v", err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	create := as(adminToken, &controlv1.CreateTokenRequest{Reason: "pipeline", Name: "ci", Role: "operator"})
	made, err := controlv1connect.NewTokenServiceClient(client, r.url).CreateToken(t.Context(), create)
	if err != nil {
		t.Fatal(err)
	}
	secret := made.Msg.GetSecret()
	if _, err := controlv1connect.NewTokenServiceClient(client, r.url).ListTokens(t.Context(), as(secret, &controlv1.ListTokensRequest{})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("an operator at tokens: %v", err)
	}
	set := as(secret, &controlv1.SetOverrideRequest{Actor: "root", Reason: "abuse", Override: &controlv1.Override{Workspace: "acme", Namespace: "api", Pattern: "user_*", Limit: 0}})
	if _, err := controlv1connect.NewSettingsServiceClient(client, r.url).SetOverride(t.Context(), set); err != nil {
		t.Error(err)
	}
	whole, err := tuning.Default().Document()
	if err != nil {
		t.Fatal(err)
	}
	start := as(secret, &controlv1.StartRolloutRequest{Reason: "fewer rows", Id: "r1", Force: true, Tuning: string(whole), Plan: &controlv1.RolloutPlan{Stages: []*controlv1.RolloutStage{{All: true, Approval: true}}}})
	began, err := controlv1connect.NewRolloutServiceClient(client, r.url).StartRollout(t.Context(), start)
	if err != nil || began.Msg.GetRollout().GetPhase() != "awaiting_approval" || began.Msg.GetRollout().GetActor() != "ci" {
		t.Errorf("%v, %v", began, err)
	}
	if log := r.log.String(); strings.Contains(log, secret) || strings.Contains(log, adminToken) {
		t.Errorf("a token is in the log:\n%s", log)
	}
	r.drain()
}

// With MySQL hanging, an operator whose token was used a moment ago aborts a rollout.
func TestAbortWhileMySQLHangs(t *testing.T) { servers.EachSQL(t, testAbortWhileMySQLHangs) }

func testAbortWhileMySQLHangs(t *testing.T) {
	r, mysql := startWithTokens(t)
	tokens := controlv1connect.NewTokenServiceClient(r.http, r.url)
	made, err := tokens.CreateToken(t.Context(), as(adminToken, &controlv1.CreateTokenRequest{Reason: "on call", Name: "ops", Role: "operator"}))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := tuning.Default().Document()
	if err != nil {
		t.Fatal(err)
	}
	rollouts := controlv1connect.NewRolloutServiceClient(r.http, r.url)
	plan := &controlv1.RolloutPlan{Stages: []*controlv1.RolloutStage{{All: true, Approval: true}}}
	if _, err := rollouts.StartRollout(t.Context(), as(made.Msg.GetSecret(), &controlv1.StartRolloutRequest{Reason: "x", Id: "r1", Force: true, Tuning: string(whole), Plan: plan})); err != nil {
		t.Fatal(err)
	}
	if err := mysql.Freeze(); err != nil {
		t.Fatal(err)
	}
	abort := as(made.Msg.GetSecret(), &controlv1.OperateRolloutRequest{Reason: "MySQL hangs", Id: "r1", Action: controlv1.RolloutAction_ROLLOUT_ACTION_ABORT})
	answer, err := rollouts.OperateRollout(t.Context(), abort)
	if err != nil || !strings.Contains(answer.Msg.GetRollout().GetWhy(), "aborted by ops: MySQL hangs") {
		t.Errorf("%v, %v", answer, err)
	}
	if err := mysql.Thaw(); err != nil {
		t.Fatal(err)
	}
	r.drain()
}

// as returns a request with a token.
func as[T any](secret string, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	req.Header().Set("Authorization", "Bearer "+secret)
	return req
}

// startWithTokens runs the program, with tokens required, until the test ends.
func startWithTokens(t *testing.T) (*running, *servers.SQL) {
	t.Helper()
	mysql, restate := servers.SQLForTest(t), servers.RestateForTest(t)
	mysql.CreateForTest(t, "weir")
	t.Setenv("WEIR_MYSQL_DSN", mysql.DSN("weir"))
	r := startControl(t, "--restate-ingress", restate.IngressURL(), "--restate-admin", restate.AdminURL(),
		"--api-auth", "token", "--api-admin-token-file", file(t, adminToken+"\n"))
	r.awaitReady()
	return r, mysql
}
