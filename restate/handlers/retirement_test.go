package handlers

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/servers"
)

const retired = retire.Blocklist

// hamlet is a fleet of two regions that relay each other, with heartbeats every 20 ms. If the database is down, it
// sends them later.
type hamlet struct {
	db   *sql.DB
	stop context.CancelFunc
	done sync.WaitGroup
}

func newHamlet(t *testing.T, db *sql.DB) {
	ctx, stop := context.WithCancel(t.Context())
	h := &hamlet{db: db, stop: stop}
	h.speak(ctx)
	h.done.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			h.speak(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { h.stop(); h.done.Wait() })
}

func (h *hamlet) speak(ctx context.Context) {
	at := time.Now().UnixMilli()
	health, _ := json.Marshal(heartbeat.Health{Relay: &heartbeat.Relay{Shards: 1, Held: []int{0}, InStepAtMs: at}})
	for _, region := range []string{"eu", "us"} {
		_ = dataplanedb.New(h.db).NodeBeat(ctx, dataplanedb.NodeBeatParams{
			NodeID: []byte(region + "-1"), Region: []byte(region), Build: "v1", StartedAt: 1, SentAt: uint64(at), Health: string(health),
		})
	}
}

func retirementOptions(s *store.Store) Options {
	o := rolloutOptions(s)
	o.Retirement = retire.NewWork(s, 30*time.Second, 0, o.Metrics)
	o.ChainGrace = time.Second
	return o
}

func newRetirementCluster(t *testing.T) (*cluster, *sql.DB, string, RetirementClient) {
	t.Helper()
	db, dsn := rows(t)
	newHamlet(t, db)
	c := newCluster(t, retirementOptions(store.New(db)), func(*stepper) map[string]Job { return nil })
	return c, db, dsn, RetirementClient{c.client}
}

func briefly() retire.Spec {
	return retire.Spec{QuietMs: 300, SoakMs: 300, HealthWithinMs: 60_000, BatchRows: 10}
}

// block writes verdicts as the old design did, which expire after d.
func block(ctx context.Context, db *sql.DB, name string, n int, d time.Duration) error {
	var args []any
	for i := range n {
		args = append(args, fmt.Sprint(name, i), time.Now().Add(d).UnixMilli())
	}
	_, err := db.ExecContext(ctx, "INSERT INTO ratelimit_blocklist (workspace_id, namespace, identifier, duration_ms, sequence, `limit`, expires_at) VALUES "+
		strings.TrimSuffix(strings.Repeat("('acme', 'api', ?, 60000, 1, 10, ?), ", n), ", ")+
		" ON DUPLICATE KEY UPDATE expires_at = GREATEST(expires_at, VALUES(expires_at))", args...)
	return err
}

// retires polls until holds returns true for the retirement.
func retires(t *testing.T, c RetirementClient, what string, holds func(retire.Retirement) bool) (r retire.Retirement) {
	t.Helper()
	await.NoError(t, what, func() (err error) {
		if r, err = c.Status(t.Context(), retired); err == nil && !holds(r) {
			err = fmt.Errorf("%s: %s%s%s", r.Phase, r.Why, r.Trouble, r.Waiting)
		}
		return err
	})
	return r
}

func at(phase retire.Phase) func(retire.Retirement) bool {
	return func(r retire.Retirement) bool { return r.Phase == phase }
}

// blocklistTables returns the tables that have, or had, the blocklist's name.
func blocklistTables(t *testing.T, db *sql.DB) (names string) {
	t.Helper()
	await.NoError(t, "the tables", func() error {
		return db.QueryRowContext(t.Context(), `SELECT COALESCE(GROUP_CONCAT(TABLE_NAME ORDER BY TABLE_NAME), '') FROM information_schema.TABLES
			WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'ratelimit\_blocklist%'`).Scan(&names)
	})
	return names
}

