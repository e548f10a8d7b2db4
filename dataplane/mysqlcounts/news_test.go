package mysqlcounts

import (
	"database/sql"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/servers"
)

const newsTable = "ratelimit_news"

func TestNewsKeepsTheContract(t *testing.T) { servers.EachSQL(t, testNewsKeepsTheContract) }

func testNewsKeepsTheContract(t *testing.T) {
	db := open(t, migrated(t))
	storetest.TestNews(t, func(t testing.TB) storetest.News {
		exec(t, db, "DELETE FROM "+newsTable)
		return storetest.News{
			News: New(db, Options{AttemptsMax: 50}).News(),
			Hold: func(t testing.TB, row store.NewsRow) (commit, rollback func()) { return holdNews(t, db, row) },
			Lose: func(t testing.TB, s store.Stream, from int64) {
				exec(t, db, "DELETE FROM "+newsTable+" WHERE region = ? AND shard = ? AND sequence >= ?", []byte(s.Region), s.Shard, from)
			},
		}
	})
}

// holdNews appends a row in a transaction that stays open.
func holdNews(t testing.TB, db *sql.DB, row store.NewsRow) (commit, rollback func()) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() }) // after the end: does nothing
	if n, err := dataplanedb.New(tx).NewsInsert(t.Context(), insertParams(row)); err != nil || n != 1 {
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
