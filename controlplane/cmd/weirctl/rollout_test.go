package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/rollout/guard"
	rolloutplan "github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/watch"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/tuning"
)

// rollouts are rollouts in memory. Each look takes the next of phases.
type rollouts struct {
	list   []rollout.Rollout
	phases []rollout.Phase
	by     controlplane.By
	err    error
}

func (s *rollouts) Start(_ context.Context, start rollout.Start) (rollout.Rollout, error) {
	if s.err != nil {
		return rollout.Rollout{}, s.err
	}
	r, err := rollout.New(start.ID, start.Spec, start.By, []string{"eu", "us"}, now.UnixMilli())
	if err != nil {
		return rollout.Rollout{}, err
	}
	s.list, s.by = append([]rollout.Rollout{*r}, s.list...), start.By
	return *r, nil
}

func (s *rollouts) Operate(_ context.Context, id string, order rollout.Order) (rollout.Rollout, error) {
	r, err := s.Status(context.Background(), id)
	if err != nil {
		return r, err
	}
	s.by = order.By
	if _, err = r.Operate(order, now.UnixMilli()); err == nil {
		*s.find(id) = r
	}
	return r, err
}

func (s *rollouts) Status(_ context.Context, id string) (rollout.Rollout, error) {
	for i := range s.list {
		r := &s.list[i]
		if r.ID != id {
			continue
		}
		if len(s.phases) > 0 {
			r.Phase, s.phases = s.phases[0], s.phases[1:]
			if r.Phase.Over() {
				r.EndedMs = now.UnixMilli()
			}
		}
		return *r, s.err
	}
	return rollout.Rollout{}, fmt.Errorf("%w: there is no rollout %q", controlplane.ErrNotFound, id)
}

func (s *rollouts) find(id string) *rollout.Rollout {
	for i := range s.list {
		if s.list[i].ID == id {
			return &s.list[i]
		}
	}
	return nil
}

func (s *rollouts) List(context.Context) ([]rollout.Summary, error) {
	var list []rollout.Summary
	for _, r := range s.list {
		list = append(list, r.Summary())
	}
	return list, s.err
}

