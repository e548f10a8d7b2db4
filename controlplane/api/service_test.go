package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/controlplane/watch"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/heartbeat"
)

var at = time.UnixMilli(1_700_000_000_000)

// schedule is a cleanup's schedule in memory.
type schedule struct {
	status cleanup.Status
	runBy  controlplane.By
	err    error
	panics bool
}

func (s *schedule) Status(context.Context) (cleanup.Status, error) {
	if s.panics {
		panic("boom")
	}
	return s.status, s.err
}

func (s *schedule) RunNow(_ context.Context, by controlplane.By) (cleanup.Run, error) {
	s.runBy = by
	return run, s.err
}

func (s *schedule) Pause(_ context.Context, by controlplane.By) (cleanup.Status, error) {
	if s.err == nil {
		s.status.Running, s.status.Paused = false, &cleanup.Pause{By: by, At: at}
	}
	return s.status, s.err
}

func (s *schedule) Resume(_ context.Context, _ controlplane.By) (cleanup.Status, error) {
	if s.err == nil {
		s.status.Running, s.status.Paused = true, nil
	}
	return s.status, s.err
}

var run = cleanup.Run{
	Report:    cleanup.Report{Rows: 12, Batches: 3, DeadNodes: 1, Lag: time.Minute, StoppedBy: cleanup.StoppedBySlow},
	StartedAt: at, Took: 1500 * time.Millisecond, Trigger: "ann", Error: "boom",
}

// fixture serves the API with everything it needs in memory.
type fixture struct {
	health watch.HealthDocument
	checks []watch.Check

	auditAsked [2]int64
	audited    []audit.Record // newest first; nil: each page has one entry
	links      audit.Links

	versionsAsked string
	key           limits.KeyReport
	keyAsked      limits.KeyQuery
	keys          limits.KeyPage
	keysAsked     limits.KeysQuery
	top           limits.TopKeys
	topAsked      limits.TopQuery
	schedule      *schedule
	rollouts      rollouts
	retirements   retirements
	settings      settings
	lagErr        error
	readyErr      error
	fleet         fleet.Fleet
	fleetErr      error
	failures      []controlplane.AuthFailure
	log           bytes.Buffer
	url           string
	http          *http.Client
	client        controlv1connect.ControlServiceClient
}

// Audit implements audit.Log.
func (f *fixture) Audit(_ context.Context, before int64, rows int) ([]audit.Record, error) {
	f.auditAsked = [2]int64{before, int64(rows)}
	if f.audited != nil {
		older := slices.DeleteFunc(slices.Clone(f.audited), func(r audit.Record) bool { return r.Row >= before })
		return older[:min(len(older), rows)], nil
	}
	return []audit.Record{{Row: 9, At: at, Entry: audit.Entry{By: controlplane.By{Actor: "ann", Reason: "r"}, Action: "cleanup.pause", Subject: "job\xfe", Before: "{}", After: "[]"}}}, f.fleetErr
}

// TuningVersions implements tunings.Log.
func (f *fixture) TuningVersions(_ context.Context, region *string, before int64, rows int) ([]tunings.Version, error) {
	f.versionsAsked = fmt.Sprint(region != nil, before, rows)
	all := []tunings.Version{
		{RegionTuning: tunings.RegionTuning{Region: "e\xfe", Version: 8, Document: controltest.Document()}, By: controlplane.By{Actor: "ann", Reason: "r"}, At: at, Rollout: "r1"},
		{RegionTuning: tunings.RegionTuning{Version: 7, Document: "[]"}},
	}
	return all[:min(rows, len(all))], f.readyErr
}

// AuditLinks implements audit.Log.
func (f *fixture) AuditLinks(_ context.Context, after int64, rows int) (audit.Links, error) {
	f.auditAsked = [2]int64{after, int64(rows)}
	return f.links, f.fleetErr
}

