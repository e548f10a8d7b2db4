package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/restate/handlers"
	"github.com/weirhq/weir/schema"
	"github.com/weirhq/weir/shared/await"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/traces/tracestest"
)

// TestMain compiles the SDK's core first, once for all tests. Otherwise a process that drains before it is compiled
// leaves the compiler running.
func TestMain(m *testing.M) {
	e, err := handlers.NewEndpoint(handlers.Options{Log: slog.New(slog.DiscardHandler), Metrics: controlplane.NewMetrics()})
	if err != nil {
		panic(err)
	}
	e.Warm(context.Background())
	goleak.VerifyTestMain(m)
}

// running is a weir-control under test, with its log.
type running struct {
	t      *testing.T
	stop   context.CancelFunc
	exited chan int
	url    string
	http   *http.Client
	client controlv1connect.ControlServiceClient

	log await.Log
}

// awaitReady waits until /readyz answers 200.
func (r *running) awaitReady() {
	r.t.Helper()
	await.NoError(r.t, "it is ready", func() error {
		if code, body := r.ready(); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
}

// startControl runs the program on free ports until the test ends.
func startControl(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{t: t, stop: stop, exited: make(chan int, 1)}
	args = append([]string{"--api-listen", "127.0.0.1:0", "--handlers-listen", "127.0.0.1:0"}, args...)
	go func() { r.exited <- run(ctx, args, io.Discard, &r.log) }()
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Logf("log of weir-control:\n%s", r.log.String())
		}
	})
	await.NoError(t, "it serves", func() error {
		for line := range strings.Lines(r.log.String()) {
			var l struct{ Msg, API string }
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("a line of the log is not JSON: %s", line)
			}
			if l.Msg == "serving" {
				r.url = "http://" + l.API
				return nil
			}
		}
		return errors.New(r.log.String())
	})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	r.http = &http.Client{Transport: transport}
	r.client = controlv1connect.NewControlServiceClient(r.http, r.url)
	return r
}

// drain sends SIGTERM.
func (r *running) drain() {
	r.t.Helper()
	r.stop()
	select {
	case code := <-r.exited:
		if code != exitOK || !strings.Contains(r.log.String(), `"msg":"drained"`) {
			r.t.Errorf("exit %d", code)
		}
	case <-time.After(time.Minute):
		r.t.Fatal("it does not end")
	}
}

