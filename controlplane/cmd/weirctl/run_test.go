package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/api"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/shared/heartbeat"
)

var now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// schedule is a cleanup's schedule in memory.
type schedule struct {
	status cleanup.Status
	run    cleanup.Run
	by     controlplane.By
	err    error
}

func (s *schedule) Status(context.Context) (cleanup.Status, error) {
	return s.status, s.err
}

func (s *schedule) RunNow(_ context.Context, by controlplane.By) (cleanup.Run, error) {
	s.by = by
	return s.run, s.err
}

func (s *schedule) Pause(_ context.Context, by controlplane.By) (cleanup.Status, error) {
	s.by, s.status = by, cleanup.Status{Interval: time.Minute, Paused: &cleanup.Pause{By: by, At: now}}
	return s.status, s.err
}

func (s *schedule) Resume(_ context.Context, by controlplane.By) (cleanup.Status, error) {
	s.by, s.status = by, cleanup.Status{Running: true, Interval: time.Minute, NextAt: now}
	return s.status, s.err
}

// world is the API of a fleet in memory, with the output of a command.
type world struct {
	inForce  []tunings.RegionTuning
	versions []tunings.Version // newest first

	handler     http.Handler
	schedule    schedule
	lag         time.Duration
	lagErr      error
	fleet       fleet.Fleet
	top         limits.TopKeys
	usage       limits.Usage
	usageQuery  limits.UsageQuery
	topQuery    limits.TopQuery
	held        limits.HeldReport
	heldQuery   limits.TopQuery
	key         limits.KeyReport
	keyQuery    limits.KeyQuery
	keys        []limits.KeyPage
	keysQueries []limits.KeysQuery
	rollouts    rollouts
	retirements retirements
	previews    previewCalls
	shelf       shelf
	health      watch.HealthDocument
	checks      []watch.Check
	audit       []audit.Record
	links       audit.Links // the whole log, oldest first
	url         string
	changes     []string // calls that changed something

	stdin          string // the input that a person types; empty: there is no terminal
	stdout, stderr bytes.Buffer
}

func newWorld(t *testing.T) *world { return newWorldThat(t, false) }

// newGuardedWorld requires a token.
func newGuardedWorld(t *testing.T) *world { return newWorldThat(t, true) }

func newWorldThat(t *testing.T, asks bool) *world {
	t.Helper()
	t.Setenv("WEIR_TOKEN", "")
	t.Setenv("WEIR_CONTEXTS", filepath.Join(t.TempDir(), "weir", "contexts.yaml"))
	w := &world{inForce: []tunings.RegionTuning{{Document: controltest.Document()}}}
	for _, region := range []string{"eu", "us"} {
		w.fleet.Nodes = append(w.fleet.Nodes, fleet.Node{Heartbeat: heartbeat.Heartbeat{NodeID: region + "1", Region: region}, Live: true})
	}
	w.handler = api.NewHandler(api.Config{
		Cleanup:     &w.schedule,
		Rollouts:    &w.rollouts,
		Retirements: &w.retirements,
		Previews:    &w.previews,
		Tuning:      func(context.Context) ([]tunings.RegionTuning, error) { return w.inForce, w.schedule.err },
		Tunings:     w,
		Tokens:      &w.shelf, RequireTokens: asks,
		Settings: &w.shelf,
		Lag:      func(context.Context) (time.Duration, error) { return w.lag, w.lagErr },
		Fleet:    func(context.Context) (fleet.Fleet, error) { return w.fleet, w.schedule.err },
		Health:   func(context.Context) watch.HealthDocument { return w.health },
		Diagnose: func(context.Context) []watch.Check { return w.checks },
		Audit:    w,
		Usage: func(_ context.Context, q limits.UsageQuery) (limits.Usage, error) {
			w.usageQuery = q
			return w.usage, nil
		},
		TopKeys: func(_ context.Context, q limits.TopQuery) (limits.TopKeys, error) {
			w.topQuery = q
			return w.top, w.schedule.err
		},
		Held: func(_ context.Context, q limits.TopQuery) (limits.HeldReport, error) {
			w.heldQuery = q
			return w.held, w.schedule.err
		},
		Key: func(_ context.Context, q limits.KeyQuery) (limits.KeyReport, error) {
			w.keyQuery = q
			return w.key, w.schedule.err
		},
		Keys: func(_ context.Context, q limits.KeysQuery) (limits.KeyPage, error) {
			w.keysQueries = append(w.keysQueries, q)
			if len(w.keys) == 0 {
				return limits.KeyPage{Now: now}, w.schedule.err
			}
			return w.keys[min(len(w.keysQueries)-1, len(w.keys)-1)], w.schedule.err
		},
		Metrics: prometheus.NewRegistry(),
		Log:     slog.New(slog.DiscardHandler),
	})
	server := httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// TuningVersions implements tunings.Log.
func (w *world) TuningVersions(_ context.Context, region *string, before int64, rows int) (page []tunings.Version, err error) {
	for _, v := range w.versions {
		if v.Version < before && (region == nil || v.Region == *region) && len(page) < rows {
			page = append(page, v)
		}
	}
	return page, nil
}

// serve records calls that make a change. Their requests have an actor and a reason.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	service, method, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + method))
	if rpc, ok := found.(protoreflect.MethodDescriptor); ok && err == nil && rpc.Input().Fields().ByName("reason") != nil {
		w.changes = append(w.changes, method)
	}
	w.handler.ServeHTTP(rw, r)
}

