package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// oneNode answers Explain, and nothing else.
type oneNode struct {
	weirv1connect.UnimplementedRateLimitServiceHandler
	answer *weirv1.ExplainResponse
	asked  *weirv1.ExplainRequest
	token  string
}

func (n *oneNode) Explain(_ context.Context, req *connect.Request[weirv1.ExplainRequest]) (*connect.Response[weirv1.ExplainResponse], error) {
	n.asked, n.token = req.Msg, req.Header().Get("Authorization")
	if n.answer == nil {
		return nil, connect.NewError(connect.CodeUnauthenticated, errors.New("no such token"))
	}
	return connect.NewResponse(n.answer), nil
}

func (n *oneNode) ExplainLease(_ context.Context, req *connect.Request[weirv1.ExplainLeaseRequest]) (
	*connect.Response[weirv1.ExplainLeaseResponse], error) {
	return connect.NewResponse(&weirv1.ExplainLeaseResponse{Summary: "No slot is free here: limit 3.", Known: true, Leases: 1,
		Slots: 1, Others: 2, Waiters: 4, ValidForMs: 7000, Outage: "local",
		Decision: &weirv1.AcquireResponse{Limit: req.Msg.GetLimit()}}), nil
}

// A concurrency limit has no duration; a rate needs one.
func TestExplainLeases(t *testing.T) {
	w := newWorld(t)
	url := new(oneNode).start(t)
	w.want(t, w.run(t, "explain", "acme", "exports", "org_7", "--limit=3", "--leases", "--node", url), exitOK, `
NODE                    VERDICT          LIMIT  LEASES  SLOTS  OTHERS  WAITING  SLOTS END IN
`+url+`  asks the origin  3      1       1      2       4        7s

No slot is free here: limit 3.
`)
	if code := w.run(t, "explain", "acme", "exports", "org_7", "--limit=3", "--node", url); code != exitUsage {
		t.Errorf("no duration: exit %d", code)
	}
	for _, of := range []string{"--duration=1m", "--cost=2"} {
		if code := w.run(t, "explain", "acme", "exports", "org_7", "--limit=3", "--leases", of, "--node", url); code != exitUsage {
			t.Errorf("%s of leases: exit %d", of, code)
		}
	}
	if code := w.run(t, "explain", "acme", "exports", "org_7", "--limit=3", "--leases", "-o", "json", "--node", url); code != exitOK {
		t.Errorf("exit %d", code)
	}
}