// ready calls /readyz.
func (r *running) ready() (status int, body string) {
	r.t.Helper()
	res, err := http.Get(r.url + "/readyz")
	if err != nil {
		r.t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// "It serves from its first moment, whatever is down …, and both are taken up again
// without a restart": MySQL and Restate come up after it, and everything follows:
// tables, registration, schedule, rows deleted, API. Then it drains.
func TestServesBeforeWhatItNeeds(t *testing.T) { servers.EachSQL(t, testServesBeforeWhatItNeeds) }

func testServesBeforeWhatItNeeds(t *testing.T) {
	mysql, restate := servers.SQLForTest(t), servers.RestateForTest(t)
	mysql.CreateForTest(t, "weir")
	for _, server := range []interface{ Kill() error }{mysql, restate} {
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("WEIR_MYSQL_DSN", mysql.DSN("weir"))
	sink := tracestest.NewSink(t)
	r := startControl(t, "--restate-ingress", restate.IngressURL(), "--restate-admin", restate.AdminURL(), "--cleanup-interval", "1s", "--watch-interval", "1s")

	status := func() (*controlv1.CleanupStatus, error) {
		answer, err := r.client.CleanupStatus(t.Context(), connect.NewRequest(&controlv1.CleanupStatusRequest{}))
		if err != nil {
			return nil, err
		}
		return answer.Msg.GetStatus(), nil
	}
	if _, err := status(); connect.CodeOf(err) != connect.CodeUnavailable || !connect.IsWireError(err) || !strings.Contains(err.Error(), "--restate-ingress") {
		t.Errorf("status with Restate down: %v", err)
	}
	if _, err := r.client.Fleet(t.Context(), connect.NewRequest(&controlv1.FleetRequest{})); connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "MySQL does not answer") {
		t.Errorf("fleet with MySQL down: %v", err)
	}
	if code, body := r.ready(); code != http.StatusServiceUnavailable || strings.Contains(body, `"ok"`) {
		t.Errorf("ready with both down: %d %s", code, body)
	}
	wantHealth(t, r, func(h *controlv1.Health) bool {
		return h.GetLive() && h.GetOverall() == "critical" && strings.Contains(fmt.Sprint(h), "mysql_down") && strings.Contains(fmt.Sprint(h), "restate_down")
	})

	if err := restate.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := mysql.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitReady()
	db := migrated(t, mysql.DSN("weir"))
	// The row would go with its hour.
	_, err := db.ExecContext(t.Context(), "ALTER TABLE ratelimit_window_counts REMOVE PARTITIONING")
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), `INSERT INTO ratelimit_window_counts
		(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
		VALUES ('acme', 'api', 'expired', 60000, 1, 'eu', 5, 1, 1), ('acme', 'api', 'live', 60000, 1, 'eu', 5, ?, 1)`, time.Now().Add(time.Hour).UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "the schedule deletes the expired row", func() error {
		s, err := status()
		if err == nil && (s.GetRowsDeletedTotal() != 1 || !s.GetRunning() || s.GetIntervalMs() != 1000) {
			err = fmt.Errorf("%v", s)
		}
		return err
	})
	wantHealth(t, r, func(h *controlv1.Health) bool { return !h.GetLive() && h.GetOverall() == "ok" })
	pause := connect.NewRequest(&controlv1.CleanupPauseRequest{Actor: "ann", Reason: "deploy"})
	pause.Header().Set("Traceparent", tracestest.Parent)
	if _, err := r.client.CleanupPause(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "the audit row", func() error {
		var n int
		if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM ratelimit_audit WHERE action = 'cleanup.pause' AND actor = 'ann'`).Scan(&n); err != nil || n != 1 {
			return fmt.Errorf("%d rows, %w", n, err)
		}
		return nil
	})
	r.drain()
	for _, want := range []string{controlv1connect.ControlServiceCleanupPauseProcedure, "/" + handlers.CronService + "/Tick", "/HTTP POST"} {
		if !slices.Contains(sink.Names(), want[1:]) {
			t.Errorf("no span of %s in %q", want, slices.Compact(sink.Names()))
		}
	}

	// Another process finds everything as it was left.
	again := startControl(t, "--restate-ingress", restate.IngressURL(), "--restate-admin", restate.AdminURL(), "--cleanup-interval", "1s", "--no-migrate")
	r = again
	await.NoError(t, "it takes over", func() error {
		s, err := status()
		if err == nil && (s.GetPausedBy() != "ann" || s.GetRunning()) {
			err = fmt.Errorf("%v", s)
		}
		return err
	})
	answer, err := r.client.CleanupRun(t.Context(), connect.NewRequest(&controlv1.CleanupRunRequest{Actor: "bob", Reason: "check"}))
	if err != nil || answer.Msg.GetRun().GetError() != "" || answer.Msg.GetRun().GetTrigger() != "bob" {
		t.Errorf("%v, %v", answer, err)
	}
	var left string
	if err := db.QueryRowContext(t.Context(), `SELECT GROUP_CONCAT(identifier) FROM ratelimit_window_counts`).Scan(&left); err != nil || left != "live" {
		t.Errorf("left %q, %v", left, err)
	}
	r.drain()
	if log := r.log.String(); strings.Contains(log, mysql.DSN("weir")) {
		t.Errorf("the DSN is in the log:\n%s", log)
	}
}

// "Or, with --no-migrate, your own migration step does": until then it is not ready.
func TestNotReadyWithoutItsTables(t *testing.T) { servers.EachSQL(t, testNotReadyWithoutItsTables) }

func testNotReadyWithoutItsTables(t *testing.T) {
	mysql, restate := servers.SQLForTest(t), servers.RestateForTest(t)
	mysql.CreateForTest(t, "weir")
	t.Setenv("WEIR_MYSQL_DSN", mysql.DSN("weir"))
	r := startControl(t, "--restate-ingress", restate.IngressURL(), "--restate-admin", restate.AdminURL(), "--no-migrate")
	await.NoError(t, "only the tables are missing", func() error {
		code, body := r.ready()
		if code != http.StatusServiceUnavailable || !strings.Contains(body, "have version 0") || !strings.Contains(body, `"restate":"ok"`) {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	db, err := store.Open(mysql.DSN("weir"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := schema.Migrate(t.Context(), db, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	r.awaitReady()
	r.drain()
}

// wantHealth waits for a health document.
func wantHealth(t *testing.T, r *running, holds func(*controlv1.Health) bool) {
	t.Helper()
	client := controlv1connect.NewHealthServiceClient(r.http, r.url)
	await.NoError(t, "the health", func() error {
		answer, err := client.GetHealth(t.Context(), connect.NewRequest(&controlv1.GetHealthRequest{}))
		if err == nil && !holds(answer.Msg.GetHealth()) {
			err = fmt.Errorf("%v", answer.Msg.GetHealth())
		}
		return err
	})
}

// migrated waits for the tables and returns a handle.
func migrated(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := store.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	await.NoError(t, "the tables", func() error {
		if v, err := schema.Version(t.Context(), db); err != nil || v != schema.Latest() {
			return fmt.Errorf("version %d, %w", v, err)
		}
		return nil
	})
	return db
}

// A fault on this machine ends the program at once, with the reason.
func TestAPortThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	t.Setenv("WEIR_MYSQL_DSN", "weir:s3cret@tcp(127.0.0.1:1)/weir")
	for _, flag := range []string{"--api-listen", "--handlers-listen"} {
		other := map[string]string{"--api-listen": "--handlers-listen", "--handlers-listen": "--api-listen"}[flag]
		code, _, stderr := tried(t, flag, taken.Addr().String(), other, "127.0.0.1:0")
		if code != exitFailure || !strings.Contains(stderr, "address already in use") || !strings.Contains(stderr, strings.TrimPrefix(flag, "--")) {
			t.Errorf("exit %d, %s", code, stderr)
		}
	}
	if code, _, stderr := tried(t, "--restate-identity-key", "publickeyv1_!"); code != exitFailure || !strings.Contains(stderr, "restate-identity-key") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}
