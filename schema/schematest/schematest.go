// Package schematest opens databases with Weir's tables for tests.
//
// When not to use it: outside of tests.
package schematest

import (
	"database/sql"
	"log/slog"
	"testing"

	"github.com/weirhq/weir/schema"
)

// Open opens a test's database with a function such as mysqlcounts.Open, makes the tables, and closes the pool when the
// test ends.
func Open(t testing.TB, dsn string, open func(dsn string) (*sql.DB, error)) *sql.DB {
	t.Helper()
	db, err := open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := schema.Migrate(t.Context(), db, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return db
}