func path(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.json")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestRolloutStartAndStatus(t *testing.T) {
	w := newWorld(t)
	file := path(t, controltest.Document("floor=0.3"))
	w.want(t, w.run(t, "rollout", "start", "--tuning", file, "--stage", "eu", "--stage", "all:approval", "--bake", "10m", "--id", "r1", "--reason", "fewer rows"), exitOK, `
rollout r1, stage 1 of 2: measuring
started  0s ago by os-user: fewer rows
tuning   floor 0.3, step 0.01, feed_interval_ms 200, settings_interval_ms 5000, jitter 0.2,
         min_global_duration_ms 2000, replay_tick_ms 100, fresh_for_ms 5000, strict_for_ms 0

STAGE  REGIONS                 BAKE  APPROVAL  STATE
1      eu                      10m   -         active
2      us and regions to come  10m   yes       waiting

Follow it with: weirctl rollout status --watch r1
`)
	if want := (controlplane.By{Actor: "os-user", Reason: "fewer rows"}); w.rollouts.by != want {
		t.Errorf("by %+v", w.rollouts.by)
	}
	r := &w.rollouts.list[0]
	share, least := 0.25, 7.0
	r.Phase, r.Stage, r.DueMs = rollout.Baking, 1, now.Add(90*time.Second).UnixMilli()
	r.Baseline, r.Now = fleet.HealthRates{Nodes: 2}, fleet.HealthRates{Nodes: 1, NodesLost: 1, DeniedShare: &share, ErrorsPerMinute: &least}
	r.Trouble = "MySQL does not\nanswer"
	w.want(t, w.run(t, "rollout", "status"), exitOK, `
rollout r1, stage 2 of 2: baking: trouble, tried again: MySQL does not answer
started  0s ago by os-user: fewer rows
due      in 1m30s
tuning   floor 0.3, step 0.01, feed_interval_ms 200, settings_interval_ms 5000, jitter 0.2,
         min_global_duration_ms 2000, replay_tick_ms 100, fresh_for_ms 5000, strict_for_ms 0

STAGE  REGIONS                 BAKE  APPROVAL  STATE
1      eu                      10m   -         done
2      us and regions to come  10m   yes       active

stage 2: 1 node with heartbeats, 2 before the stage, 1 lost
GUARDRAIL                   BEFORE  NOW   BOUND   MARGIN  NEAREST TO IT
errors a node and minute    -       7     6       0 %     -
MySQL rows a second         -       -     1,000   -       -
share without the origin    -       -     0.01    -       -
convergence delay, ms       -       -     30,000  -       -
decision latency, µs        -       -     1,000   -       -
share denied                -       0.25  -       -       -
cost dropped                -       0     0       100 %   -
share of nodes lost         -       -     0       -       -
restarts of a node an hour  -       -     1       -       -
`)
	latency := 250.0
	r.Watch = []guard.RegionWatch{{Region: "us", Stage: 1, Nodes: []guard.WatchedNode{{ID: "n7", LatencyUs: &latency}}}}
	if w.run(t, "rollout", "status"); !strings.Contains(w.stdout.String(), "\ndecision latency, µs        -       250  1,000   75 %    us, node n7\n") {
		t.Errorf("%s", w.stdout.String())
	}
	if code := w.run(t, "rollout", "status", "r1", "-o", "json"); code != exitOK || !json.Valid(w.stdout.Bytes()) || !strings.Contains(w.stdout.String(), `"phase": "baking"`) {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
}

// Behind the regions stand a share of each region's nodes, shadow and approval, in any order.
func TestStagesOfNodes(t *testing.T) {
	share := func(percent, nodes int) rolloutplan.StageNodes {
		return rolloutplan.StageNodes{NodesPercent: percent, Nodes: nodes}
	}
	for text, order := range map[string][2]bool{ // shadow, approval
		"eu:shadow": {true, false}, "eu:shadow:approval": {true, true}, "eu:approval:shadow": {true, true}, "eu:approval:1node": {false, true},
		"50%:shadow:10%:approval": {true, true}, "all:1node:shadow": {true, false},
	} {
		if got, err := parseStage(text); err != nil || got.GetShadow() != order[0] || got.GetApproval() != order[1] || strings.Contains(text, "node") != (got.GetNodes() == 1) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]rolloutplan.Stage{
		"eu:1node":           {Regions: []string{"eu"}, StageNodes: share(0, 1)},
		"eu,us:3nodes":       {Regions: []string{"eu", "us"}, StageNodes: share(0, 3)},
		"eu:10%:approval":    {Regions: []string{"eu"}, StageNodes: share(10, 0), Approval: true},
		"50%:1node:approval": {SharePercent: 50, StageNodes: share(0, 1), Approval: true},
		"all:100%":           {All: true, StageNodes: share(100, 0)},
	} {
		got, err := parseStage(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		is := rolloutplan.Stage{Regions: got.GetRegions(), SharePercent: int(got.GetSharePercent()), All: got.GetAll(),
			StageNodes: share(int(got.GetNodesPercent()), int(got.GetNodes())), Approval: got.GetApproval()}
		if fmt.Sprint(is) != fmt.Sprint(want) {
			t.Errorf("%s: %+v, want %+v", text, is, want)
		}
	}
	for _, text := range []string{"eu:0nodes", "eu:-1node", "eu:node", "eu:%", "eu:1", "eu:1nodesnodes", "eu:1%%", "eu:1.5%", "eu:1node:",
		"eu:1node:10%", "eu:1node:shadow:2nodes", "eu:approval:approval", "eu:shadow:1node:shadow", "eu:shadows", "eu:1node:approval:x", "eu:4294967297nodes", "eu:"} {
		if got, err := parseStage(text); err == nil || !strings.Contains(err.Error(), "after the colon is invalid") {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

// Status prints how many nodes of a region run the tuning, and the plan has the values of --lease and --stage.
func TestStatusOfAShare(t *testing.T) {
	w := newWorld(t)
	if code := w.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "eu:1node", "--stage", "eu:50%", "--stage", "all", "--lease", "2m", "--id", "r1", "--reason", "x"); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	r := &w.rollouts.list[0]
	if got := r.Spec.Plan.LeaseMs; got != 120_000 {
		t.Errorf("a lease of %d ms", got)
	}
	r.Phase = rollout.Baking
	watch := guard.RegionWatch{Region: "eu", Whole: true}
	for i := range 20 {
		watch.Nodes = append(watch.Nodes, guard.WatchedNode{ID: fmt.Sprint("eu-", i)})
	}
	slices.SortFunc(watch.Nodes, func(a, b guard.WatchedNode) int {
		return cmp.Compare(tuning.TrialShare(a.ID), tuning.TrialShare(b.ID))
	})
	r.Watch, r.Touched = []guard.RegionWatch{watch}, []rollout.Touched{{Region: "eu", Trial: 1, Below: tuning.TrialShare(watch.Nodes[2].ID)}}
	w.run(t, "rollout", "status", "r1")
	for _, has := range []string{"on trial  2 of 20 nodes of eu\n", "1      1 node of eu ", "2      50% of the nodes of eu ",
		"3      eu, us and regions to come "} {
		if !strings.Contains(w.stdout.String(), has) {
			t.Errorf("%q is not in\n%s", has, w.stdout.String())
		}
	}
}

// A plan from a file gets the defaults for fields that it lacks.
func TestRolloutPlanFile(t *testing.T) {
	w := newWorld(t)
	plan := path(t, `{"stages":[{"sharePercent":50,"bakeMs":"1000"},{"all":true}],"baselineMs":"0","guardrails":{"errorsPerMinute":{"least":60},"latencyUs":{"off":true},"deniedShareShift":0}}`)
	if code := w.run(t, "rollout", "start", "--tuning", "rfc", "--plan", plan, "--id", "r1", "--reason", "x"); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	want := rolloutplan.DefaultPlan()
	want.BaselineMs = 0
	want.Stages = []rolloutplan.Stage{{SharePercent: 50, BakeMs: 1000}, {All: true, BakeMs: 300_000}}
	want.Guardrails.ErrorsPerMinute.Least, want.Guardrails.LatencyUs.Off, want.Guardrails.DeniedShareShift = 60, true, 0
	if got := w.rollouts.list[0].Spec.Plan; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

// A flag that --plan overrides is rejected, even with its default value. The error names the flag and the field of the
// plan.
func TestAPlanTakesNoFlagsBeside(t *testing.T) {
	plan := path(t, `{"stages":[{"all":true}]}`)
	start := []string{"rollout", "start", "--tuning", "rfc", "--plan", plan, "--reason", "x"}
	for flag, field := range map[string]string{
		"--bake=5m": "bake_ms of a stage", "--baseline=1s": "baseline_ms", "--approvers=1": "approvers", "--approval-ttl=1h": "approval_ttl_ms",
	} {
		w := newWorld(t)
		name, _, _ := strings.Cut(flag, "=")
		says := "weirctl: " + name + " has no effect with --plan, which sets it: remove it, and write " + field + " into the plan\n"
		if code := w.run(t, append(start, flag)...); code != exitUsage || !strings.HasPrefix(w.stderr.String(), says) || len(w.rollouts.list) != 0 {
			t.Errorf("%s: exit %d, %s", flag, code, w.stderr.String())
		}
	}
	w := newWorld(t)
	if code := w.run(t, append(start, "--stage=all")...); code != exitUsage || !strings.Contains(w.stderr.String(), "--plan and --stage can't be used together") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	if code := w.run(t, append(start, "--force", "--watch=false", "--id=r1")...); code != exitOK {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

func TestRolloutActions(t *testing.T) {
	w := newWorld(t)
	w.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "all:approval", "--id", "r1", "--reason", "x")
	for _, tc := range []struct {
		action string
		phase  rollout.Phase
		says   string
	}{
		{"approve", rollout.Awaiting, "rollout r1, stage 1 of 1: measuring\n"},
		{"pause", rollout.Baking, "rollout r1, stage 1 of 1: baking, paused by ann: because\n"},
		{"resume", rollout.Baking, "rollout r1, stage 1 of 1: baking\n"},
		{"abort", rollout.Baking, "rollout r1, rolling back: aborted by ann: because\n"},
		{"rollback", rollout.Done, "rollout r1, rolling back: rolled back by ann: because\n"},
	} {
		w.rollouts.list[0].Phase = tc.phase
		args := []string{"rollout", tc.action, "r1", "--reason", "because", "--actor", "ann"}
		if tc.action == "approve" {
			args = append(args, "--stage", "1")
		}
		if tc.action == "rollback" {
			args = append(args, "--yes")
		}
		if code := w.run(t, args...); code != exitOK || !strings.HasPrefix(w.stdout.String(), tc.says) {
			t.Errorf("%s: exit %d, %s%s", tc.action, code, w.stdout.String(), w.stderr.String())
		}
		if w.rollouts.by.Reason != "because" {
			t.Errorf("%s: by %+v", tc.action, w.rollouts.by)
		}
	}
	w.rollouts.list[0].Phase = rollout.Done
	if code := w.run(t, "rollout", "abort", "r1", "--reason", "x"); code != exitFailure || !strings.Contains(w.stderr.String(), "rollout r1 is done: roll it back instead of aborting it") || !strings.Contains(w.stderr.String(), "weirctl rollout status") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	if code := w.run(t, "rollout", "abort", "r2", "--reason", "x"); code != exitFailure || !strings.Contains(w.stderr.String(), `there is no rollout "r2"`) {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// A rollback that waits for nodes names them, and also prints its reason.
func TestARollbackNamesTheNodesThatLag(t *testing.T) {
	w := newWorld(t)
	w.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "all", "--id", "r1", "--reason", "x")
	r := &w.rollouts.list[0]
	r.Phase, r.Why, r.Waiting = rollout.RollingBack, "stage 1 (eu): errors", "1 of 2 live nodes still run the withdrawn tuning: eu-1 in eu runs version 4"
	if code := w.run(t, "rollout", "status", "r1"); code != exitOK ||
		!strings.HasPrefix(w.stdout.String(), "rollout r1, rolling back: "+r.Waiting+"\n") || !strings.Contains(w.stdout.String(), "\nwhy      stage 1 (eu): errors\n") {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
}

// An approval names its stage. It is rejected if the rollout is at another stage or has requested another approval
// since. The hint of status has both values.
func TestAnApprovalNamesItsStage(t *testing.T) {
	w := newWorld(t)
	w.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "eu:approval", "--stage", "all:approval", "--id", "r1", "--reason", "x")
	r := &w.rollouts.list[0]
	r.Asked = 7
	if code := w.run(t, "rollout", "status", "r1"); code != exitOK || !strings.HasSuffix(w.stdout.String(), "\nApprove with: weirctl rollout approve r1 --stage 1 --asked 7 --evidence "+r.Evidence()+" --reason TEXT\n") {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
	for says, args := range map[string][]string{
		"missing flags: --stage=N": nil,
		"stage 1 (asked 7) waits, and the approval names stage 2 (asked 7): look at the status again": {"--stage", "2"},
		"stage 1 (asked 7) waits, and the approval names stage 1 (asked 6): look at the status again": {"--stage", "1", "--asked", "6"},
		"the evidence has changed since it was shown: look at the status again":                       {"--stage", "1", "--evidence", "abc"},
	} {
		if code := w.run(t, append([]string{"rollout", "approve", "r1", "--reason", "x"}, args...)...); code == exitOK || !strings.Contains(w.stderr.String(), says) {
			t.Errorf("%v: exit %d, %s", args, code, w.stderr.String())
		}
	}
	if code := w.run(t, "rollout", "approve", "r1", "--reason", "x", "--stage", "1", "--asked", "7"); code != exitOK || r.Phase != rollout.Measuring {
		t.Errorf("exit %d, %s, %s", code, r.Phase, w.stderr.String())
	}
}

// A stage that needs two people shows who has approved it, how many are missing, and until when each approval counts.
func TestAStageTakesTwoPeople(t *testing.T) {
	w := newWorldThat(t, true)
	w.shelf.secret = "weir_s3cret"
	t.Setenv("WEIR_TOKEN", "weir_s3cret")
	if code := w.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "all:approval", "--approvers", "2", "--approval-ttl", "1h", "--id", "r1", "--reason", "x"); code != exitOK {
		t.Fatal(w.stderr.String())
	}
	r := &w.rollouts.list[0]
	approve := []string{"rollout", "approve", "r1", "--stage", "1", "--reason", "looks well"}
	if code := w.run(t, approve...); code != exitOK || r.Phase != rollout.Awaiting {
		t.Fatalf("exit %d, %s, %s", code, r.Phase, w.stderr.String())
	}
	if all := w.stdout.String(); !strings.Contains(all, "\n1 of 2 approvals, and 1 more by other people\nAPPROVED BY  WHEN    COUNTS                      WHY\n") ||
		!strings.Contains(all, "0s ago  until 2026-01-02 16:04:05Z  looks well\n") {
		t.Errorf("%s", all)
	}
	if code := w.run(t, approve...); code != exitFailure || !strings.Contains(w.stderr.String(), "has approved it already; 1 more by other people needed") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	open := newWorld(t)
	if code := open.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "all:approval", "--approvers", "2", "--reason", "x"); code != exitUsage || !strings.Contains(open.stderr.String(), "cannot distinguish people") {
		t.Errorf("exit %d, %s", code, open.stderr.String())
	}
}

// "status --watch": a line a move, until it is over; the exit code is the outcome.
func TestRolloutWatch(t *testing.T) {
	w := newWorld(t)
	w.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "all", "--id", "r1", "--reason", "x")
	w.rollouts.phases = []rollout.Phase{rollout.Measuring, rollout.Baking, rollout.Baking, rollout.Done}
	w.want(t, w.run(t, "rollout", "status", "--watch", "--every", "10ms", "r1", "--timeout", "1ns"), exitOK, `
2026-01-02 15:04:05Z  stage 1 of 1: measuring
2026-01-02 15:04:05Z  stage 1 of 1: baking
2026-01-02 15:04:05Z  done
`)
	w.rollouts.list[0].EndedMs, w.rollouts.list[0].Why = 0, "stage 1 (eu): errors"
	w.rollouts.phases = []rollout.Phase{rollout.RollingBack, rollout.RolledBack}
	w.want(t, w.run(t, "rollout", "status", "--watch", "--every", "10ms", "r1"), exitFailure, `
2026-01-02 15:04:05Z  rolling back: stage 1 (eu): errors
2026-01-02 15:04:05Z  rolled back: stage 1 (eu): errors
`)
	if want := "weirctl: rollout r1 is rolled back: stage 1 (eu): errors\nNo live node runs it any more. What happened: weirctl rollout history r1.\n"; w.stderr.String() != want {
		t.Errorf("%q", w.stderr.String())
	}
}

func TestRolloutHistory(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "rollout", "history"), exitOK, "no rollout yet: see weirctl rollout start --help\n")
	for _, args := range [][]string{{"rollout", "status"}, {"rollout", "status", "--watch"}} {
		w.want(t, w.run(t, args...), exitFailure, "")
		if want := "weirctl: there has been no rollout yet\nStart one: see weirctl rollout start --help.\n"; w.stderr.String() != want {
			t.Errorf("%v: %q, want %q", args, w.stderr.String(), want)
		}
	}
	w.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "all", "--id", "r1", "--reason", "x")
	r := &w.rollouts.list[0]
	r.Phase, r.EndedMs, r.Why = rollout.RolledBack, now.Add(time.Hour).UnixMilli(), "stage 1 (eu): errors"
	w.want(t, w.run(t, "rollout", "history"), exitOK, `
ID  STARTED               BY       REASON  TOOK  RESULT
r1  2026-01-02 15:04:05Z  os-user  x       1h    rolled back: stage 1 (eu): errors
`)
	r.Phase, r.Why = rollout.Aborted, "aborted by ann: fewer rows"
	if code := w.run(t, "rollout", "history"); code != exitOK || strings.Count(w.stdout.String(), "aborted") != 1 {
		t.Errorf("it is said twice: exit %d, %s", code, w.stdout.String())
	}
	w.want(t, w.run(t, "rollout", "history", "r1"), exitOK, `
AT                    BY       WHAT   
2026-01-02 15:04:05Z  os-user  start  x
`)
}

func TestRolloutStartRefusals(t *testing.T) {
	w := newWorld(t)
	for says, args := range map[string][]string{
		"no stage is named": {"--tuning", "rfc"},
		"no such file":      {"--tuning", "/does/not/exist", "--stage", "all"},
		`--stage "half%": the share is "half" (1 to 100, a whole percentage)`:                                                                        {"--tuning", "rfc", "--stage", "half%"},
		`--stage "0%": the share is "0" (1 to 100, a whole percentage)`:                                                                              {"--tuning", "rfc", "--stage", "0%"},
		`--stage "101%": the share is "101" (1 to 100, a whole percentage)`:                                                                          {"--tuning", "rfc", "--stage", "101%"},
		`--stage "eu:approvl": "approvl" after the colon is invalid (want nodes as in 1node, 3nodes or 10%, shadow and approval, each at most once)`: {"--tuning", "rfc", "--stage", "eu:approvl"},
		`--stage "50%:": "" after the colon is invalid (want nodes as in 1node`:                                                                      {"--tuning", "rfc", "--stage", "50%:"},
		`--stage "all:approval:x": "approval:x" after the colon is invalid (want nodes as in 1node`:                                                  {"--tuning", "rfc", "--stage", "all:approval:x"},
		`--stage ":approval": a region has no name (want regions as in eu,us, a share as in 50%, or`:                                                 {"--tuning", "rfc", "--stage", ":approval"},
		`--stage "eu,,us": a region has no name (want regions as in eu,us, a share as in 50%, or all`:                                                {"--tuning", "rfc", "--stage", "eu,,us"},
		"unknown field":                  {"--tuning", "rfc", "--plan", path(t, `{"stage":[]}`)},
		"floor is 2 (0 to 1)":            {"--tuning", path(t, `{"floor":2}`), "--stage", "all"},
		"lacks step, feed_interval":      {"--tuning", path(t, `{"floor":0.3}`), "--stage", "all"},
		"no tuning is named":             {"--stage", "all"},
		`there is no field "flor"`:       {"--set", "flor=0.3", "--stage", "all"},
		"nothing changes":                {"--set", "floor=0.1", "--stage", "all"},
		`--from is "mars"`:               {"--set", "floor=0.3", "--from", "mars", "--stage", "all"},
		`region "mars" has no live node`: {"--tuning", "rfc", "--stage", "mars"},
	} {
		if code := w.run(t, append([]string{"rollout", "start", "--reason", "x"}, args...)...); code != exitUsage || !strings.Contains(w.stderr.String(), says) {
			t.Errorf("%v: exit %d, %s", args, code, w.stderr.String())
		}
	}
}

// A region that does not exist is an error before the change of its tuning is shown: there is none.
func TestARegionThatDoesNotExistHasNoDifference(t *testing.T) {
	for args, says := range map[string]string{
		"rollout start --stage al":                  `weirctl: region "al" has no live node and no tuning of its own, did you mean all? (known: eu, us)`,
		"rollout start --stage eu --stage su:1node": `weirctl: region "su" has no live node and no tuning of its own, did you mean us? (known: eu, us)`,
		"rollout start --stage mars --stage all":    `weirctl: region "mars" has no live node and no tuning of its own (known: eu, us)`,
		"tuning set --region mars --at-once --yes":  `weirctl: region "mars" has no live node and no tuning of its own (known: eu, us)`,
		"rollout start --dry-run --stage mars,eu":   `weirctl: region "mars" has no live node and no tuning of its own (known: eu, us)`,
		"rollout start --stage eu --stage all":      "",
	} {
		w := newWorld(t)
		code := w.run(t, append(strings.Fields(args), "--set", "floor=0.3", "--reason", "x")...)
		if says == "" && code != exitOK || says != "" && (code != exitUsage || !strings.HasPrefix(w.stderr.String(), says)) {
			t.Errorf("%s: exit %d, %s; want %q first", args, code, w.stderr.String(), says)
		}
	}
}

// On a fleet with critical health, rollouts and immediate changes need --force.
func TestStartOnACriticalFleet(t *testing.T) {
	for _, line := range []string{"rollout start --stage all", "tuning set --all --at-once --yes"} {
		w := newWorld(t)
		w.health = watch.HealthDocument{Overall: watch.SeverityCritical, Findings: []watch.Finding{{Kind: watch.FindingRegionDark, Subject: "eu", Severity: watch.SeverityCritical, What: "No node is live."}}}
		args := append(strings.Fields(line), "--set", "floor=0.3", "--reason", "x")
		if code := w.run(t, args...); code != exitFailure || !strings.Contains(w.stderr.String(), "region_dark eu: No node is live") {
			t.Errorf("%s: exit %d, %s", line, code, w.stderr.String())
		}
		if code := w.run(t, append(args, "--force")...); code != exitOK || len(w.rollouts.list) != 1 {
			t.Errorf("%s --force: exit %d, %s", line, code, w.stderr.String())
		}
	}
}

// A stage prints as it is written, and an error quotes the rejected text.
func FuzzParseStage(f *testing.F) {
	for _, text := range []string{
		"all", "50%", "eu", "eu,us", "eu:1node", "eu,us:3nodes", "50%:10%", "all:approval", "eu:1node:approval", "",
		":", "eu:", "eu,,us", "101%", "0%", "+5%", "eu:0nodes", "eu:1", "eu:approval:1node", "eu:99999999999nodes",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		stage, err := parseStage(text)
		if err != nil {
			if !strings.Contains(err.Error(), "--stage "+strconv.Quote(text)+": ") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		again, err := parseStage(written(stage))
		if err != nil || !proto.Equal(stage, again) {
			t.Errorf("%q is %v, and %q is %v, %v", text, stage, written(stage), again, err)
		}
		if stage.GetNodes() < 0 || stage.GetNodesPercent() < 0 || stage.GetNodes() > 0 && stage.GetNodesPercent() > 0 {
			t.Errorf("%q: %v", text, stage)
		}
	})
}

// written returns a stage as an operator writes it.
func written(s *controlv1.RolloutStage) string {
	text := strings.Join(s.GetRegions(), ",")
	switch {
	case s.GetAll():
		text = "all"
	case s.GetSharePercent() > 0:
		text = fmt.Sprintf("%d%%", s.GetSharePercent())
	}
	switch {
	case s.GetNodes() > 0:
		text += fmt.Sprintf(":%dnodes", s.GetNodes())
	case s.GetNodesPercent() > 0:
		text += fmt.Sprintf(":%d%%", s.GetNodesPercent())
	}
	if s.GetApproval() {
		text += ":approval"
	}
	return text
}
