package schema

import (
	"database/sql"
	"testing"

	"github.com/weirhq/weir/shared/servers"
)

// A namespace whose node share is the former default has the new default after the migration, and a form or a plan that
// was made before is refused, because the time of the change is later. A namespace that is set to flush after the
// migration stays so.
func TestMigrateChangesTheDefaultNodeShare(t *testing.T) {
	servers.EachSQL(t, testMigrateChangesTheDefaultNodeShare)
}

func testMigrateChangesTheDefaultNodeShare(t *testing.T) {
	db, _ := emptyDatabase(t)
	migrate(t, db)
	for range 2 { // the second time as after a crash, before the versions were recorded
		exec(t, db, "ALTER TABLE ratelimit_namespaces ALTER COLUMN node_share SET DEFAULT 'flush'")
		exec(t, db, "DELETE FROM ratelimit_namespaces")
		exec(t, db, "INSERT INTO ratelimit_namespaces (workspace_id, namespace, updated_at) VALUES ('w', 'unset', 7)")
		exec(t, db, "INSERT INTO ratelimit_namespaces (workspace_id, namespace, node_share, updated_at) VALUES ('w', 'waits', 'wait', 7)")
		exec(t, db, "DELETE FROM "+VersionTable+" WHERE version_id >= 31")
		migrate(t, db)
		wantNodeShare(t, db, "unset", "wait", true)
		wantNodeShare(t, db, "waits", "wait", false)
		exec(t, db, "INSERT INTO ratelimit_namespaces (workspace_id, namespace, updated_at) VALUES ('w', 'new', 7)")
		wantNodeShare(t, db, "new", "wait", false)
		exec(t, db, "UPDATE ratelimit_namespaces SET node_share = 'flush' WHERE namespace = 'new'")
		migrate(t, db)
		wantNodeShare(t, db, "new", "flush", false)
	}
}

// wantNodeShare checks the node share of a namespace, and whether its time of change is later than 7.
func wantNodeShare(t *testing.T, db *sql.DB, namespace, want string, later bool) {
	t.Helper()
	var (
		share   string
		changed int64
	)
	if err := db.QueryRowContext(t.Context(), "SELECT node_share, updated_at FROM ratelimit_namespaces WHERE namespace = ?",
		namespace).Scan(&share, &changed); err != nil {
		t.Fatal(err)
	}
	if share != want || (changed > 7) != later {
		t.Errorf("%s: node share %s, changed at %d, want %s", namespace, share, changed, want)
	}
}