func serve(t *testing.T, opts ...connect.ClientOption) *fixture {
	t.Helper()
	f := &fixture{schedule: &schedule{status: cleanup.Status{Running: true, Interval: time.Minute, NextAt: at, Runs: 7, Errors: 2, Rows: 100, DeadNodes: 3, History: []cleanup.Run{run}}}}
	registry := prometheus.NewRegistry()
	registry.MustRegister(controlplane.NewMetrics(), cleanup.NewMetrics(), watch.NewMetrics())
	server := httptest.NewServer(NewHandler(Config{
		Cleanup:     f.schedule,
		Rollouts:    &f.rollouts,
		Retirements: &f.retirements,
		Settings:    &f.settings,
		Ready:       func(context.Context) error { return f.readyErr },
		Tuning: func(context.Context) ([]tunings.RegionTuning, error) {
			return []tunings.RegionTuning{{Document: "{}"}, {Region: "e\xfe", Version: 7, Document: controltest.Document()}}, f.readyErr
		},
		Lag:   func(context.Context) (time.Duration, error) { return 3 * time.Second, f.lagErr },
		Fleet: func(context.Context) (fleet.Fleet, error) { return f.fleet, f.fleetErr },
		Audit: f, Tunings: f,
		Key: func(_ context.Context, q limits.KeyQuery) (limits.KeyReport, error) {
			f.keyAsked = q
			return f.key, f.fleetErr
		},
		Keys: func(_ context.Context, q limits.KeysQuery) (limits.KeyPage, error) {
			f.keysAsked = q
			return f.keys, f.fleetErr
		},
		TopKeys: func(_ context.Context, q limits.TopQuery) (limits.TopKeys, error) {
			f.topAsked = q
			return f.top, f.fleetErr
		},
		Health:   func(context.Context) watch.HealthDocument { return f.health },
		Diagnose: func(context.Context) []watch.Check { return f.checks },
		Metrics:  registry, Log: slog.New(slog.NewTextHandler(&f.log, nil)), AllowedHosts: []string{"weir.example"},
	}))
	t.Cleanup(server.Close)
	f.url, f.http = server.URL, server.Client()
	f.client = controlv1connect.NewControlServiceClient(server.Client(), server.URL, opts...)
	return f
}

func wantText(t *testing.T, got proto.Message, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", protojson.Format(got), protojson.Format(want))
	}
}

