package schema

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/shared/servers"
)

// migrateEnv makes this test binary a process that migrates the named database, because the lock is for several
// processes at once.
const migrateEnv = "WEIR_TEST_MIGRATE_DSN"

func TestMain(m *testing.M) {
	if dsn := os.Getenv(migrateEnv); dsn != "" {
		if err := migrateAsProcess(dsn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(servers.ShareSQL(m))
}

func migrateAsProcess(dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return Migrate(ctx, db, slog.New(slog.NewTextHandler(os.Stdout, nil)))
}

// emptyDatabase returns a database for this test alone.
func emptyDatabase(t *testing.T) (*sql.DB, string) {
	t.Helper()
	dsn := servers.SharedSQL(t).DatabaseForTest(t)
	return connect(t, dsn), dsn
}

func connect(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func exec(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func migrate(t *testing.T, db *sql.DB) {
	t.Helper()
	if err := Migrate(t.Context(), db, quiet); err != nil {
		t.Fatal(err)
	}
	wantVersion(t, db, Latest())
}

func wantVersion(t *testing.T, db *sql.DB, want int64) {
	t.Helper()
	got, err := Version(t.Context(), db)
	if err != nil || got != want {
		t.Fatalf("version is %d, %v; want %d", got, err, want)
	}
}

var quiet = slog.New(slog.DiscardHandler)
