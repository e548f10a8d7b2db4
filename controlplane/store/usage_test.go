package store

import (
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
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

// The statements sum over regions, keep to their hours, and rank by accepted and denied cost together.
func TestUsage(t *testing.T) { servers.EachSQL(t, testUsage) }

func testUsage(t *testing.T) {
	store, db := migrated(t)
	hour := time.UnixMilli(1_700_000_000_000).Truncate(time.Hour)
	for i, at := range []time.Time{hour.Add(-time.Hour), hour, hour.Add(time.Hour), hour.Add(2 * time.Hour)} {
		insertUsage(t, db, "w", "n\xff", "eu", at, int64(1+i), 10)
		insertUsage(t, db, "w", "n\xff", "us", at, 100, 0)
		insertUsage(t, db, "v", "m", "us", at, 150, 0)
		insertUsage(t, db, "", "", "eu", at, 0, 0)
	}
	from, until := hour, hour.Add(2*time.Hour)
	reports, err := store.UsageReported(t.Context(), from, until, 10)
	if err != nil || len(reports) != 2 || !reports[0].At.Equal(hour) || reports[0].Region != "eu" {
		t.Errorf("reported %+v, %v", reports, err)
	}
	of := heartbeat.UsageOf{Workspace: "w", Namespace: "n\xff"}
	hours, err := store.UsageOf(t.Context(), of, from, until, 10)
	if err != nil || len(hours) != 4 || hours[0].UsageCost != (heartbeat.UsageCost{Accepted: 2, Denied: 10}) {
		t.Errorf("hours %+v, %v", hours, err)
	}
	for _, c := range []struct {
		workspaces []string
		region     string
		want       []int64
	}{{nil, "", []int64{300, 205, 0}}, {[]string{"w"}, "", []int64{205}}, {[]string{"w"}, "eu", []int64{5}},
		{nil, "us", []int64{300, 200}}, {[]string{"v", "w"}, "", []int64{300, 205}}} {
		top, err := store.UsageTop(t.Context(), c.workspaces, c.region, from, until, 10)
		var got []int64
		for _, s := range top {
			got = append(got, s.Sum.Accepted)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}