func TestCleanupCalls(t *testing.T) {
	f := serve(t)
	lag := int64(3000)
	want := &controlv1.CleanupStatus{
		Running: true, IntervalMs: 60_000, NextAtMs: at.UnixMilli(), LagMs: &lag,
		RunsTotal: 7, ErrorsTotal: 2, RowsDeletedTotal: 100, DeadNodesDeletedTotal: 3,
		History: []*controlv1.CleanupRunRecord{{
			StartedAtMs: at.UnixMilli(), DurationMs: 1500, RowsDeleted: 12, Batches: 3, DeadNodesDeleted: 1, LagMs: 60_000,
			Capped: true, StoppedBy: "slow", Trigger: "ann", Error: "boom",
		}},
	}
	status, err := f.client.CleanupStatus(t.Context(), connect.NewRequest(&controlv1.CleanupStatusRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, status.Msg.GetStatus(), want)

	ran, err := f.client.CleanupRun(t.Context(), connect.NewRequest(&controlv1.CleanupRunRequest{Actor: "ann", Reason: "backlog"}))
	if err != nil || f.schedule.runBy != (controlplane.By{Actor: "ann", Reason: "backlog"}) {
		t.Fatalf("%v, run by %+v", err, f.schedule.runBy)
	}
	wantText(t, ran.Msg.GetRun(), want.GetHistory()[0])

	paused, err := f.client.CleanupPause(t.Context(), connect.NewRequest(&controlv1.CleanupPauseRequest{Actor: "ann", Reason: "deploy"}))
	if err != nil {
		t.Fatal(err)
	}
	want.Running, want.PausedBy, want.PausedReason, want.PausedAtMs = false, "ann", "deploy", at.UnixMilli()
	wantText(t, paused.Msg.GetStatus(), want)

	f.lagErr = errors.New("down")
	resumed, err := f.client.CleanupResume(t.Context(), connect.NewRequest(&controlv1.CleanupResumeRequest{Actor: "ann", Reason: "done"}))
	if err != nil {
		t.Fatal(err)
	}
	want.Running, want.PausedBy, want.PausedReason, want.PausedAtMs, want.LagMs = true, "", "", 0, nil
	wantText(t, resumed.Msg.GetStatus(), want) // without MySQL only the lag is missing
}

func TestFleet(t *testing.T) {
	f := serve(t)
	f.fleet = fleet.Fleet{Now: at, Truncated: true, Nodes: []fleet.Node{{
		Heartbeat: heartbeat.Heartbeat{
			NodeID: "n1", Region: "eu", Build: "v1", TuningVersion: 4, StartedAtMs: 5,
			Health: heartbeat.Health{AllowedTotal: 1, DeniedTotal: 2, ShadowedTotal: 3, DegradedTotal: 4, Entries: 5, PendingCost: 6, DroppedCost: 7, ReplayErrors: 8, ReplayedAtMs: 9,
				SettingsErrors: 17, SettingsAtMs: 18, SettingsProblem: "p", BreakersOpen: 23,
				Relay: &heartbeat.Relay{Held: []int{0, 2}, Shards: 3, InStepAtMs: 24, UnpublishedMs: 25, LagP99Ms: map[string]int64{"us": 26}, Errors: 27, Rows: 28, Stored: 29, Healed: 30, Fenced: 31}},
		},
		SeenAt: at.Add(-time.Second), Age: time.Second, Live: true, ClockSkew: -2 * time.Millisecond, HealthProblem: "odd",
	}}}
	answer, err := f.client.Fleet(t.Context(), connect.NewRequest(&controlv1.FleetRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, answer.Msg, &controlv1.FleetResponse{NowMs: at.UnixMilli(), Truncated: true, Nodes: []*controlv1.Node{{
		NodeId: "n1", Region: "eu", Build: "v1", TuningVersion: 4, StartedAtMs: 5, SeenAtMs: at.UnixMilli() - 1000, AgeMs: 1000, Live: true, ClockSkewMs: -2, HealthProblem: "odd",
		Health: &controlv1.NodeHealth{AllowedTotal: 1, DeniedTotal: 2, ShadowedTotal: 3, DegradedTotal: 4, Entries: 5, PendingCost: 6, DroppedCostTotal: 7, ReplayErrorsTotal: 8, ReplayedAtMs: 9,
			SettingsErrorsTotal: 17, SettingsAtMs: 18, SettingsProblem: "p", BreakersOpen: 23,
			Relay: &controlv1.NodeRelay{Held: []int32{0, 2}, Shards: 3, InStepAtMs: 24, UnpublishedMs: 25, LagP99Ms: map[string]int64{"us": 26}, ErrorsTotal: 27, RowsTotal: 28, StoredTotal: 29, HealedTotal: 30, FencedTotal: 31}},
	}}, Pairs: []*controlv1.ConvergencePair{{From: "us", To: "eu", P99Ms: 26, Nodes: 1}}})
}

// "One node with an invalid name must not hide the fleet."
func TestFleetWithBytesThatAreNoText(t *testing.T) {
	f := serve(t)
	f.fleet = fleet.Fleet{Nodes: []fleet.Node{{Heartbeat: heartbeat.Heartbeat{NodeID: "n\xff", Region: "eu"}, HealthProblem: "\xfe"}}}
	answer, err := f.client.Fleet(t.Context(), connect.NewRequest(&controlv1.FleetRequest{}))
	if err != nil || answer.Msg.GetNodes()[0].GetNodeId() != "n\uFFFD" {
		t.Errorf("%v, %v", answer, err)
	}
}

// Every error has the code that its cause deserves, and keeps its words.
func TestErrorCodes(t *testing.T) {
	f := serve(t)
	for name, tc := range map[string]struct {
		err  error
		code connect.Code
	}{
		"invalid":     {fmt.Errorf("pause: %w: reason is empty", controlplane.ErrInvalid), connect.CodeInvalidArgument},
		"unavailable": {fmt.Errorf("pause: %w: start restate-server", controlplane.ErrUnavailable), connect.CodeUnavailable},
		"deadline":    {fmt.Errorf("still queued: %w", context.DeadlineExceeded), connect.CodeDeadlineExceeded},
		"canceled":    {fmt.Errorf("gone: %w", context.Canceled), connect.CodeCanceled},
		"other":       {errors.New("a fault of ours"), connect.CodeInternal},
	} {
		f.schedule.err, f.fleetErr = tc.err, tc.err
		by := controlplane.By{Actor: "ann", Reason: "x"}
		for rpc, call := range map[string]func() error{
			"status": func() error {
				_, err := f.client.CleanupStatus(t.Context(), connect.NewRequest(&controlv1.CleanupStatusRequest{}))
				return err
			},
			"run": func() error {
				_, err := f.client.CleanupRun(t.Context(), connect.NewRequest(&controlv1.CleanupRunRequest{Actor: by.Actor, Reason: by.Reason}))
				return err
			},
			"pause": func() error {
				_, err := f.client.CleanupPause(t.Context(), connect.NewRequest(&controlv1.CleanupPauseRequest{Actor: by.Actor, Reason: by.Reason}))
				return err
			},
			"resume": func() error {
				_, err := f.client.CleanupResume(t.Context(), connect.NewRequest(&controlv1.CleanupResumeRequest{Actor: by.Actor, Reason: by.Reason}))
				return err
			},
			"fleet": func() error {
				_, err := f.client.Fleet(t.Context(), connect.NewRequest(&controlv1.FleetRequest{}))
				return err
			},
		} {
			if err := call(); connect.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.err.Error()) {
				t.Errorf("%s, %s: %v", name, rpc, err)
			}
		}
	}
	if logged := f.log.String(); strings.Count(logged, "call failed") != 5 || !strings.Contains(logged, "a fault of ours") {
		t.Errorf("only internal errors are logged, once each:\n%s", logged)
	}
}

// "Every change needs an actor and a reason": otherwise the schedule is not called.
func TestChangesNeedWhoAndWhy(t *testing.T) {
	f := serve(t)
	f.schedule.err = errors.New("was asked")
	for want, call := range map[string]func() error{
		"actor is empty (1 to 191 bytes)": func() error {
			_, err := f.client.CleanupPause(t.Context(), connect.NewRequest(&controlv1.CleanupPauseRequest{Reason: "x"}))
			return err
		},
		"reason is empty (1 to 500 bytes)": func() error {
			_, err := f.client.CleanupResume(t.Context(), connect.NewRequest(&controlv1.CleanupResumeRequest{Actor: "x"}))
			return err
		},
		"reason is 501 bytes long (1 to 500)": func() error {
			_, err := f.client.CleanupRun(t.Context(), connect.NewRequest(&controlv1.CleanupRunRequest{Actor: "x", Reason: strings.Repeat("r", 501)}))
			return err
		},
	} {
		if err := call(); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestRequestsAreBounded(t *testing.T) {
	f := serve(t)
	_, err := f.client.CleanupPause(t.Context(), connect.NewRequest(&controlv1.CleanupPauseRequest{Actor: "x", Reason: strings.Repeat("r", requestBytesMax)}))
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a request of 64 KiB: %v", err)
	}
}

// A panic fails one call and does not end the process. Its text appears only in the log.
func TestPanicIsOneFailedCall(t *testing.T) {
	f := serve(t)
	f.schedule.panics = true
	_, err := f.client.CleanupStatus(t.Context(), connect.NewRequest(&controlv1.CleanupStatusRequest{}))
	if connect.CodeOf(err) != connect.CodeInternal || strings.Contains(err.Error(), "boom") || !strings.Contains(f.log.String(), "panic=boom") {
		t.Errorf("%v, log %s", err, f.log.String())
	}
}

func TestHealthReadinessAndMetrics(t *testing.T) {
	f := serve(t)
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": `{"mysql":"ok","restate":"ok"}` + "\n", "/metrics": "weir_cleanup_rows_deleted_total 0\n"} {
		if status, body := get(t, f.url+path, nil); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	f.schedule.err = errors.New("restate is down")
	wantReady(t, f, http.StatusServiceUnavailable, `{"mysql":"ok","restate":"restate is down"}`)
	f.schedule.err, f.readyErr = nil, errors.New("mysql is down")
	wantReady(t, f, http.StatusServiceUnavailable, `{"mysql":"mysql is down","restate":"ok"}`)
	if status, _ := get(t, f.url+"/healthz", nil); status != http.StatusOK {
		t.Errorf("liveness depends on a dependency: %d", status)
	}
}

// wantReady waits for the next check, because one check answers probes for a while.
func wantReady(t *testing.T, f *fixture, code int, body string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		status, got := get(t, f.url+"/readyz", nil)
		if status == code && got == body+"\n" {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("/readyz: %d %s, want %d %s", status, got, code, body)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// "Requests that a browser makes for another site are refused, by Origin and by Host."
func TestOtherSitesAreRefused(t *testing.T) {
	f := serve(t)
	for name, tc := range map[string]struct {
		host   string
		origin string
		site   string
		want   int
	}{
		"curl":                     {want: http.StatusOK},
		"localhost":                {host: "localhost:7080", want: http.StatusOK},
		"IPv6 loopback":            {host: "[::1]:7080", want: http.StatusOK},
		"an allowed name":          {host: "weir.example", want: http.StatusOK},
		"a name pointed at us":     {host: "evil.example:7080", want: http.StatusForbidden},
		"a private address":        {host: "10.0.0.1:7080", want: http.StatusForbidden},
		"another site's page":      {origin: "https://evil.example", site: "cross-site", want: http.StatusForbidden},
		"another site, no sec-":    {origin: "https://evil.example", want: http.StatusForbidden},
		"our own page":             {site: "same-origin", want: http.StatusOK},
		"another page, same host.": {origin: "http://localhost:1", site: "same-site", want: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+controlv1connect.ControlServiceCleanupStatusProcedure, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Host = tc.host
			if tc.origin != "" {
				req.Header.Set("Origin", tc.origin)
			}
			if tc.site != "" {
				req.Header.Set("Sec-Fetch-Site", tc.site)
			}
			if status, body := do(t, req); status != tc.want {
				t.Errorf("%d %s; want %d", status, body, tc.want)
			}
		})
	}
}

// gRPC over plain HTTP/2 works on the same port.
func TestGRPC(t *testing.T) {
	f := serve(t)
	server := NewServer(NewHandler(Config{Cleanup: f.schedule, Lag: func(context.Context) (time.Duration, error) { return 0, nil }, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)}), slog.New(slog.DiscardHandler))
	test := httptest.NewUnstartedServer(server.Handler)
	test.Config = server
	test.Start()
	t.Cleanup(test.Close)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	client := controlv1connect.NewControlServiceClient(&http.Client{Transport: transport}, test.URL, connect.WithGRPC())
	answer, err := client.CleanupStatus(t.Context(), connect.NewRequest(&controlv1.CleanupStatusRequest{}))
	if err != nil || !answer.Msg.GetStatus().GetRunning() {
		t.Errorf("%v, %v", answer, err)
	}
}

func get(t *testing.T, url string, header http.Header) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	return do(t, req)
}

func do(t *testing.T, req *http.Request) (status int, body string) {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}
