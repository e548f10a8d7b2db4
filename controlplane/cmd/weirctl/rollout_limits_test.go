package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/controlplane/api"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/settings"
)

// limitRollouts records the start of a rollout, and has one rollout.
type limitRollouts struct {
	controlv1connect.UnimplementedRolloutServiceHandler
	started *controlv1.StartRolloutRequest
	one     *controlv1.Rollout
	err     error
}

func (s *limitRollouts) StartRollout(_ context.Context, req *connect.Request[controlv1.StartRolloutRequest]) (*connect.Response[controlv1.StartRolloutResponse], error) {
	if s.err != nil {
		return nil, s.err
	}
	s.started = req.Msg
	r := &controlv1.Rollout{Id: req.Msg.GetId(), Actor: req.Msg.GetActor(), Reason: req.Msg.GetReason(), Phase: "measuring", Stage: 1,
		StartedAtMs: now.UnixMilli(), Limits: req.Msg.GetLimits(), Evidence: &controlv1.LimitsEvidence{}}
	for _, s := range req.Msg.GetPlan().GetStages() {
		r.Stages = append(r.Stages, &controlv1.RolloutProgress{Regions: s.GetRegions(), Rest: s.GetAll(), BakeMs: s.GetBakeMs(), Approval: s.GetApproval(),
			Nodes: s.GetNodes(), NodesPercent: s.GetNodesPercent(), Shadow: s.GetShadow(), State: "waiting"})
	}
	return connect.NewResponse(&controlv1.StartRolloutResponse{Rollout: r}), nil
}

func (s *limitRollouts) RolloutStatus(context.Context, *connect.Request[controlv1.RolloutStatusRequest]) (*connect.Response[controlv1.RolloutStatusResponse], error) {
	return connect.NewResponse(&controlv1.RolloutStatusResponse{Rollout: s.one}), s.err
}

func (s *limitRollouts) GetTuning(context.Context, *connect.Request[controlv1.GetTuningRequest]) (*connect.Response[controlv1.GetTuningResponse], error) {
	return connect.NewResponse(&controlv1.GetTuningResponse{Tunings: []*controlv1.RegionTuning{{Document: controltest.Document()}}}), nil
}