// Audit implements audit.Log.
func (w *world) Audit(_ context.Context, before int64, rows int) (page []audit.Record, err error) {
	for _, r := range w.audit {
		if r.Row < before && len(page) < rows {
			page = append(page, r)
		}
	}
	return page, nil
}

// AuditLinks implements audit.Log.
func (w *world) AuditLinks(_ context.Context, after int64, rows int) (page audit.Links, err error) {
	page = w.links
	page.Links = nil
	for _, l := range w.links.Links {
		if int64(l.ID) > after && len(page.Links) < rows {
			page.Links = append(page.Links, l)
		}
	}
	return page, w.schedule.err
}

// run runs weirctl as os-user.
func (w *world) run(t *testing.T, args ...string) (code int) {
	t.Helper()
	return w.runAnywhere(t, append([]string{"--api", w.url}, args...)...)
}

// runAnywhere runs weirctl without --api.
func (w *world) runAnywhere(t *testing.T, args ...string) (code int) {
	t.Helper()
	w.stdout.Reset()
	w.stderr.Reset()
	return run(t.Context(), args, terminal{
		stdin: strings.NewReader(w.stdin), interactive: w.stdin != "", stdout: &w.stdout, stderr: &w.stderr, now: func() time.Time { return now }, user: "os-user",
	})
}

func (w *world) want(t *testing.T, code, wantCode int, stdout string) {
	t.Helper()
	if code != wantCode || w.stdout.String() != strings.TrimPrefix(stdout, "\n") {
		t.Errorf("exit %d, want %d\nstdout:\n%s\nwant:\n%s\nstderr:\n%s", code, wantCode, w.stdout.String(), stdout, w.stderr.String())
	}
}

func TestCleanupStatus(t *testing.T) {
	w := newWorld(t)
	w.lag = 75 * time.Second
	w.schedule.status = cleanup.Status{
		Running: true, Interval: time.Minute, NextAt: now.Add(43 * time.Second), Runs: 1204, Errors: 2, Rows: 12345678, DeadNodes: 3,
		History: []cleanup.Run{
			{StartedAt: now.Add(-17 * time.Second), Took: 1234 * time.Millisecond, Trigger: "schedule", Report: cleanup.Report{Rows: 5000, Batches: 2, Lag: 3 * time.Second}},
			{StartedAt: now.Add(-time.Hour), Took: 35 * time.Second, Trigger: "ann", Report: cleanup.Report{Rows: 1000000, Batches: 200, Lag: 26 * time.Hour, StoppedBy: cleanup.StoppedByBatches}},
			{StartedAt: now.Add(-2 * time.Hour), Took: 80 * time.Second, Trigger: "schedule", Error: "table is\nlocked"},
		},
	}
	w.want(t, w.run(t, "cleanup", "status"), exitOK, `
running every 1m, next in 43s
lag                 1m15s
runs                1,204, 2 with an error
rows deleted        12,345,678
dead nodes deleted  3

STARTED               TOOK    ROWS       BATCHES  LAG   BY        RESULT
2026-01-02 15:03:48Z  1.234s  5,000      2        3s    schedule  ok
2026-01-02 14:04:05Z  35s     1,000,000  200      1d2h  ann       more left (batches)
2026-01-02 13:04:05Z  1m20s   0          0        0s    schedule  error: table is locked
`)

	w.lagErr, w.schedule.status = errors.New("down"), cleanup.Status{}
	w.want(t, w.run(t, "cleanup", "status"), exitOK, `
not started yet: weir-control starts it within seconds of reaching Restate
lag                 unknown: MySQL does not answer
runs                0, 0 with an error
rows deleted        0
dead nodes deleted  0
`)
}

