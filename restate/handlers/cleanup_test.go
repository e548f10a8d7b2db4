package handlers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/schema/schematest"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

const (
	expiredRows = 200
	liveRows    = 200
)

// rows returns a migrated database with 200 expired and 200 live rows.
func rows(t *testing.T) (db *sql.DB, dsn string) {
	t.Helper()
	dsn = servers.SharedSQL(t).DatabaseForTest(t)
	db = schematest.Open(t, dsn, store.Open)
	fill(t, db)
	return db, dsn
}

func fill(t *testing.T, db *sql.DB) {
	t.Helper()
	for name, expires := range map[string]int64{"expired": time.Now().Add(-time.Hour).UnixMilli(), "live": time.Now().Add(time.Hour).UnixMilli()} {
		_, err := db.ExecContext(t.Context(), `INSERT IGNORE INTO ratelimit_window_counts
			(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
			SELECT 'acme', 'api', CONCAT(?, seq), 60000, 1, 'eu', 5, ? + seq, 1 FROM `+servers.Numbers(1, 200), name, expires)
		if err != nil {
			t.Fatal(err)
		}
	}
}

// wantLiveRows checks that exactly the expired rows are deleted.
func wantLiveRows(t *testing.T, db *sql.DB, liveRows int) {
	t.Helper()
	var live, all int
	err := db.QueryRowContext(t.Context(), `SELECT COALESCE(SUM(identifier LIKE 'live%'), 0), COUNT(*) FROM ratelimit_window_counts`).Scan(&live, &all)
	if err != nil || live != liveRows || all != liveRows {
		t.Errorf("%d live rows of %d left, %v; want exactly the %d live ones", live, all, err, liveRows)
	}
}

