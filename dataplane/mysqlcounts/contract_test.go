package mysqlcounts

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/counttest"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/servers"
)

func TestContract(t *testing.T) { servers.EachSQL(t, testContract) }

func testContract(t *testing.T) {
	db := open(t, migrated(t))
	counttest.TestCountStore(t, func(t testing.TB) counttest.Store {
		for _, table := range []string{rowsTable, "ratelimit_tuning", "ratelimit_trials", "ratelimit_nodes", "ratelimit_namespaces", "ratelimit_overrides"} {
			exec(t, db, "DELETE FROM "+table)
		}
		return operated(db)
	})
}

// operated returns a store, with the operators' changes to the same database.
func operated(db *sql.DB) counttest.Store {
	return counttest.Store{
		Counts: New(db, Options{}),
		PutTuning: func(t testing.TB, region string, version int64, document []byte) {
			exec(t, db, `INSERT INTO ratelimit_tuning (version, region, document, actor, reason, created_at) VALUES (?, ?, ?, 'a', 'r', 1)`,
				version, []byte(region), string(document))
		},
		PutTrial: func(t testing.TB, region string, over int64, row store.TrialRow) {
			exec(t, db, `INSERT INTO ratelimit_trials (number, region, document, below, over_version, ends_at, write_id)
				VALUES (?, ?, ?, ?, ?, CAST(UNIX_TIMESTAMP() * 1000 AS SIGNED) + ?, ?)`, row.Number, []byte(region),
				string(row.Document), row.Below, over, row.Left.Milliseconds(), fmt.Sprint("r/", row.Number))
		},
		PutNamespaces: func(t testing.TB, rows ...store.NamespaceRow) {
			for _, r := range rows {
				exec(t, db, `INSERT INTO ratelimit_namespaces (workspace_id, namespace, shadow, mode, outage, node_share, window_kind, estimate, updated_at)
					VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1)`, []byte(r.Workspace), []byte(r.Namespace), r.Shadow, r.Mode, r.Outage, r.NodeShare,
					r.Window, r.Estimate)
			}
		},
		PutOverrides: func(t testing.TB, rows ...store.OverrideRow) {
			for _, r := range rows {
				exec(t, db, "INSERT INTO ratelimit_overrides (workspace_id, namespace, pattern, `limit`, duration_ms, candidate, shadow, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, 1)",
					[]byte(r.Workspace), []byte(r.Namespace), []byte(r.Pattern), r.Limit, r.DurationMs, r.Candidate, r.Shadow)
			}
		},
		PutResets: func(t testing.TB, rows ...store.ResetRow) {
			for _, r := range rows {
				exec(t, db, "INSERT INTO ratelimit_resets (workspace_id, namespace, identifier, generation, set_at, expires_at) VALUES (?, ?, ?, ?, ?, ?)",
					[]byte(r.Workspace), []byte(r.Namespace), []byte(r.Identifier), r.Generation, r.AtMs, r.ExpiresAtMs)
			}
		},
		Heartbeats: func(t testing.TB) []heartbeat.Heartbeat { return beats(t, db) },
	}
}

func beats(t testing.TB, db *sql.DB) []heartbeat.Heartbeat {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT node_id, region, build, tuning_version, started_at, sent_at, health, COALESCE(top_keys, '') FROM ratelimit_nodes`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []heartbeat.Heartbeat
	for rows.Next() {
		var b heartbeat.Heartbeat
		var health []byte
		if err := rows.Scan(&b.NodeID, &b.Region, &b.Build, &b.TuningVersion, &b.StartedAtMs, &b.SentAtMs, &health, &b.Top); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(health, &b.Health); err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