// newLimitsWorld serves the real API on a drawer, with rollouts of its own.
func newLimitsWorld(t *testing.T) (*world, *drawer, *limitRollouts) {
	t.Helper()
	w, s := newWorld(t), &limitRollouts{}
	d := &drawer{overrides: map[limits.OverrideName]limits.Override{}, namespaces: map[[2]string]limits.Namespace{}, clock: now}
	mux := http.NewServeMux()
	mux.Handle(controlv1connect.NewRolloutServiceHandler(s))
	mux.Handle("/", api.NewHandler(api.Config{
		Settings: limits.NewSettings(d), Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Fleet: func(context.Context) (fleet.Fleet, error) { return w.fleet, nil },
	}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w, d, s
}

const stricter = `kind: weir-settings
version: 1
namespaces:
  - {workspace: "acme", namespace: "api", mode: "exact", outage: "local", node_share: "wait", shadow: true}
overrides:
  - {workspace: "acme", namespace: "api", pattern: "user_*", limit: 50, duration_ms: 60000}
  - {workspace: "acme", namespace: "api", pattern: "a/b", limit: 5}
`

// storeSome stores overrides from which stricter differs.
func storeSome(d *drawer) {
	d.put(limits.Override{Workspace: "acme", Namespace: "api", Pattern: "user_*", Limit: 100, DurationMs: 60_000})
	d.put(limits.Override{Workspace: "zeta", Namespace: "web", Pattern: "evil"})
}

// A rollout of limits sends the difference between a document and the stored settings, and prints it as apply prints
// its plan.
func TestRolloutOfLimitsStarts(t *testing.T) {
	w, d, s := newLimitsWorld(t)
	storeSome(d)
	start := []string{"rollout", "start", "--limits", path(t, stricter), "--stage", "eu:1node:shadow", "--stage", "us:shadow", "--stage", "all:approval",
		"--newly-denied-share", "0.02", "--newly-denied-callers", "0", "--protect", "acme/api/partner_*", "--protect", "acme/api/a/b/*", "--id", "r1", "--reason", "less"}
	w.want(t, w.run(t, start...), exitOK, `
rollout r1, stage 1 of 3: measuring
started  0s ago by os-user: less
limits   3 items of the settings

+ namespace acme/api: shadow false -> true
+ override acme/api/a/b: limit 5, window of the request
~ override acme/api/user_*: limit 100 -> 50

STAGE  REGIONS          BAKE  MODE     APPROVAL  STATE
1      1 node of eu     5m    shadow   -         waiting
2      us               5m    shadow   -         waiting
3      regions to come  5m    enforce  yes       waiting

no evidence yet: nodes report it when a stage has measured its baseline and begun its trial

Follow it with: weirctl rollout status --watch r1
`)
	if want := `+ namespace acme/api: shadow false -> true
+ override acme/api/a/b: limit 5, window of the request
~ override acme/api/user_*: limit 100 -> 50
1 setting not in the document stays as it is; --prune deletes it
`; w.stderr.String() != want {
		t.Errorf("stderr %s", w.stderr.String())
	}
	got := s.started
	if got.GetTuning() != "" || got.GetActor() != "os-user" || got.GetReason() != "less" || got.GetPlan().GetLeaseMs() != 300_000 {
		t.Errorf("%v", got)
	}
	want := &controlv1.RolloutGuardrails{NewlyDeniedShare: proto.Float64(0.02), NewlyDeniedCallers: proto.Int64(0), Protected: []*controlv1.ProtectedCaller{
		{Workspace: "acme", Namespace: "api", Pattern: "partner_*"}, {Workspace: "acme", Namespace: "api", Pattern: "a/b/*"}}}
	if !proto.Equal(got.GetPlan().GetGuardrails(), want) {
		t.Errorf("%v", got.GetPlan().GetGuardrails())
	}
	o := got.GetLimits().GetOverrides()
	if len(o) != 2 || o[0].Before != nil || o[0].GetAfter().GetLimit() != 5 || o[1].GetBefore().GetLimit() != 100 || o[1].GetAfter().GetLimit() != 50 {
		t.Errorf("%v", o)
	}
	if n := got.GetLimits().GetNamespaces(); len(n) != 1 || n[0].GetBefore().GetShadow() || !n[0].GetAfter().GetShadow() || n[0].GetBefore().GetOutage() != "local" || n[0].GetBefore().GetWindow() != "cells" {
		t.Errorf("%v", n)
	}
	if code := w.run(t, append(start, "--prune")...); code != exitOK || !strings.Contains(w.stderr.String(), "- override zeta/web/evil: limit 0 (blocks), window of the request\n") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	if o := s.started.GetLimits().GetOverrides(); len(o) != 3 || o[2].After != nil || o[2].GetBefore().GetPattern() != "evil" {
		t.Errorf("%v", o)
	}
}

// --dry-run prints the difference and the call, also without a stage, and starts nothing.
func TestRolloutOfLimitsDryRun(t *testing.T) {
	w, d, s := newLimitsWorld(t)
	storeSome(d)
	if code := w.run(t, "rollout", "start", "--limits", path(t, stricter), "--reason", "x", "--dry-run"); code != exitOK || s.started != nil ||
		!strings.Contains(w.stderr.String(), "~ override acme/api/user_*: limit 100 -> 50\n") || !strings.Contains(w.stdout.String(), "would call StartRollout:\n") ||
		!strings.Contains(w.stdout.String(), "pattern: a/b") {
		t.Errorf("exit %d, %s%s", code, w.stdout.String(), w.stderr.String())
	}
	code := w.run(t, "rollout", "start", "--limits", path(t, stricter), "--reason", "x", "--stage", "all:shadow", "--dry-run", "-o", "json")
	var answer struct {
		DryRun struct {
			Call    string
			Request json.RawMessage
		}
	}
	var request controlv1.StartRolloutRequest
	if err := errors.Join(json.Unmarshal(w.stdout.Bytes(), &answer), protojson.Unmarshal(answer.DryRun.Request, &request)); err != nil || code != exitOK ||
		!request.GetPlan().GetStages()[0].GetShadow() || len(request.GetLimits().GetOverrides()) != 2 {
		t.Errorf("exit %d, %v, %s", code, err, w.stdout.String())
	}
}

// Flags and documents that cannot be rolled out are errors, and start nothing.
func TestRolloutOfLimitsRefuses(t *testing.T) {
	w, d, s := newLimitsWorld(t)
	storeSome(d)
	file := path(t, stricter)
	same := path(t, "kind: weir-settings\nversion: 1\noverrides: [{workspace: acme, namespace: api, pattern: user_*, limit: 100, duration_ms: 60000}]\n")
	many := "kind: weir-settings\nversion: 1\noverrides:\n"
	for i := range settings.ChangesMax + 1 {
		many += fmt.Sprintf("- {workspace: acme, namespace: api, pattern: u%d, limit: 1}\n", i)
	}
	plan := path(t, `{"stages":[{"all":true,"shadow":true},{"all":true}],"guardrails":{"newly_denied_callers":"5"}}`)
	for says, args := range map[string][]string{
		"--set and --limits can't be used together: a rollout changes either the tuning or limits":                            {"--limits", file, "--set", "floor=0.3", "--stage", "all"},
		"--tuning and --limits can't be used together":                                                                        {"--limits", file, "--tuning", "rfc", "--stage", "all"},
		"--from and --limits can't be used together":                                                                          {"--limits", file, "--from", "fleet", "--stage", "all"},
		"--prune needs --limits: a rollout of a tuning does not have it":                                                      {"--tuning", "rfc", "--stage", "all", "--prune"},
		"--newly-denied-share needs --limits":                                                                                 {"--tuning", "rfc", "--stage", "all", "--newly-denied-share", "0"},
		"--newly-denied-callers needs --limits":                                                                               {"--tuning", "rfc", "--stage", "all", "--newly-denied-callers", "1"},
		"--protect needs --limits":                                                                                            {"--tuning", "rfc", "--stage", "all", "--protect", "a/b/c"},
		"stage 1 has shadow, which needs --limits":                                                                            {"--tuning", "rfc", "--stage", "all:shadow"},
		"the plan has guardrails about newly denied callers, which need --limits":                                             {"--tuning", "rfc", "--plan", plan},
		"stage 3 has shadow, and stage 2 does not: stages with shadow come first":                                             {"--limits", file, "--stage", "eu:shadow", "--stage", "eu:1node", "--stage", "all:shadow"},
		`--protect: "a/b" is no protected caller (want WORKSPACE/NAMESPACE/PATTERN`:                                           {"--limits", file, "--stage", "all", "--protect", "a/b"},
		`--protect: protected caller "//x": `:                                                                                 {"--limits", file, "--stage", "all", "--protect", "//x"},
		"--protect has no effect with --plan, which sets it: remove it, and write guardrails.protected into":                  {"--limits", file, "--plan", plan, "--protect", "a/b/c"},
		"--newly-denied-share has no effect with --plan, which sets it: remove it, and write guardrails.newly_denied_share i": {"--limits", file, "--plan", plan, "--newly-denied-share", "0.1"},
		"nothing changes: the stored settings have the values of the document":                                                {"--limits", same, "--stage", "all"},
		"the change has 501 items (1 to 500)":                                                                                 {"--limits", path(t, many), "--stage", "all"},
		"line 4: x is not a known field":                                                                                      {"--limits", path(t, "kind: weir-settings\nversion: 1\noverrides: []\nx: 1\n"), "--stage", "all"},
		"no such file":                                                                                                        {"--limits", "/does/not/exist", "--stage", "all"},
		`region "mars" has no live node`:                                                                                      {"--limits", file, "--stage", "mars"},
		"no stage is named":                                                                                                   {"--limits", file},
	} {
		if code := w.run(t, append([]string{"rollout", "start", "--reason", "x"}, args...)...); code != exitUsage || !strings.Contains(w.stderr.String(), says) || s.started != nil {
			t.Errorf("%q: exit %d, %s", args, code, w.stderr.String())
		}
	}
	if code := w.run(t, "rollout", "start", "--reason", "x", "--limits", file, "--plan", plan); code != exitOK || !s.started.GetPlan().GetStages()[0].GetShadow() || s.started.GetPlan().GetGuardrails().GetNewlyDeniedCallers() != 5 {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// If somebody has changed an item meanwhile, the command prints the API's difference, line by line, and fails.
func TestRolloutOfLimitsConflicts(t *testing.T) {
	w, d, s := newLimitsWorld(t)
	storeSome(d)
	s.err = connect.NewError(connect.CodeAborted, errors.New("the stored settings differ from the change:\n~ override acme/api/user_*: limit 100 -> 70\n+ override acme/api/x\x1b[2J: limit 1"))
	code := w.run(t, "rollout", "start", "--limits", path(t, stricter), "--stage", "all", "--reason", "x")
	if want := `weirctl: the stored settings differ from the change:
  ~ override acme/api/user_*: limit 100 -> 70
  + override acme/api/x?[2J: limit 1
Nothing has changed. Somebody else has changed these settings: run the command again to see what it would change now.
`; code != exitFailure || !strings.HasSuffix(w.stderr.String(), want) {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// Status prints the change, the mode of each stage, the evidence of each namespace, and the callers most affected.
// Names of callers do not control the terminal.
func TestStatusOfARolloutOfLimits(t *testing.T) {
	w, _, s := newLimitsWorld(t)
	s.one = &controlv1.Rollout{Id: "r1", Actor: "ann", Reason: "less", StartedAtMs: now.Add(-time.Minute).UnixMilli(), Phase: "baking", Stage: 1,
		Limits: &controlv1.LimitsChange{}, Stages: []*controlv1.RolloutProgress{{Regions: []string{"eu"}, Nodes: 1, BakeMs: 600_000, Shadow: true, State: "active"}, {Rest: true, BakeMs: 600_000, State: "waiting"}},
		Evidence: &controlv1.LimitsEvidence{Judged: 12_345, DeniedBefore: 100, DeniedAfter: 150, NewlyDenied: 55, Callers: 3, Protected: 1, Nodes: 2,
			Namespaces: []*controlv1.LimitsEvidenceNamespace{{Workspace: "acme", Namespace: "api", Judged: 12_000, DeniedBefore: 90, DeniedAfter: 140, NewlyDenied: 55}, {Workspace: "acme", Namespace: "web", Judged: 345, DeniedBefore: 10, DeniedAfter: 10}},
			Top:        []*controlv1.LimitsEvidenceCaller{{Workspace: "acme", Namespace: "api", Identifier: "user_1\x1b[2J", DurationMs: 60_000, Limit: 50, NewlyDenied: 54}, {Workspace: "acme", Namespace: "api", Identifier: "partner_1", DurationMs: 60_000, NewlyDenied: 1, Protected: true}}},
		Baseline: &controlv1.RolloutRates{Nodes: 1}, Now: &controlv1.RolloutRates{Nodes: 1},
		Rails: []*controlv1.RolloutRail{
			{Field: "newly_denied_share", Region: "eu", Now: proto.Float64(0.0045), Most: proto.Float64(0.01), Margin: proto.Float64(0.55)},
			{Field: "newly_denied_callers", Region: "eu", Now: proto.Float64(3), Most: proto.Float64(10), Margin: proto.Float64(0.7)},
			{Field: "protected", Region: "eu", Now: proto.Float64(1), Most: proto.Float64(0), Margin: proto.Float64(-1)}}}
	for i := range 22 {
		s.one.Limits.Overrides = append(s.one.Limits.Overrides, &controlv1.OverrideChange{After: &controlv1.Override{Workspace: "acme", Namespace: "api", Pattern: fmt.Sprintf("u%02d", i), Limit: 5}})
	}
	code := w.run(t, "rollout", "status", "r1")
	lines := strings.SplitAfter(w.stdout.String(), "\n")
	if len(lines) < 26 || lines[4] != "+ override acme/api/u00: limit 5, window of the request\n" || lines[24] != "and 2 more; -o json has all\n" {
		t.Fatalf("exit %d, %s", code, w.stdout.String())
	}
	if want := `
STAGE  REGIONS          BAKE  MODE     APPROVAL  STATE
1      1 node of eu     10m   shadow   -         active
2      regions to come  10m   enforce  -         waiting

evidence of 2 nodes: 3 callers newly denied, and 1 decision about protected callers
NAMESPACE  JUDGED  DENIED BEFORE  DENIED AFTER  NEWLY DENIED  SHARE
acme/api   12,000  90             140           55            0.46 %
acme/web   345     10             10            0             0.00 %
all        12,345  100            150           55            0.45 %

CALLER NEWLY DENIED OF LATE  NEW LIMIT         DENIED  PROTECTED
acme/api/user_1?[2J          50 in 1m          54      -
acme/api/partner_1           0 (blocks) in 1m  1       yes

stage 1: 1 node with heartbeats, 1 before the stage, 0 lost
GUARDRAIL               BEFORE  NOW     BOUND  MARGIN  NEAREST TO IT
share newly denied      -       0.0045  0.01   55 %    eu
callers newly denied    -       3       10     70 %    eu
protected newly denied  -       1       0      broken  eu
`; strings.Join(lines[25:], "") != want {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
	s.one.Phase, s.one.EndedAtMs = "rolled_back", now.UnixMilli()
	code = w.run(t, "rollout", "status", "r1")
	for _, want := range []string{"shadow   -         ended\n", "enforce  -         not begun\n"} {
		if !strings.Contains(w.stdout.String(), want) {
			t.Errorf("exit %d, no %q in %s", code, want, w.stdout.String())
		}
	}
	var answer controlv1.RolloutStatusResponse
	if code := w.run(t, "rollout", "status", "r1", "-o", "json"); code != exitOK || protojson.Unmarshal(w.stdout.Bytes(), &answer) != nil || !proto.Equal(answer.GetRollout(), s.one) {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
}

// FuzzStage checks that a stage reads back as it is written, whatever the order of its options.
func FuzzStage(f *testing.F) {
	for _, text := range []string{"eu,us:1node:shadow", "50%:shadow:10%:approval", "all:approval", "eu:", ":1node", "eu:shadow:shadow", "10%:10%"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		stage, err := parseStage(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "--stage ") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		again, err := parseStage(writtenStage(stage))
		if err != nil || !proto.Equal(stage, again) {
			t.Errorf("%q: %v, %v, %v", text, stage, again, err)
		}
	})
}

// writtenStage writes a stage with its options in another order than people do.
func writtenStage(s *controlv1.RolloutStage) string {
	text := strings.Join(s.GetRegions(), ",")
	switch {
	case s.GetAll():
		text = "all"
	case s.GetSharePercent() > 0:
		text = fmt.Sprint(s.GetSharePercent(), "%")
	}
	if s.GetApproval() {
		text += ":approval"
	}
	if s.GetShadow() {
		text += ":shadow"
	}
	switch {
	case s.GetNodes() > 0:
		text += fmt.Sprint(":", s.GetNodes(), "nodes")
	case s.GetNodesPercent() > 0:
		text += fmt.Sprint(":", s.GetNodesPercent(), "%")
	}
	return text
}
