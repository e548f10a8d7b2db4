package store

import (
	"database/sql"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servers"
)

func insertUsage(t *testing.T, db *sql.DB, workspace, namespace, region string, at time.Time, accepted, denied int64) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `INSERT INTO ratelimit_usage
		(workspace_id, namespace, hour_at, region, accepted, denied) VALUES (?, ?, ?, ?, ?, ?)`,
		[]byte(workspace), []byte(namespace), at.UnixMilli(), []byte(region), accepted, denied)
	if err != nil {
		t.Fatal(err)
	}
}

// The oldest hours go first, in bounded statements, and no row at the cutoff or after it.
func TestDeleteOldUsage(t *testing.T) { servers.EachSQL(t, testDeleteOldUsage) }

func testDeleteOldUsage(t *testing.T) {
	store, db := migrated(t)
	cutoff := time.UnixMilli(1_700_000_000_000)
	for _, at := range []time.Time{cutoff.Add(-2 * time.Hour), cutoff.Add(-time.Hour), cutoff} {
		insertUsage(t, db, "w", "n", "eu", at, 1, 1)
		if _, err := db.ExecContext(t.Context(), `INSERT INTO ratelimit_usage_reports
			(node_id, started_at, number, seen_at, totals) VALUES ('node', ?, 1, ?, '')`, at.UnixMilli(), at.UnixMilli()); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int64{1, 1, 0} {
		if n, err := store.DeleteOldUsage(t.Context(), cutoff, 1); err != nil || n != want {
			t.Errorf("deleted %d rows of usage, %v; want %d", n, err, want)
		}
		if n, err := store.DeleteOldUsageReports(t.Context(), cutoff, 1); err != nil || n != want {
			t.Errorf("deleted %d totals, %v; want %d", n, err, want)
		}
	}
}
