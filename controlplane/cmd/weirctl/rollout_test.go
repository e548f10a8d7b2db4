package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/tuning"
)

// rollouts are rollouts in memory. Each look takes the next of phases.
type rollouts struct {
	list   []controlplane.Rollout
	phases []controlplane.RolloutPhase
	by     controlplane.By
	err    error
}

func (s *rollouts) Start(_ context.Context, id string, spec controlplane.RolloutSpec, by controlplane.By) (controlplane.Rollout, error) {
	if s.err != nil {
		return controlplane.Rollout{}, s.err
	}
	r, err := controlplane.NewRollout(id, spec, by, []string{"eu", "us"}, now.UnixMilli())
	if err != nil {
		return controlplane.Rollout{}, err
	}
	s.list, s.by = append([]controlplane.Rollout{*r}, s.list...), by
	return *r, nil
}

func (s *rollouts) Operate(_ context.Context, id string, order controlplane.RolloutOrder) (controlplane.Rollout, error) {
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

func (s *rollouts) Status(_ context.Context, id string) (controlplane.Rollout, error) {
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
	return controlplane.Rollout{}, fmt.Errorf("%w: there is no rollout %q", controlplane.ErrNotFound, id)
}

func (s *rollouts) find(id string) *controlplane.Rollout {
	for i := range s.list {
		if s.list[i].ID == id {
			return &s.list[i]
		}
	}
	return nil
}

func (s *rollouts) List(context.Context) ([]controlplane.RolloutSummary, error) {
	var list []controlplane.RolloutSummary
	for _, r := range s.list {
		list = append(list, r.Summary())
	}
	return list, s.err
}

// tuned is the default tuning with changes, as a document.
func tuned(t *testing.T, changes ...string) string {
	t.Helper()
	set, err := tuning.Edit(tuning.Default(), changes)
	if err != nil {
		t.Fatal(err)
	}
	text, err := set.Document()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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
	file := path(t, tuned(t, "floor=0.3"))
	w.want(t, w.run(t, "rollout", "start", "--tuning", file, "--stage", "eu", "--stage", "all:approval", "--bake", "10m", "--id", "r1", "--reason", "fewer rows"), exitOK, `
rollout r1, stage 1 of 2: measuring
started  0s ago by os-user: fewer rows
tuning   floor 0.3, step 0.01, news_interval_ms 200, settings_interval_ms 5000, jitter 0.2,
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
	r.Phase, r.Stage, r.DueMs = controlplane.RolloutBaking, 1, now.Add(90*time.Second).UnixMilli()
	r.Baseline, r.Now = controlplane.HealthRates{Nodes: 2}, controlplane.HealthRates{Nodes: 1, NodesLost: 1, DeniedShare: &share, ErrorsPerMinute: &least}
	r.Trouble = "MySQL does not\nanswer"
	w.want(t, w.run(t, "rollout", "status"), exitOK, `
rollout r1, stage 2 of 2: baking: trouble, tried again: MySQL does not answer
started  0s ago by os-user: fewer rows
due      in 1m30s
tuning   floor 0.3, step 0.01, news_interval_ms 200, settings_interval_ms 5000, jitter 0.2,
         min_global_duration_ms 2000, replay_tick_ms 100, fresh_for_ms 5000, strict_for_ms 0

STAGE  REGIONS                 BAKE  APPROVAL  STATE
1      eu                      10m   -         done
2      us and regions to come  10m   yes       active

WORST REGION OF STAGE 2   BEFORE  NOW
nodes heard of            2       1
nodes lost                0       1
errors a node and minute  -       7
MySQL rows a second       -       -
share denied              -       0.25
share without the origin  -       -
convergence delay, ms     -       -
decision latency, µs      -       -
`)
	if code := w.run(t, "rollout", "status", "r1", "--json"); code != exitOK || !json.Valid(w.stdout.Bytes()) || !strings.Contains(w.stdout.String(), `"phase": "baking"`) {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
}

// A plan from a file, whatever it leaves out being the default.
func TestRolloutPlanFile(t *testing.T) {
	w := newWorld(t)
	plan := path(t, `{"stages":[{"sharePercent":50,"bakeMs":"1000"},{"all":true}],"baselineMs":"0","guardrails":{"errorsPerMinute":{"least":60},"latencyUs":{"off":true},"deniedShareShift":0}}`)
	if code := w.run(t, "rollout", "start", "--tuning", "rfc", "--plan", plan, "--id", "r1", "--reason", "x"); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	want := controlplane.DefaultRolloutPlan()
	want.BaselineMs = 0
	want.Stages = []controlplane.RolloutStage{{SharePercent: 50, BakeMs: 1000}, {All: true, BakeMs: 300_000}}
	want.Guardrails.ErrorsPerMinute.Least, want.Guardrails.LatencyUs.Off, want.Guardrails.DeniedShareShift = 60, true, 0
	if got := w.rollouts.list[0].Spec.Plan; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

func TestRolloutActions(t *testing.T) {
	w := newWorld(t)
	w.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "all:approval", "--id", "r1", "--reason", "x")
	for _, tc := range []struct {
		action string
		phase  controlplane.RolloutPhase
		says   string
	}{
		{"approve", controlplane.RolloutAwaiting, "rollout r1, stage 1 of 1: measuring\n"},
		{"pause", controlplane.RolloutBaking, "rollout r1, stage 1 of 1: baking, paused by ann: because\n"},
		{"resume", controlplane.RolloutBaking, "rollout r1, stage 1 of 1: baking\n"},
		{"abort", controlplane.RolloutBaking, "rollout r1, rolling back: aborted by ann: because\n"},
		{"rollback", controlplane.RolloutDone, "rollout r1, rolling back: rolled back by ann: because\n"},
	} {
		w.rollouts.list[0].Phase = tc.phase
		args := []string{"rollout", tc.action, "r1", "--reason", "because", "--actor", "ann"}
		if tc.action == "approve" {
			args = append(args, "--stage", "1")
		}
		if code := w.run(t, args...); code != exitOK || !strings.HasPrefix(w.stdout.String(), tc.says) {
			t.Errorf("%s: exit %d, %s%s", tc.action, code, w.stdout.String(), w.stderr.String())
		}
		if w.rollouts.by.Reason != "because" {
			t.Errorf("%s: by %+v", tc.action, w.rollouts.by)
		}
	}
	w.rollouts.list[0].Phase = controlplane.RolloutDone
	if code := w.run(t, "rollout", "abort", "r1", "--reason", "x"); code != exitFailure || !strings.Contains(w.stderr.String(), "rollout r1 is done: take it back with rollback") || !strings.Contains(w.stderr.String(), "weirctl rollout history") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
	if code := w.run(t, "rollout", "abort", "r2", "--reason", "x"); code != exitFailure || !strings.Contains(w.stderr.String(), `there is no rollout "r2"`) {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// A rollback that waits for nodes names them, and says why it is one beside.
func TestARollbackNamesTheNodesThatLag(t *testing.T) {
	w := newWorld(t)
	w.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "all", "--id", "r1", "--reason", "x")
	r := &w.rollouts.list[0]
	r.Phase, r.Why, r.Waiting = controlplane.RolloutRollingBack, "stage 1 (eu): errors", "1 of 2 live nodes still run the withdrawn tuning: eu-1 in eu runs version 4"
	if code := w.run(t, "rollout", "status", "r1"); code != exitOK ||
		!strings.HasPrefix(w.stdout.String(), "rollout r1, rolling back: "+r.Waiting+"\n") || !strings.Contains(w.stdout.String(), "\nwhy      stage 1 (eu): errors\n") {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
}

// An approval names its stage: of one that has moved on, or of what was asked before, it is
// refused, and the hint of status has both.
func TestAnApprovalNamesItsStage(t *testing.T) {
	w := newWorld(t)
	w.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "eu:approval", "--stage", "all:approval", "--id", "r1", "--reason", "x")
	r := &w.rollouts.list[0]
	r.Asked = 7
	if code := w.run(t, "rollout", "status", "r1"); code != exitOK || !strings.HasSuffix(w.stdout.String(), "\nLet it go on with: weirctl rollout approve r1 --stage 1 --asked 7 --reason TEXT\n") {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
	for says, args := range map[string][]string{
		"missing flags: --stage=N": nil,
		"what waits is stage 1 (asked 7), and the approval names stage 2 (asked 7): look at its status again": {"--stage", "2"},
		"what waits is stage 1 (asked 7), and the approval names stage 1 (asked 6): look at its status again": {"--stage", "1", "--asked", "6"},
	} {
		if code := w.run(t, append([]string{"rollout", "approve", "r1", "--reason", "x"}, args...)...); code == exitOK || !strings.Contains(w.stderr.String(), says) {
			t.Errorf("%v: exit %d, %s", args, code, w.stderr.String())
		}
	}
	if code := w.run(t, "rollout", "approve", "r1", "--reason", "x", "--stage", "1", "--asked", "7"); code != exitOK || r.Phase != controlplane.RolloutMeasuring {
		t.Errorf("exit %d, %s, %s", code, r.Phase, w.stderr.String())
	}
}

// "status --watch": a line a move, until it is over; the exit code is the outcome.
func TestRolloutWatch(t *testing.T) {
	w := newWorld(t)
	w.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "all", "--id", "r1", "--reason", "x")
	w.rollouts.phases = []controlplane.RolloutPhase{controlplane.RolloutMeasuring, controlplane.RolloutBaking, controlplane.RolloutBaking, controlplane.RolloutDone}
	w.want(t, w.run(t, "rollout", "status", "--watch", "--every", "10ms", "r1", "--timeout", "1ns"), exitOK, `
2026-01-02 15:04:05Z  stage 1 of 1: measuring
2026-01-02 15:04:05Z  stage 1 of 1: baking
2026-01-02 15:04:05Z  done
`)
	w.rollouts.list[0].EndedMs, w.rollouts.list[0].Why = 0, "stage 1 (eu): errors"
	w.rollouts.phases = []controlplane.RolloutPhase{controlplane.RolloutRollingBack, controlplane.RolloutRolledBack}
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
	w.want(t, w.run(t, "rollout", "history"), exitOK, "there has been no rollout yet: see weirctl rollout start --help\n")
	for _, args := range [][]string{{"rollout", "status"}, {"rollout", "status", "--watch"}} {
		w.want(t, w.run(t, args...), exitFailure, "")
		if want := "weirctl: there has been no rollout yet\nStart one: see weirctl rollout start --help.\n"; w.stderr.String() != want {
			t.Errorf("%v: %q, want %q", args, w.stderr.String(), want)
		}
	}
	w.run(t, "rollout", "start", "--tuning", "rfc", "--stage", "all", "--id", "r1", "--reason", "x")
	r := &w.rollouts.list[0]
	r.Phase, r.EndedMs, r.Why = controlplane.RolloutRolledBack, now.Add(time.Hour).UnixMilli(), "stage 1 (eu): errors"
	w.want(t, w.run(t, "rollout", "history"), exitOK, `
ID  STARTED               BY       REASON  TOOK  RESULT
r1  2026-01-02 15:04:05Z  os-user  x       1h    rolled back: stage 1 (eu): errors
`)
	r.Phase, r.Why = controlplane.RolloutAborted, "aborted by ann: fewer rows"
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
		`--stage "half%": the share is "half" (1 to 100, a whole percentage)`:                         {"--tuning", "rfc", "--stage", "half%"},
		`--stage "0%": the share is "0" (1 to 100, a whole percentage)`:                               {"--tuning", "rfc", "--stage", "0%"},
		`--stage "101%": the share is "101" (1 to 100, a whole percentage)`:                           {"--tuning", "rfc", "--stage", "101%"},
		`--stage "eu:approvl": after the colon stands "approvl" (only approval is allowed there)`:     {"--tuning", "rfc", "--stage", "eu:approvl"},
		`--stage "50%:": after the colon stands "" (only approval is allowed there)`:                  {"--tuning", "rfc", "--stage", "50%:"},
		`--stage "all:approval:x": after the colon stands "approval:x" (only approval is allowed`:     {"--tuning", "rfc", "--stage", "all:approval:x"},
		`--stage ":approval": a region has no name (want regions as in eu,us, a share as in 50%, or`:  {"--tuning", "rfc", "--stage", ":approval"},
		`--stage "eu,,us": a region has no name (want regions as in eu,us, a share as in 50%, or all`: {"--tuning", "rfc", "--stage", "eu,,us"},
		"unknown field":                  {"--tuning", "rfc", "--plan", path(t, `{"stage":[]}`)},
		"floor is 2 (0 to 1)":            {"--tuning", path(t, `{"floor":2}`), "--stage", "all"},
		"leaves out step, news_interval": {"--tuning", path(t, `{"floor":0.3}`), "--stage", "all"},
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
