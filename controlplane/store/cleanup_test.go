package store

import (
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/shared/servers"
)

// Of 200 expired and 200 live rows, cleanup deletes exactly the expired rows, with expires_at < cutoff, in bounded
// batches. It can be repeated safely, and continues on the next tick.
func TestCleanupOnRealRows(t *testing.T) { servers.EachSQL(t, testCleanupOnRealRows) }

func testCleanupOnRealRows(t *testing.T) {
	store, db := migrated(t)
	now, err := store.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var expired, live []time.Time
	for i := range 200 {
		expired = append(expired, now.Add(-time.Hour-time.Duration(i)*time.Minute))
		live = append(live, now.Add(time.Duration(i)*time.Minute)) // the grace period keeps the first
	}
	insertCounts(t, db, "expired", expired)
	insertCounts(t, db, "live", live)
	config := cleanup.DefaultConfig()
	config.Limits.BatchRowsMax, config.Limits.BatchesMax = 50, 3
	cleaner, err := cleanup.New(config, store, cleanup.NewMetrics())
	if err != nil {
		t.Fatal(err)
	}

	first, err := cleaner.Run(controlplane.Once(t.Context()))
	if err != nil || first.Rows != 150 || first.Batches != 3 || first.StoppedBy != cleanup.StoppedByBatches {
		t.Errorf("first run %+v, %v", first, err)
	}
	if want := 199*time.Minute + time.Hour - config.Grace; first.Lag < want || first.Lag > want+time.Minute {
		t.Errorf("lag %v, want %v and a little", first.Lag, want)
	}
	if n := count(t, db, `SELECT COUNT(*) FROM ratelimit_window_counts WHERE identifier LIKE 'expired%' AND expires_at < ?`, now.Add(-110*time.Minute).UnixMilli()); n != 0 {
		t.Errorf("%d of the older rows left while younger ones went", n)
	}
	second, err := cleaner.Run(controlplane.Once(t.Context()))
	if err != nil || second.Rows != 50 || second.StoppedBy != cleanup.StoppedByNothing {
		t.Errorf("second run %+v, %v", second, err)
	}
	if n := count(t, db, `SELECT COUNT(*) FROM ratelimit_window_counts WHERE identifier LIKE 'live%'`); n != 200 {
		t.Errorf("%d of 200 live rows left", n)
	}
	if n := count(t, db, `SELECT COUNT(*) FROM ratelimit_window_counts`); n != 200 {
		t.Errorf("%d rows left, want the 200 live ones", n)
	}
	if lag, err := cleaner.Lag(t.Context()); err != nil || lag != 0 {
		t.Errorf("lag afterwards %v, %v", lag, err)
	}
}

// The cutoff is exact to the millisecond, and a repeated batch deletes nothing.
func TestDeleteExpiredIsStrictBoundedAndRepeatable(t *testing.T) {
	servers.EachSQL(t, testDeleteExpiredIsStrictBoundedAndRepeatable)
}

func testDeleteExpiredIsStrictBoundedAndRepeatable(t *testing.T) {
	store, db := migrated(t)
	cutoff := time.UnixMilli(1_700_000_000_000)
	insertCounts(t, db, "r", []time.Time{cutoff.Add(-2 * time.Millisecond), cutoff.Add(-time.Millisecond), cutoff, cutoff.Add(time.Millisecond)})
	for _, want := range []int64{1, 1, 0, 0} {
		if n, err := store.DeleteExpired(t.Context(), cutoff, 1); err != nil || n != want {
			t.Fatalf("deleted %d, %v; want %d", n, err, want)
		}
	}
	if at, ok, err := store.OldestExpiry(t.Context()); err != nil || !ok || !at.Equal(cutoff) {
		t.Errorf("oldest %v %v %v; want the row at the cutoff", at, ok, err)
	}
}

// Deletes lock no gaps: while a batch is not committed, a node can store rows just before, between and after the
// deleted rows.
func TestDeleteExpiredDoesNotBlockAFlush(t *testing.T) {
	servers.EachSQL(t, testDeleteExpiredDoesNotBlockAFlush)
}

func testDeleteExpiredDoesNotBlockAFlush(t *testing.T) {
	store, db := migrated(t)
	cutoff := time.UnixMilli(1_700_000_000_000)
	insertCounts(t, db, "expired", []time.Time{cutoff.Add(-time.Second), cutoff.Add(-time.Minute)})
	insertCounts(t, db, "live", []time.Time{cutoff.Add(time.Hour)})

	deleted, release := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := store.briefly(t.Context(), func(q *queries) (int64, error) {
			n, err := deleteExpired(t.Context(), q, cutoff, 10)
			close(deleted)
			<-release
			return n, err
		})
		done <- err
	}()
	<-deleted
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(t.Context(), "SET innodb_lock_wait_timeout = 1"); err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Time{cutoff.Add(-30 * time.Second), cutoff.Add(time.Millisecond), cutoff.Add(2 * time.Hour)} {
		_, err := conn.ExecContext(t.Context(), `INSERT INTO ratelimit_window_counts
			(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
			VALUES ('acme', 'api', 'flushed', 60000, ?, 'eu', 5, ?, 1)`, at.UnixMilli(), at.UnixMilli())
		if err != nil {
			t.Errorf("a row that expires %v after the cutoff: %v", at.Sub(cutoff), err)
		}
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestDeleteDeadNodes(t *testing.T) { servers.EachSQL(t, testDeleteDeadNodes) }

func testDeleteDeadNodes(t *testing.T) {
	store, db := migrated(t)
	for id, seen := range map[string]int64{"dead1": 1000, "dead2": 1999, "edge": 2000, "alive": 3000} {
		insertNode(t, db, id, "eu", 0, seen, "{}")
	}
	for _, want := range []int64{1, 1, 0} {
		if n, err := store.DeleteDeadNodes(t.Context(), time.UnixMilli(2000), 1); err != nil || n != want {
			t.Fatalf("deleted %d, %v; want %d", n, err, want)
		}
	}
	fleet, err := fleet.List(t.Context(), store, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, n := range fleet.Nodes {
		left = append(left, n.NodeID)
	}
	if !slices.Equal(left, []string{"alive", "edge"}) {
		t.Errorf("left %v", left)
	}
}

func TestOldestExpiryOfAnEmptyTable(t *testing.T) { servers.EachSQL(t, testOldestExpiryOfAnEmptyTable) }

func testOldestExpiryOfAnEmptyTable(t *testing.T) {
	store, _ := migrated(t)
	if at, ok, err := store.OldestExpiry(t.Context()); ok || err != nil {
		t.Errorf("%v %v %v", at, ok, err)
	}
}
