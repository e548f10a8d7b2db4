package mysqlcounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/schema"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.ShareSQL(m)) }

// migrated returns a database of this test's own with Weir's tables.
func migrated(t testing.TB) (dsn string) {
	t.Helper()
	dsn = servers.SharedSQL(t).DatabaseForTest(t)
	migrate(t, dsn)
	return dsn
}

func migrate(t testing.TB, dsn string) {
	t.Helper()
	db := openPlain(t, dsn)
	if err := schema.Migrate(t.Context(), db, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
}

// open opens a pool as a node does.
func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return closing(t, db)
}

// openPlain opens a pool with the server's defaults.
func openPlain(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	return closing(t, db)
}

func closing(t testing.TB, db *sql.DB) *sql.DB {
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// openCounts returns a Counts on a database of this test's own.
func openCounts(t testing.TB) (*Counts, *sql.DB) {
	t.Helper()
	db := open(t, migrated(t))
	return New(db, Options{}), db
}

func exec(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// one returns the only value of a query's only row.
func one[T any](t testing.TB, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// Cells of tests are in the hour in which the tests began.
var (
	began     = time.Now()
	thisHour  = window.Sequence(began.UnixMilli(), time.Hour.Milliseconds())
	rowsTable = "ratelimit_window_counts"
)

func cell(identifier string) window.Cell {
	return window.Cell{
		Key:      window.Key{Workspace: "w", Namespace: "n", Identifier: identifier, Duration: time.Hour},
		Sequence: thisHour,
	}
}

// cells returns n sorted cells.
func cells(n int) []window.Cell {
	all := make([]window.Cell, n)
	for i := range all {
		all[i] = cell(fmt.Sprintf("user_%06d", i))
	}
	return all
}

func countsOf(count int64, cells ...window.Cell) []store.Count {
	var counts []store.Count
	for _, c := range cells {
		counts = append(counts, store.Count{Cell: c, Count: count})
	}
	slices.SortFunc(counts, func(a, b store.Count) int { return a.Cell.Compare(b.Cell) })
	return counts
}

func publish(t testing.TB, c *Counts, region string, counts ...store.Count) {
	t.Helper()
	for chunk := range slices.Chunk(counts, store.PublishRowsMax) {
		if err := c.Publish(t.Context(), region, chunk); err != nil {
			t.Fatal(err)
		}
	}
}

// seen is a region's view of a cell's components.
type seen struct{ Own, Foreign int64 }

// imported returns the counts that a region has after an import, by cell.
func imported(t testing.TB, c *Counts, region string) map[window.Cell]seen {
	t.Helper()
	got := make(map[window.Cell]seen)
	err := c.Import(t.Context(), began.UnixMilli(), func(of string, n store.Count) {
		cell := got[n.Cell]
		if of == region {
			cell.Own += n.Count
		} else {
			cell.Foreign += n.Count
		}
		got[n.Cell] = cell
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// importAll returns the number of imported components.
func importAll(t testing.TB, c *Counts) (components int) {
	t.Helper()
	if err := c.Import(t.Context(), began.UnixMilli(), func(string, store.Count) { components++ }); err != nil {
		t.Fatal(err)
	}
	return components
}

// wantTransient fails the test unless err is an error without store.ErrRefused.
func wantTransient(t testing.TB, err error) {
	t.Helper()
	if err == nil || errors.Is(err, store.ErrRefused) {
		t.Errorf("%v, want an error that is not ErrRefused", err)
	}
}

func wantRefused(t testing.TB, err error, says string) {
	t.Helper()
	if !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want ErrRefused and %q", err, says)
	}
}

// through returns the DSN of the same database behind a proxy.
func through(t testing.TB, dsn string, proxy *servers.Proxy) string {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.Addr = proxy.Addr()
	return config.FormatDSN()
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