// wantAuditOf checks that the audit log has exactly these actions of the table, in this order.
func wantAuditOf(t *testing.T, db *sql.DB, want string) {
	t.Helper()
	await.NoError(t, "the audit log", func() error {
		var all sql.NullString
		err := db.QueryRowContext(t.Context(), `SELECT GROUP_CONCAT(CONCAT(actor, ' ', SUBSTR(action, 12)) ORDER BY id SEPARATOR ', ') FROM ratelimit_audit WHERE subject = ?`, "table "+retired).Scan(&all)
		if err == nil && all.String != want {
			err = fmt.Errorf("%q, want %q", all.String, want)
		}
		return err
	})
}

// The whole retirement on real servers: expired rows are deleted, the others are waited for, two approvals are given,
// and the audit log has each change once.
func TestRetirementHappyPath(t *testing.T) {
	t.Parallel()
	servers.EachSQL(t, testRetirementHappyPath)
}

func testRetirementHappyPath(t *testing.T) {
	t.Parallel()
	_, db, _, c := newRetirementCluster(t)
	if _, err := c.Status(t.Context(), retired); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("before there is one: %v", err)
	}
	if _, err := c.Start(t.Context(), "ratelimit_window_counts", briefly(), operator); !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("another table: %v", err)
	}
	if err := errors.Join(block(t.Context(), db, "old", 25, -time.Minute), block(t.Context(), db, "live", 5, time.Hour)); err != nil {
		t.Fatal(err)
	}
	began, err := c.Start(t.Context(), retired, briefly(), operator)
	if err != nil || began.Phase != retire.Observing {
		t.Fatalf("%+v, %v", began, err)
	}
	if again, err := c.Start(t.Context(), retired, briefly(), operator); err != nil || again.ID != began.ID {
		t.Errorf("the same again: %+v, %v", again, err)
	}
	if _, err := c.Start(t.Context(), retired, retire.DefaultSpec(), operator); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("another one: %v", err)
	}
	r := retires(t, c, "the drain waits", func(r retire.Retirement) bool {
		return strings.HasPrefix(r.Waiting, "5 rows are left;") || r.Phase == retire.Draining && r.Evidence.Rows == 5
	})
	if r.RowsDeleted != 25 {
		t.Errorf("%d rows deleted", r.RowsDeleted)
	}
	// as if their hour were over
	if _, err := db.ExecContext(t.Context(), "DELETE FROM ratelimit_blocklist"); err != nil {
		t.Fatal(err)
	}
	retires(t, c, "it is empty", at(retire.Awaiting))
	if _, err := c.ApproveDrop(t.Context(), retired, shown(t, c, operator)); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("the drop first: %v", err)
	}
	rename := shown(t, c, operator)
	if _, err := c.ApproveRename(t.Context(), retired, rename); err != nil {
		t.Fatal(err)
	}
	r = retires(t, c, "the soak ends", at(retire.AwaitingFinal))
	if names := blocklistTables(t, db); names != r.Dated {
		t.Errorf("tables %s", names)
	}
	if _, err := c.ApproveRename(t.Context(), retired, shown(t, c, operator)); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("the rename again: %v", err)
	}
	drop := shown(t, c, controlplane.By{Actor: "bob", Reason: "nobody misses it"})
	if _, err := c.ApproveDrop(t.Context(), retired, drop); err != nil {
		t.Fatal(err)
	}
	retires(t, c, "the end", at(retire.Dropped))
	if names := blocklistTables(t, db); names != "" {
		t.Errorf("tables %s", names)
	}
	wantAuditOf(t, db, "ann start, weir-control draining, weir-control awaiting_approval, ann approve_rename, weir-control renamed, weir-control awaiting_final_approval, bob approve_drop, weir-control dropped")
	var evidence string
	if err := db.QueryRowContext(t.Context(), `SELECT GROUP_CONCAT(JSON_UNQUOTE(JSON_EXTRACT(after_state, '$.approved_evidence')) ORDER BY id)
		FROM ratelimit_audit WHERE action IN ('retirement.approve_rename', 'retirement.approve_drop')`).Scan(&evidence); err != nil ||
		evidence != controlplane.ShortEvidence(rename.Evidence)+","+controlplane.ShortEvidence(drop.Evidence) || len(evidence) != 25 {
		t.Errorf("%s of %s and %s, %v", evidence, rename.Evidence, drop.Evidence, err)
	}
	if _, err := c.Start(t.Context(), retired, briefly(), operator); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("once more: %v", err)
	}
	list, err := c.List(t.Context(), retired)
	if err != nil || len(list) != 1 || list[0].Phase != retire.Dropped {
		t.Errorf("%+v, %v", list, err)
	}
}

