package store

import (
	"context"
	"database/sql"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servers"
)

// block writes a verdict as the former design did, or extends an existing verdict.
func block(ctx context.Context, db *sql.DB, i int, expires time.Time) error {
	_, err := db.ExecContext(ctx, "INSERT INTO ratelimit_blocklist (workspace_id, namespace, identifier, duration_ms, sequence, `limit`, expires_at) "+
		"VALUES ('acme', 'api', ?, 60000, 7, 10, ?) ON DUPLICATE KEY UPDATE expires_at = GREATEST(expires_at, VALUES(expires_at))", i, expires.UnixMilli())
	return err
}

// Only rows that have expired are deleted, in bounded batches.
func TestDeleteExpiredBlocklist(t *testing.T) { servers.EachSQL(t, testDeleteExpiredBlocklist) }

func testDeleteExpiredBlocklist(t *testing.T) {
	store, db := migrated(t)
	now := time.UnixMilli(1_700_000_000_000)
	for i := range 21 {
		expires := now.Add(time.Minute)
		if i%2 == 0 {
			expires = now.Add(-time.Duration(i) * time.Second) // 0: expires now
		}
		if err := block(t.Context(), db, i, expires); err != nil {
			t.Fatal(err)
		}
	}
	var batches []int64
	for {
		n, err := store.DeleteExpiredBlocklist(t.Context(), now, 4)
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, n)
		if n < 4 {
			break
		}
	}
	if !slices.Equal(batches, []int64{4, 4, 2}) {
		t.Errorf("batches of %v", batches)
	}
	if n := count(t, db, `SELECT COUNT(*) FROM ratelimit_blocklist WHERE expires_at >= ?`, now.UnixMilli()); n != 11 {
		t.Errorf("%d rows left that had not expired before now", n)
	}
}