func (n *oneNode) start(t *testing.T) (url string) {
	t.Helper()
	_, handler := weirv1connect.NewRateLimitServiceHandler(n)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func explained() *weirv1.ExplainResponse {
	atMs := now.UnixMilli()
	return &weirv1.ExplainResponse{
		Summary: "denied\x1b, because", AtMs: atMs, DurationMs: 60_000, Mode: "exact", Outage: "local", NodeShare: "flush", Window: "precise", Known: true,
		Decision: &weirv1.LimitResponse{Limit: 10, Current: 11.5, RetryAfterMs: 15_000, Override: "user_*"},
		Current:  &weirv1.ExplainedCell{StartMs: atMs - 5000, Regional: 6, Unsent: 1, Foreign: 4, Counts: 10, Restores: true},
		Previous: &weirv1.ExplainedCell{Counts: 2}, Weight: 0.25, RefreshedAtMs: atMs - 400,
		Asks: "closed", Sends: "closed", TuningVersion: 7, SettingsAtMs: atMs - 12_000,
	}
}

func TestExplain(t *testing.T) {
	w := newWorld(t)
	t.Setenv("WEIR_NODE_TOKEN", "")
	t.Setenv("WEIR_TOKEN", "the API's")
	eu := &oneNode{answer: explained()}
	ask := []string{"explain", "acme", "api", "user_42", "--limit=10", "--duration=1m"}
	w.want(t, w.run(t, append(ask, "--node", eu.start(t))...), exitOK, `
TERM                VALUE                 AGE    FROM
verdict             denied                0s     this node
compared            11.5 of 10 per 1m     0s     current + carried whole units, with the request
passes in           15s                   -      without other requests
override            user_*                12s    settings
current, since      2026-01-02 15:04:00Z  -      clock
  of this region    6                     400ms  the region's origin, and this node
  not sent yet      1                     0s     this node
  of other regions  4                     400ms  the region's origin
  counts            10                    0s     this node
  to be restored    yes                   0s     the origin has lost it
previous            2                     -      as current
  left the window   0                     0s     this node
asks the origin     -                     0s     this node
origin              closed, closed        0s     breakers of decisions, of background sends
mode                exact, outage local   12s    settings
node share          flush                 12s    settings
window              precise               12s    settings
tuning              version 7             12s    settings
key is in memory    yes                   0s     this node

denied?, because
`)
	if eu.token != "" {
		t.Errorf("the node was shown %q", eu.token)
	}
	if a := eu.asked; a.GetWorkspace() != "acme" || a.GetNamespace() != "api" || a.GetIdentifier() != "user_42" || a.GetLimit() != 10 || a.GetDurationMs() != 60_000 || a.GetCost() != 1 {
		t.Errorf("asked for %v", a)
	}
}

// Explanations of several nodes are shown side by side. A node that does not answer is named, and the others are shown.
func TestExplainOfSeveralNodes(t *testing.T) {
	w := newWorld(t)
	t.Setenv("WEIR_NODE_TOKEN", "")
	other := explained()
	other.Current.Regional, other.Summary = 9, "allowed elsewhere"
	eu, us, closed := (&oneNode{answer: explained()}).start(t), (&oneNode{answer: other}).start(t), (&oneNode{}).start(t)
	ask := []string{"explain", "acme", "api", "k", "--limit=10", "--duration=1m", "--node", eu, "--node", us}
	if code := w.run(t, ask...); code != exitOK {
		t.Fatalf("exit %d: %s", code, w.stderr.String())
	}
	for _, says := range []string{eu, us, eu + ": denied?, because\n", us + ": allowed elsewhere\n"} {
		if !strings.Contains(w.stdout.String(), says) {
			t.Errorf("%q is not in\n%s", says, w.stdout.String())
		}
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("a node's\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	guarded := &oneNode{answer: explained()}
	if code := w.run(t, append(ask, "--node", guarded.start(t), "--node", closed, "--node-token-file", file)...); code != exitFailure || guarded.token != "Bearer a node's" ||
		!strings.Contains(w.stderr.String(), closed+": no such token") || !strings.Contains(w.stderr.String(), "WEIR_NODE_TOKEN") || !strings.Contains(w.stdout.String(), "allowed elsewhere") {
		t.Errorf("exit %d, the token was %q\n%s%s", code, guarded.token, w.stdout.String(), w.stderr.String())
	}
	if code := w.run(t, append(ask, "-o", "json", "--node", closed)...); code != exitFailure || strings.Count(w.stdout.String(), `"node":`) != 3 || !strings.Contains(w.stdout.String(), `"error": "unauthenticated: no such token"`) {
		t.Errorf("exit %d\n%s", code, w.stdout.String())
	}
	if code := w.run(t, "explain", "acme", "api", "k", "--limit=10", "--duration=1m", "--node", "http://127.0.0.1:1"); code != exitUnreachable || !strings.Contains(w.stderr.String(), "--node") {
		t.Errorf("nobody there: exit %d, %s", code, w.stderr.String())
	}
}

// A cost of 0 is sent as 0, and the default is 1.
func TestExplainAsksAboutTheCostOfTheFlag(t *testing.T) {
	w := newWorld(t)
	node := &oneNode{answer: explained()}
	ask := []string{"explain", "acme", "api", "user_42", "--limit=10", "--duration=1m", "--node", node.start(t)}
	for flag, want := range map[string]*weirv1.ExplainRequest{
		"":         {Cost: 1},
		"--cost=5": {Cost: 5},
		"--cost=0": {ZeroCost: true},
	} {
		args := ask
		if flag != "" {
			args = append(args[:len(args):len(args)], flag)
		}
		if code := w.run(t, args...); code != exitOK || node.asked.GetCost() != want.GetCost() || node.asked.GetZeroCost() != want.GetZeroCost() {
			t.Errorf("%q: exit %d, asked about %v", flag, code, node.asked)
		}
	}
}
