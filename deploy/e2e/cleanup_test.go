package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// 200 expired and 200 live rows → the cron deletes exactly the expired ones.
func TestTheCronDeletesExactlyTheExpired(t *testing.T) {
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
	insert("expired", now.Add(-time.Hour))
	took := await.True(t, "the expired rows are gone", func() bool { return count("expired") == 0 })
	t.Logf("gone after %v", took.Round(time.Millisecond))
	if got := count("live"); got != 200 {
		t.Errorf("%d of 200 live rows are left", got)
	}
}