// An abort of the renamed table restores its name with its rows, and another retirement can begin.
func TestRetirementAbortRestores(t *testing.T) {
	t.Parallel()
	servers.EachSQL(t, testRetirementAbortRestores)
}

func testRetirementAbortRestores(t *testing.T) {
	t.Parallel()
	_, db, _, c := newRetirementCluster(t)
	spec := briefly()
	spec.SoakMs = 3_600_000
	for range 2 {
		if _, err := c.Start(t.Context(), retired, spec, operator); err != nil {
			t.Fatal(err)
		}
		retires(t, c, "it is empty", at(retire.Awaiting))
		if _, err := c.ApproveRename(t.Context(), retired, shown(t, c, operator)); err != nil {
			t.Fatal(err)
		}
		r := retires(t, c, "the soak", at(retire.Renamed))
		if err := block(t.Context(), db, "late", 1, time.Hour); err == nil || !strings.Contains(err.Error(), "doesn't exist") {
			t.Errorf("a writer: %v", err)
		}
		if names := blocklistTables(t, db); names != r.Dated {
			t.Errorf("tables %s", names)
		}
		if _, err := c.Abort(t.Context(), retired, operator); err != nil {
			t.Fatal(err)
		}
		retires(t, c, "the end", at(retire.Aborted))
		if names := blocklistTables(t, db); names != retired {
			t.Errorf("tables %s", names)
		}
	}
	if err := block(t.Context(), db, "late", 1, time.Hour); err != nil {
		t.Errorf("a writer: %v", err)
	}
	if list, err := c.List(t.Context(), retired); err != nil || len(list) != 2 || list[1].Phase != retire.Aborted {
		t.Errorf("%+v, %v", list, err)
	}
}

// A write sends the retirement back to observing, and an approval detects it by its own look.
func TestRetirementIsSentBackByAWrite(t *testing.T) {
	t.Parallel()
	servers.EachSQL(t, testRetirementIsSentBackByAWrite)
}

func testRetirementIsSentBackByAWrite(t *testing.T) {
	t.Parallel()
	_, db, _, c := newRetirementCluster(t)
	if _, err := c.Start(t.Context(), retired, briefly(), operator); err != nil {
		t.Fatal(err)
	}
	retires(t, c, "it is empty", at(retire.Awaiting))
	if err := block(t.Context(), db, "late", 1, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ApproveRename(t.Context(), retired, shown(t, c, operator)); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("%v", err)
	}
	r := retires(t, c, "back again", func(r retire.Retirement) bool { return r.LastWriteMs > 0 && r.Evidence.Rows == 1 })
	if r.Rename != nil || blocklistTables(t, db) != retired {
		t.Errorf("%+v", r)
	}
}

// Ensure revives a retirement whose timer was lost, and does not change a healthy retirement.
func TestRetirementWhoseTimerIsLost(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testRetirementWhoseTimerIsLost)
}

