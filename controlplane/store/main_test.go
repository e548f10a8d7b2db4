package store

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/schema/schematest"
	"github.com/weirhq/weir/shared/servers"
)

func TestMain(m *testing.M) { servers.SQLMain(m) }

// migrated returns a store on an empty, migrated database of a real MariaDB.
func migrated(t *testing.T) (*Store, *sql.DB) {
	t.Helper()
	db := schematest.Open(t, servers.SharedSQL(t).DatabaseForTest(t), Open)
	return New(db), db
}

// insertCounts adds rows that expire at the given times; identifiers start with name.
func insertCounts(t *testing.T, db *sql.DB, name string, expiries []time.Time) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, at := range expiries {
		_, err := tx.ExecContext(t.Context(), `INSERT INTO ratelimit_window_counts
			(workspace_id, namespace, identifier, duration_ms, sequence, region, count, expires_at, updated_at)
			VALUES ('acme', 'api', ?, 60000, 1, 'eu', 5, ?, 1)`, fmt.Sprintf("%s%d", name, i), at.UnixMilli())
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func count(t *testing.T, db *sql.DB, query string, args ...any) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func insertNode(t *testing.T, db *sql.DB, id, region string, sentMs, seenMs int64, health string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `INSERT INTO ratelimit_nodes
		(node_id, region, build, tuning_version, started_at, sent_at, seen_at, health) VALUES (?, ?, 'v1', 7, 500, ?, ?, ?)`,
		id, region, sentMs, seenMs, health)
	if err != nil {
		t.Fatal(err)
	}
}
