package mysqlcounts

import (
	"database/sql"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/counttest"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/servers"
)

const feedTable = "ratelimit_changes"

func TestFeedKeepsTheContract(t *testing.T) { servers.EachSQL(t, testFeedKeepsTheContract) }

// Feed keeps the contract at both isolation levels that the control plane's doctor accepts. REPEATABLE READ locks the
// rows that an append has examined, but READ COMMITTED does not.
func testFeedKeepsTheContract(t *testing.T) {
	for _, level := range []string{"REPEATABLE-READ", "READ-COMMITTED"} {
		t.Run(level, func(t *testing.T) { testFeedAt(t, isolated(t, migrated(t), level)) })
	}
}

// isolated returns a pool that Open did not open, whose sessions have the given isolation level.
func isolated(t testing.TB, dsn, level string) *sql.DB {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	variable := "transaction_isolation"
	if servers.EngineOf(t) == servers.MariaDB {
		variable = "tx_isolation"
	}
	config.Params, config.InterpolateParams = map[string]string{variable: "'" + level + "'"}, true
	db := openPlain(t, config.FormatDSN())
	if got := one[string](t, db, "SELECT @@SESSION."+variable); got != level {
		t.Fatalf("the level is %s", got)
	}
	return db
}

func testFeedAt(t *testing.T, db *sql.DB) {
	counttest.TestFeed(t, func(t testing.TB) counttest.Feed {
		exec(t, db, "DELETE FROM "+feedTable)
		return counttest.Feed{
			Feed: New(db, Options{AttemptsMax: 50}).Feed(),
			Hold: func(t testing.TB, row store.FeedRow) (commit, rollback func()) { return holdFeed(t, db, row) },
			Lose: func(t testing.TB, s store.Stream, from int64) {
				exec(t, db, "DELETE FROM "+feedTable+" WHERE region = ? AND shard = ? AND sequence >= ?",
					[]byte(s.Region), s.Shard, from)
			},
		}
	})
}

// holdFeed appends a row in a transaction that stays open.
func holdFeed(t testing.TB, db *sql.DB, row store.FeedRow) (commit, rollback func()) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() }) // does nothing after the transaction has ended
	if n, err := dataplanedb.New(tx).FeedInsert(t.Context(), insertParams(row)); err != nil || n != 1 {
		t.Fatalf("hold row %d: %d stored, %v", row.Sequence, n, err)
	}
	end := func(f func() error) func() {
		return func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		}
	}
	return end(tx.Commit), end(tx.Rollback)
}

// A read of the change feed also returns the settings' version, which each change of the settings raises.
func TestFeedHasTheVersionOfTheSettings(t *testing.T) {
	servers.EachSQL(t, testFeedHasTheVersionOfTheSettings)
}

func testFeedHasTheVersionOfTheSettings(t *testing.T) {
	c, db := openCounts(t)
	version := func() int64 {
		t.Helper()
		page, err := c.Feed().Read(t.Context(), store.FeedQuery{Region: "eu", MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return page.Settings
	}
	before := version()
	if before == 0 || version() != before {
		t.Errorf("of settings that were never changed it is %d, then %d", before, version())
	}
	for range 3 {
		exec(t, db, controlplanedb.SettingsChanged)
		if now := version(); now <= before {
			t.Errorf("after a change it is %d, and was %d", now, before)
		} else {
			before = now
		}
	}
}
