package schema

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servers"
)

// altered is the table that withAlteration alters.
const altered = "ratelimit_nodes"

// reading returns a transaction that has read from a table and stays open.
func reading(t *testing.T, db *sql.DB, table string) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if _, err := tx.ExecContext(t.Context(), "SELECT COUNT(*) FROM "+table); err != nil {
		t.Fatal(err)
	}
	return tx
}

// An ALTER behind an open read waits briefly, lets statements behind it go on, and is done when the read has ended.
func TestMigrateWaitsBrieflyForATableInUse(t *testing.T) {
	servers.EachSQL(t, testMigrateWaitsBrieflyForATableInUse)
}

func testMigrateWaitsBrieflyForATableInUse(t *testing.T) {
	db, _ := emptyDatabase(t)
	migrate(t, db)
	later := withAlteration(t)
	open := reading(t, db, altered)

	said := make(chan string, 100)
	done := make(chan error, 1)
	go func() { done <- apply(t.Context(), db, later, slog.New(lines(said))) }()
	select {
	case line := <-said:
		if !strings.Contains(line, "in use") {
			t.Fatalf("logged %s", line)
		}
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("it waits for the table as long as the server lets it")
	}
	behind, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 5 { // some of them between attempts, some behind an attempt
		if _, err := db.ExecContext(behind, "SELECT COUNT(*) FROM "+altered); err != nil {
			t.Fatalf("a read behind the migration: %v", err)
		}
	}
	if err := open.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantVersion(t, db, Latest()+1)
}

// "ErrTableBusy is wrapped by Migrate's error when a table was in use at every attempt", and the error names the places
// to look at.
func TestMigrateGivesUpOnATableInUse(t *testing.T) {
	servers.EachSQL(t, testMigrateGivesUpOnATableInUse)
}

func testMigrateGivesUpOnATableInUse(t *testing.T) {
	defer func(before patience) { busy = before }(busy)
	busy = patience{waitSeconds: 1, pause: time.Millisecond, attempts: 2}
	db, _ := emptyDatabase(t)
	migrate(t, db)
	later := withAlteration(t)
	open := reading(t, db, altered)
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := apply(bounded, db, later, quiet)
	if !errors.Is(err, ErrTableBusy) || !strings.Contains(err.Error(), "SHOW FULL PROCESSLIST") || !strings.Contains(err.Error(), "2 attempts of 1 s") {
		t.Errorf("error %v", err)
	}
	wantVersion(t, db, Latest())
	if err := errors.Join(open.Commit(), apply(t.Context(), db, later, quiet)); err != nil {
		t.Fatal(err)
	}
	wantVersion(t, db, Latest()+1)
}

// The session that migrated goes back to the pool as it came.
func TestMigrateLeavesTheSessionAsItWas(t *testing.T) {
	servers.EachSQL(t, testMigrateLeavesTheSessionAsItWas)
}

func testMigrateLeavesTheSessionAsItWas(t *testing.T) {
	db, _ := emptyDatabase(t)
	db.SetMaxOpenConns(1)
	want := lockWaitOf(t, db)
	migrate(t, db)
	if got := lockWaitOf(t, db); got != want {
		t.Errorf("lock_wait_timeout is %d, was %d", got, want)
	}
}

func lockWaitOf(t *testing.T, db *sql.DB) (seconds int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT @@SESSION.lock_wait_timeout").Scan(&seconds); err != nil {
		t.Fatal(err)
	}
	return seconds
}

// lines is a log's handler that passes each line on, while there is room.
type lines chan<- string

func (l lines) Enabled(context.Context, slog.Level) bool { return true }

func (l lines) Handle(_ context.Context, r slog.Record) error {
	select {
	case l <- fmt.Sprint(r.Message):
	default:
	}
	return nil
}

func (l lines) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l lines) WithGroup(string) slog.Handler { return l }
