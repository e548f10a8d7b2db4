package mysqlcounts

import (
	"testing"

	"github.com/weirhq/weir/dataplane/storetest/counttest"
	"github.com/weirhq/weir/shared/servers"
)

// Nodes keep running while the next release's migrations are applied. Whatever a migration adds to any table, by the
// rules for migrations ("add first, start to use it in the same release, remove in a later one"), this build keeps its
// contract and loses nothing.
func TestContractOnTheNextSchema(t *testing.T) { servers.EachSQL(t, testContractOnTheNextSchema) }

func testContractOnTheNextSchema(t *testing.T) {
	db := open(t, migrated(t))
	tables := []string{rowsTable, "ratelimit_nodes", "ratelimit_namespaces", "ratelimit_overrides", "ratelimit_tuning"}
	for _, table := range tables {
		exec(t, db, "ALTER TABLE "+table+" ADD COLUMN later BIGINT NOT NULL DEFAULT 7, ADD COLUMN sooner VARBINARY(64) NULL FIRST")
		exec(t, db, "ALTER TABLE "+table+" ADD KEY later_idx (later)")
	}
	counttest.TestCountStore(t, func(t testing.TB) counttest.Store {
		for _, table := range tables {
			exec(t, db, "DELETE FROM "+table)
		}
		return operated(db)
	})
}
