package e2e

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// With 200 expired and 200 live rows, the cron deletes exactly the expired rows.
func TestTheCronDeletesExactlyTheExpired(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testTheCronDeletesExactlyTheExpired)
}

func testTheCronDeletesExactlyTheExpired(t *testing.T) {
	s := start(t)
	db := database(t, s)
	now := time.Now()
	insert := func(kind string, expires time.Time) {
		rows := make([]string, 200)
		var args []any
		for i := range rows {
			rows[i] = "('acme', 'api', ?, 60000, 1, 'eu', 7, ?, 1)"
			args = append(args, fmt.Sprintf("%s_%03d", kind, i), expires.UnixMilli())
		}
		if _, err := db.ExecContext(t.Context(), "INSERT INTO ratelimit_window_counts (workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at) VALUES "+strings.Join(rows, ","), args...); err != nil {
			t.Fatal(err)
		}
	}
	count := func(kind string) (n int) {
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM ratelimit_window_counts WHERE identifier LIKE ?", kind+"\\_%").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	insert("live", now.Add(time.Hour))
	insert("expired", now.Add(-2*time.Hour))
	endHour(t, db, now.Add(-time.Hour))
	took := await.True(t, "the expired rows are gone", func() bool { return count("expired") == 0 })
	t.Logf("gone after %v", took.Round(time.Millisecond))
	if got := count("live"); got != 200 {
		t.Errorf("%d of 200 live rows are left", got)
	}
}

// endHour divides the first partition at an hour that is over, as if it had been made ahead: rows that expired before
// it are in a partition of their own.
func endHour(t *testing.T, db *sql.DB, at time.Time) {
	t.Helper()
	bound := at.Truncate(time.Hour).UnixMilli()
	await.NoError(t, "the cron has made partitions ahead", func() error {
		var first string
		if err := db.QueryRowContext(t.Context(), `SELECT PARTITION_NAME FROM information_schema.PARTITIONS
			WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'ratelimit_window_counts' AND PARTITION_NAME REGEXP '^h[0-9]+$'
			ORDER BY PARTITION_ORDINAL_POSITION LIMIT 1`).Scan(&first); err != nil {
			return err
		}
		_, err := db.ExecContext(t.Context(), fmt.Sprintf("ALTER TABLE ratelimit_window_counts "+
			"REORGANIZE PARTITION %s INTO (PARTITION h%d VALUES LESS THAN (0, %d), PARTITION %s VALUES LESS THAN (0, %s))", first, bound, bound, first, first[1:]))
		return err
	})
}