func expiredLeft(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM ratelimit_window_counts WHERE identifier LIKE 'expired%'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// lastRun waits for the job's runs and returns the state after them.
func (c *cluster) lastRun(runs int64) State {
	c.t.Helper()
	var s State
	await.NoError(c.t, fmt.Sprintf("%d runs", runs), func() error {
		if s = c.status(CleanupJob); s.Runs < runs {
			return fmt.Errorf("%d runs", s.Runs)
		}
		return nil
	})
	return s
}

func newCleanupCluster(t *testing.T, s cleanupStore) *cluster {
	t.Helper()
	o := cleanupOptions(s)
	return newCluster(t, o, func(steps *stepper) map[string]Job {
		return map[string]Job{CleanupJob: cleanupJob(o.Cleanup, steps, o.Metrics)}
	})
}

// The whole cleanup: exactly the expired rows are deleted, and the history, the status and the audit log have the run,
// read through the operators' client.
func TestCleanup(t *testing.T) {
	t.Parallel()
	servers.EachSQL(t, testCleanup)
}

func testCleanup(t *testing.T) {
	t.Parallel()
	began := time.Now()
	db, _ := rows(t)
	c := newCleanupCluster(t, store.New(db))
	cleaner := CleanupClient{c.client}
	run, err := cleaner.RunNow(t.Context(), operator)
	if err != nil || run.Rows != expiredRows || run.Batches != expiredRows/10+1 || run.Trigger != "ann" || run.Error != "" || run.StoppedBy != "" {
		t.Errorf("%+v, %v", run, err)
	}
	if run.Lag < 59*time.Minute || run.Lag > time.Minute+time.Hour+time.Since(began) || run.Took <= 0 || run.StartedAt.Before(began.Add(-time.Second)) {
		t.Errorf("lag %v, took %v, started %v", run.Lag, run.Took, run.StartedAt)
	}
	wantLiveRows(t, db, liveRows)
	if _, err := c.client.Start(t.Context(), CleanupJob, time.Hour); err != nil {
		t.Fatal(err)
	}
	c.lastRun(2)
	status, err := cleaner.Status(t.Context())
	if err != nil || !status.Running || status.Interval != time.Hour || status.Paused != nil || status.Runs != 2 || status.Errors != 0 ||
		status.Rows != expiredRows || len(status.History) != 2 || status.History[0].Trigger != cleanup.TriggerSchedule || status.History[1] != run {
		t.Errorf("%+v, %v", status, err)
	}
	if in := time.Until(status.NextAt); in < 50*time.Minute || in > time.Hour {
		t.Errorf("next in %v", in)
	}
	if status, err = cleaner.Pause(t.Context(), operator); err != nil || status.Running || status.Paused == nil || status.Paused.By != operator || !status.NextAt.IsZero() {
		t.Errorf("paused: %+v, %v", status, err)
	}
	if status, err = cleaner.Resume(t.Context(), operator); err != nil || !status.Running || status.Paused != nil {
		t.Errorf("resumed: %+v, %v", status, err)
	}
	await.NoError(t, "three audit rows in the table", func() error {
		var n int
		err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM ratelimit_audit WHERE actor = 'ann' AND reason = 'deploy'
			AND action IN ('cleanup.run', 'cleanup.pause', 'cleanup.resume') AND after_state <> ''`).Scan(&n)
		if n != 3 {
			return errors.Join(err, fmt.Errorf("%d rows", n))
		}
		return err
	})
}

// The handlers' process is killed (kill -9) in the middle of a run: after the third batch was deleted and before
// Restate received the result. The run continues in the next process with its original cutoff, and there is one chain.
func TestCleanupSurvivesAKillOfTheHandlers(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testCleanupSurvivesAKillOfTheHandlers)
}

func testCleanupSurvivesAKillOfTheHandlers(t *testing.T) {
	t.Parallel()
	db, dsn := rows(t)
	c := newCleanupCluster(t, store.New(db))
	c.down() // the child serves at its address

	child, lines := startChild(t, c.address, dsn)
	if _, err := c.client.Start(t.Context(), CleanupJob, time.Hour); err != nil {
		t.Fatal(err)
	}
	expectLine(t, lines, childStuck)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if left := expiredLeft(t, db); left != expiredRows-10*childStuckAt {
		t.Errorf("%d expired rows left when it was killed", left)
	}
	// A row that expires while no process runs is left for the next run, because this run keeps its cutoff.
	_, err := db.ExecContext(t.Context(), `INSERT INTO ratelimit_window_counts
		(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
		VALUES ('acme', 'api', 'live until now', 60000, 1, 'eu', 5, ?, 1)`, time.Now().UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	c.up()
	s := c.lastRun(1)
	wantLiveRows(t, db, liveRows+1)
	// The last batch of the killed process is deleted, but not counted.
	if r := s.History[0]; s.Runs != 1 || r.Error != "" || r.Report.Counts[countRows] != expiredRows-10 {
		t.Errorf("after %d runs: %+v", s.Runs, r)
	}
	if ids := c.ticks(CleanupJob); s.Generation != 1 || len(ids) != 1 || ids[0] != s.NextTick {
		t.Errorf("generation %d, ticks %v, want %s alone", s.Generation, ids, s.NextTick)
	}
}

// Restate is killed (kill -9) in the middle of a run.
func TestCleanupSurvivesAKillOfRestate(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testCleanupSurvivesAKillOfRestate)
}

func testCleanupSurvivesAKillOfRestate(t *testing.T) {
	t.Parallel()
	db, _ := rows(t)
	stuck := &stuckStore{Store: store.New(db), at: childStuckAt, reached: make(chan struct{}), letGo: make(chan struct{})}
	c := newCleanupCluster(t, stuck)
	if _, err := c.client.Start(t.Context(), CleanupJob, time.Hour); err != nil {
		t.Fatal(err)
	}
	<-stuck.reached
	if err := c.restate.Kill(); err != nil {
		t.Fatal(err)
	}
	close(stuck.letGo)
	if err := c.restate.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := c.lastRun(1)
	wantLiveRows(t, db, liveRows)
	if r := s.History[0]; s.Runs != 1 || r.Error != "" || r.Report.Counts[countRows] < expiredRows-10 {
		t.Errorf("after %d runs: %+v", s.Runs, r)
	}
	if ids := c.ticks(CleanupJob); s.Generation != 1 || len(ids) != 1 || ids[0] != s.NextTick {
		t.Errorf("generation %d, ticks %v, want %s alone", s.Generation, ids, s.NextTick)
	}
}

// "Shutdown … lets running invocations complete": a build with other steps could not continue a run that is cut off
// between two steps.
func TestShutdownLetsARunEnd(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testShutdownLetsARunEnd)
}

func testShutdownLetsARunEnd(t *testing.T) {
	t.Parallel()
	db, _ := rows(t)
	stuck := &stuckStore{Store: store.New(db), at: childStuckAt, reached: make(chan struct{}), letGo: make(chan struct{})}
	c := newCleanupCluster(t, stuck)
	if _, err := c.client.Start(t.Context(), CleanupJob, time.Hour); err != nil {
		t.Fatal(err)
	}
	<-stuck.reached
	ctx, cancel := context.WithTimeout(t.Context(), 3*await.Patience)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- c.endpoint.Shutdown(ctx) }()
	if err := <-c.served; err != nil { // Serve returns when Shutdown begins
		t.Fatal(err)
	}
	close(stuck.letGo)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	if left := expiredLeft(t, db); left != 0 {
		t.Errorf("%d expired rows left when Shutdown was over", left)
	}
	c.endpoint = nil
	c.up()
	if r := c.lastRun(1).History[0]; r.Error != "" || r.Report.Counts[countRows] != expiredRows {
		t.Errorf("the run that ended in Shutdown: %+v", r)
	}
}

// "After endShare of the time …, no further step begins: each invocation finishes its present step, and the next
// process continues": nothing is deleted twice, and no attempt is cut off.
func TestShutdownHandsARunOver(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testShutdownHandsARunOver)
}

func testShutdownHandsARunOver(t *testing.T) {
	t.Parallel()
	db, _ := rows(t)
	stuck := &stuckStore{Store: store.New(db), at: childStuckAt, reached: make(chan struct{}), letGo: make(chan struct{})}
	c := newCleanupCluster(t, stuck)
	if _, err := c.client.Start(t.Context(), CleanupJob, time.Hour); err != nil {
		t.Fatal(err)
	}
	<-stuck.reached
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	c.endpoint.endShare = 0.001 // a batch that takes seconds would end the run
	drained := make(chan error, 1)
	go func() { drained <- c.endpoint.Shutdown(ctx) }()
	if err := <-c.served; err != nil { // Serve returns when Shutdown begins
		t.Fatal(err)
	}
	await.True(t, "no further step begins", c.endpoint.steps.draining.Load)
	select {
	case err := <-drained:
		t.Fatalf("Shutdown did not wait for the step: %v", err)
	default:
	}
	close(stuck.letGo)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	if left := expiredLeft(t, db); left != expiredRows-10*childStuckAt {
		t.Errorf("%d expired rows left: steps went on after Shutdown", left)
	}
	c.endpoint = nil
	c.up()
	s := c.lastRun(1)
	wantLiveRows(t, db, liveRows)
	if r := s.History[0]; r.Error != "" || r.Report.Counts[countRows] != expiredRows {
		t.Errorf("the batch before Shutdown was lost to the count: %+v", r)
	}
}