func TestCleanupPauseAndResume(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "cleanup", "pause", "--reason", "deploy"), exitOK, `
paused by os-user 0s ago: deploy
Expired rows pile up. Resume with: weirctl cleanup resume --reason TEXT
`)
	if want := (controlplane.By{Actor: "os-user", Reason: "deploy"}); w.schedule.by != want {
		t.Errorf("by %+v, want %+v", w.schedule.by, want)
	}
	w.schedule.status.Paused.At = now.Add(-90 * time.Minute)
	w.schedule.status.Paused.Reason = "\x1b[2Jclear"
	if code := w.run(t, "cleanup", "status"); code != exitOK || !strings.HasPrefix(w.stdout.String(), "paused by os-user 1h30m ago: ?[2Jclear\n") {
		t.Errorf("exit %d, %q", code, w.stdout.String())
	}
	w.want(t, w.run(t, "cleanup", "resume", "--reason", "done", "--actor", "ann"), exitOK, `
running every 1m, next now
`)
	if want := (controlplane.By{Actor: "ann", Reason: "done"}); w.schedule.by != want {
		t.Errorf("by %+v, want %+v", w.schedule.by, want)
	}
}

func TestCleanupRun(t *testing.T) {
	w := newWorld(t)
	w.schedule.run = cleanup.Run{StartedAt: now, Took: 250 * time.Millisecond, Trigger: "ann", Report: cleanup.Report{Rows: 1, Batches: 1}}
	w.want(t, w.run(t, "cleanup", "run", "--reason", "backlog"), exitOK, "deleted 1 row in 1 batch within 250ms\n")
	w.schedule.run.Report = cleanup.Report{Rows: 12000, Batches: 3, StoppedBy: cleanup.StoppedByTime}
	w.want(t, w.run(t, "cleanup", "run", "--reason", "backlog"), exitOK, "deleted 12,000 rows in 3 batches within 250ms; it reached its limit (time) with rows left\n")

	w.schedule.run.Error = "table is gone"
	w.want(t, w.run(t, "cleanup", "run", "--reason", "backlog"), exitFailure, "deleted 12,000 rows in 3 batches within 250ms; it reached its limit (time) with rows left\n")
	if want := "weirctl: the cleanup ended in an error: table is gone\nThe schedule tries again; see weirctl cleanup status.\n"; w.stderr.String() != want {
		t.Errorf("stderr %q, want %q", w.stderr.String(), want)
	}
}