func testRetirementWhoseTimerIsLost(t *testing.T) {
	t.Parallel()
	cl, _, _, c := newRetirementCluster(t)
	spec := briefly()
	spec.QuietMs = 600_000 // a look each 30 s
	if _, err := c.Start(t.Context(), retired, spec, operator); err != nil {
		t.Fatal(err)
	}
	r := retires(t, c, "it observes", func(r retire.Retirement) bool { return r.Epoch >= 2 })
	if after, err := c.Ensure(t.Context(), retired); err != nil || after.Epoch != r.Epoch {
		t.Errorf("a healthy one: epoch %d after %d, %v", after.Epoch, r.Epoch, err)
	}
	var answer struct{ Rows []struct{ ID string } }
	cl.admin(http.MethodPost, "/query", map[string]string{"query": `SELECT id FROM sys_invocation WHERE target_service_name = '` + RetirementService + `' AND target_handler_name = 'Step' AND status = 'scheduled'`}, &answer)
	if len(answer.Rows) != 1 {
		t.Fatalf("%d timers", len(answer.Rows))
	}
	cl.admin(http.MethodPatch, "/invocations/"+answer.Rows[0].ID+"/kill", nil, nil)
	var state map[string]any // its timer was due long ago
	if err := json.Unmarshal([]byte(cl.state(RetirementService, retired, retirementKey)), &state); err != nil {
		t.Fatal(err)
	}
	state["timer_ms"] = 1
	changed, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	bytes := make([]int, len(changed)) // the admin API accepts bytes as numbers
	for i, b := range changed {
		bytes[i] = int(b)
	}
	cl.admin(http.MethodPost, "/services/"+RetirementService+"/state", map[string]any{"object_key": retired, "new_state": map[string]any{retirementKey: bytes}}, nil)
	retires(t, c, "the state is another", func(r retire.Retirement) bool { return r.TimerMs == 1 })
	keeper := &Keeper{Registrar: cl.registrar(), Client: cl.client, Retiring: []string{retired}, Grace: time.Second, Metrics: cl.options.Metrics, Log: cl.options.Log}
	if err := keeper.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	retires(t, c, "it goes on", func(now retire.Retirement) bool { return now.Epoch >= r.Epoch+2 && now.TimerMs > r.TimerMs })
}

// The process is killed after MySQL has renamed the table and before the rename is recorded, and the same for the drop.
// The next process finds each done.
func TestRetirementKilledBeforeItIsRecorded(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testRetirementKilledBeforeItIsRecorded)
}

func testRetirementKilledBeforeItIsRecorded(t *testing.T) {
	t.Parallel()
	cl, db, dsn, c := newRetirementCluster(t)
	if _, err := c.Start(t.Context(), retired, briefly(), operator); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		waits   retire.Phase
		approve func(context.Context, string, retire.Order) (retire.Retirement, error)
		then    retire.Phase
	}{
		{retire.Awaiting, c.ApproveRename, retire.AwaitingFinal},
		{retire.AwaitingFinal, c.ApproveDrop, retire.Dropped},
	} {
		r := retires(t, c, "a person is asked", at(tc.waits))
		before, approval := blocklistTables(t, db), shown(t, c, operator)
		cl.down()
		child, lines := startChild(t, cl.address, dsn, "stuck-retirement")
		if _, err := tc.approve(t.Context(), retired, approval); err != nil {
			t.Fatal(err)
		}
		expectLine(t, lines, childStuckTables)
		if names := blocklistTables(t, db); names == before {
			t.Errorf("%s: tables %q", r.Phase, names)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		cl.up()
		retires(t, c, "it goes on", at(tc.then))
	}
	if names := blocklistTables(t, db); names != "" {
		t.Errorf("tables %q", names)
	}
	wantAuditOf(t, db, "ann start, weir-control draining, weir-control awaiting_approval, ann approve_rename, weir-control renamed, weir-control awaiting_final_approval, ann approve_drop, weir-control dropped")
}

// shown returns an approval by an operator who has just read the status.
func shown(t *testing.T, c RetirementClient, by controlplane.By) retire.Order {
	t.Helper()
	r, err := c.Status(t.Context(), retired)
	if err != nil {
		t.Fatal(err)
	}
	return retire.Order{By: by, Evidence: r.EvidenceHash()}
}