func TestFleet(t *testing.T) {
	w := newWorld(t)
	w.fleet = fleet.Fleet{}
	w.want(t, w.run(t, "fleet"), exitOK, "no node has sent a heartbeat: a node with MySQL configured sends one within seconds of its start\n")
	w.fleet = fleet.Fleet{Now: now, Nodes: []fleet.Node{
		{Heartbeat: heartbeat.Heartbeat{NodeID: "n1", Region: "eu", Build: "v1.2.3", TuningVersion: 7, Health: heartbeat.Health{AllowedTotal: 1234567, DeniedTotal: 89, PendingCost: 4, Relay: &heartbeat.Relay{Shards: 3, Held: []int{0, 2}, UnpublishedMs: 400}}}, Age: 1200 * time.Millisecond, Live: true, ClockSkew: -3 * time.Millisecond},
		{Heartbeat: heartbeat.Heartbeat{NodeID: "n2", Region: "us", Build: "v1.2.3", Health: heartbeat.Health{DroppedCost: 5, SettingsProblem: "floor is 2"}}, Age: 3 * time.Hour, ClockSkew: 1500 * time.Millisecond, HealthProblem: "health: odd"},
	}}
	w.want(t, w.run(t, "fleet"), exitOK, `
REGION  NODE  STATE     SEEN      BUILD   TUNING   SKEW  ALLOWED    DENIED  PENDING  RELAYS       PROBLEMS
eu      n1    live      1.2s ago  v1.2.3  7        -3ms  1,234,567  89      4        shards 0, 2  -
us      n2    not live  3h ago    v1.2.3  default  1.5s  0          0       0        -            5 cost dropped; its clock is off; settings: floor is 2; health: odd

2 regions, 2 nodes, 1 live
counts wait at most 400ms before they are sent to other regions
`)
	w.fleet.Truncated = true
	if code := w.run(t, "fleet"); code != exitOK || !strings.Contains(w.stdout.String(), "the fleet has more nodes than one answer holds") {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
}

// -o json is for programs: the API's own answer, and nothing else on stdout.
func TestJSON(t *testing.T) {
	w := newWorld(t)
	w.schedule.status = cleanup.Status{Running: true, Interval: time.Minute, NextAt: now}
	w.want(t, w.run(t, "cleanup", "status", "-o", "json"), exitOK, fmt.Sprintf(`
{
  "status": {
    "running": true,
    "intervalMs": "60000",
    "nextAtMs": "%d",
    "lagMs": "0",
    "runsTotal": "0",
    "rowsDeletedTotal": "0",
    "pausedBy": "",
    "pausedReason": "",
    "history": [],
    "pausedAtMs": "0",
    "errorsTotal": "0",
    "deadNodesDeletedTotal": "0",
    "partitionsProblem": ""
  }
}
`, now.UnixMilli()))
	for _, args := range [][]string{{"fleet"}, {"cleanup", "run", "--reason", "x"}, {"cleanup", "pause", "--reason", "x"}, {"cleanup", "resume", "--reason", "x"}} {
		if code := w.run(t, append(args, "-o", "json")...); code != exitOK || !json.Valid(w.stdout.Bytes()) {
			t.Errorf("%v: exit %d, %s %s", args, code, w.stdout.String(), w.stderr.String())
		}
	}
}

// The test covers the exit codes in --help, and the next step of each error.
func TestExitCodes(t *testing.T) {
	w := newWorld(t)
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	for name, tc := range map[string]struct {
		err  error
		args []string
		code int
		says []string
	}{
		"no command":          {nil, nil, exitUsage, []string{"expected one of", "weirctl --help"}},
		"a misspelt flag":     {nil, []string{"override", "set", "a", "b", "c", "--limt", "1"}, exitUsage, []string{"--limt", "See weirctl override set --help."}},
		"no such command":     {nil, []string{"cleanup", "explode"}, exitUsage, []string{"unexpected argument explode"}},
		"no reason":           {nil, []string{"cleanup", "pause"}, exitUsage, []string{"missing flags: --reason=TEXT"}},
		"reason refused":      {nil, []string{"cleanup", "pause", "--reason", " "}, exitUsage, []string{"reason is empty (1 to 500 bytes)", "Correct it"}},
		"unreachable":         {nil, []string{"cleanup", "status", "--api", down.URL}, exitUnreachable, []string{"connection refused", "start weir-control there, or name another with --api or WEIR_API"}},
		"somebody else there": {nil, []string{"cleanup", "status", "--api", other.URL}, exitFailure, []string{"is not the API of a weir-control"}},
		"Restate is down":     {fmt.Errorf("pause: %w: start restate-server", controlplane.ErrUnavailable), []string{"cleanup", "status"}, exitUnavailable, []string{"start restate-server", "/readyz names the server behind it that does not"}},
		"queued too long":     {fmt.Errorf("still queued: %w", context.DeadlineExceeded), []string{"cleanup", "pause", "--reason", "x"}, exitUnavailable, []string{"still queued", "may still happen: see weirctl cleanup status"}},
		"its own fault":       {errors.New("a fault"), []string{"fleet"}, exitFailure, []string{"a fault", "weir-control's log"}},
		"no patience":         {nil, []string{"cleanup", "status", "--timeout", "1ns"}, exitUnavailable, []string{"no answer within --timeout"}},
	} {
		t.Run(name, func(t *testing.T) {
			w.schedule.err = tc.err
			if code := w.run(t, tc.args...); code != tc.code {
				t.Errorf("exit %d, want %d", code, tc.code)
			}
			for _, words := range tc.says {
				if !strings.Contains(w.stderr.String(), words) {
					t.Errorf("stderr %q does not say %q", w.stderr.String(), words)
				}
			}
			if w.stdout.Len() > 0 {
				t.Errorf("stdout %q", w.stdout.String())
			}
		})
	}
}

func TestHelpDocumentsExitCodes(t *testing.T) {
	w := newWorld(t)
	if code := w.run(t, "--help"); code != exitOK {
		t.Errorf("exit %d", code)
	}
	for _, words := range []string{"0  done", "1  it failed", "2  the command", "3  the API cannot be reached", "4  the API answers", "5  health or doctor", "6  health or doctor", "http://127.0.0.1:7080", "WEIR_API"} {
		if !strings.Contains(w.stdout.String(), words) {
			t.Errorf("--help does not say %q:\n%s", words, w.stdout.String())
		}
	}
	if code := w.run(t, "version"); code != exitOK || !strings.HasPrefix(w.stdout.String(), "weirctl ") {
		t.Errorf("exit %d, %q", code, w.stdout.String())
	}
}

func TestSpans(t *testing.T) {
	for ms, want := range map[int64]string{0: "0s", 1: "1ms", 9999: "9.999s", 10_400: "10s", 80_000: "1m20s", 600_000: "10m", 3_600_000: "1h", 3_660_000: "1h1m", 86_400_000: "1d0h", -1500: "-1.5s", -90_000: "-1m30s"} {
		if got := format.Span(ms); got != want {
			t.Errorf("%d ms: %s, want %s", ms, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567"} {
		if got := format.Digits(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
