package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/shared/servers"
)

const blocklist, dated = retire.Blocklist, retire.Blocklist + "_retired_20260102_150405"

func figures(t *testing.T, s *Store, name string) retire.TableFigures {
	t.Helper()
	f, err := s.TableFigures(t.Context(), name)
	if err != nil || f == nil {
		t.Fatalf("%s: %v, %v", name, f, err)
	}
	return *f
}

// "Deleting rows lowers it; only a write raises any of it", and each write raises some figure.
func TestTableMarkShowsEveryWrite(t *testing.T) { servers.EachSQL(t, testTableMarkShowsEveryWrite) }

func testTableMarkShowsEveryWrite(t *testing.T) {
	s, db := migrated(t)
	early, late := time.UnixMilli(2000), time.UnixMilli(3000)
	mark := figures(t, s, blocklist).Mark
	for _, step := range []struct {
		what  string
		do    func() error
		wrote bool
		rows  int64
	}{
		{"nothing", func() error { return nil }, false, 0},
		{"a new row", func() error { return block(t.Context(), db, 1, early) }, true, 1},
		{"the same row again", func() error { return block(t.Context(), db, 1, early) }, true, 1},
		{"a later end", func() error {
			_, err := db.ExecContext(t.Context(), `UPDATE ratelimit_blocklist SET expires_at = ?`, late.UnixMilli())
			return err
		}, true, 1},
		{"a delete", func() error { _, err := s.DeleteExpiredBlocklist(t.Context(), time.Now(), 10); return err }, false, 0},
		{"a row that came and went", func() error {
			if err := block(t.Context(), db, 2, early); err != nil {
				return err
			}
			_, err := s.DeleteExpiredBlocklist(t.Context(), time.Now(), 10)
			return err
		}, true, 0},
		{"a rename there", func() error { _, err := s.RenameTable(t.Context(), blocklist, blocklist, dated, 1); return err }, false, -1},
		{"and back", func() error { _, err := s.RenameTable(t.Context(), blocklist, dated, blocklist, 2); return err }, false, 0},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		name := blocklist
		if step.rows < 0 {
			name, step.rows = dated, 0
		}
		f := figures(t, s, name)
		if f.Rows != step.rows || f.Mark.Above(mark) != step.wrote {
			t.Errorf("%s: %d rows, %+v after %+v", step.what, f.Rows, f.Mark, mark)
		}
		mark = mark.Max(f.Mark)
	}
	if f, err := s.TableFigures(t.Context(), dated); f != nil || err != nil {
		t.Errorf("one that is not there: %v, %v", f, err)
	}
}

// RenameTable renames "if a table has the first name and no table has the other", and can be repeated.
func TestRenameTable(t *testing.T) { servers.EachSQL(t, testRenameTable) }

func testRenameTable(t *testing.T) {
	s, db := migrated(t)
	if err := block(t.Context(), db, 1, time.UnixMilli(5000)); err != nil {
		t.Fatal(err)
	}
	there := func(what string, from, to string, fence int64, want retire.TableNames) {
		t.Helper()
		if got, err := s.RenameTable(t.Context(), blocklist, from, to, fence); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
		}
	}
	there("there", blocklist, dated, 1, retire.TableNames{Dated: true})
	there("there again", blocklist, dated, 1, retire.TableNames{Dated: true})
	there("back", dated, blocklist, 2, retire.TableNames{Table: true})
	there("back again", dated, blocklist, 2, retire.TableNames{Table: true})
	there("there", blocklist, dated, 3, retire.TableNames{Dated: true})
	exec(t, db, "CREATE TABLE ratelimit_blocklist (a INT)")
	there("back to a name that was made anew", dated, blocklist, 4, retire.TableNames{Table: true, Dated: true})
	if n := count(t, db, "SELECT COUNT(*) FROM "+dated); n != 1 {
		t.Errorf("%d rows", n)
	}
	exec(t, db, "DROP TABLE ratelimit_blocklist, "+dated)
	there("nothing", dated, blocklist, 4, retire.TableNames{})
}

// An attempt that was given up does nothing, because a later attempt has a higher fence.
func TestStaleAttemptsDoNothing(t *testing.T) { servers.EachSQL(t, testStaleAttemptsDoNothing) }

func testStaleAttemptsDoNothing(t *testing.T) {
	s, _ := migrated(t)
	if _, err := s.RenameTable(t.Context(), blocklist, dated, blocklist, 7); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RenameTable(t.Context(), blocklist, blocklist, dated, 6); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "was replaced by") {
		t.Errorf("a late rename: %v", err)
	}
	if _, err := s.RenameTable(t.Context(), blocklist, blocklist, dated, 8); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DropTable(t.Context(), blocklist, dated, 7); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("a late drop: %v", err)
	}
	figures(t, s, dated)
}

// "If it is empty and no table has the original name."
func TestDropTable(t *testing.T) { servers.EachSQL(t, testDropTable) }

func testDropTable(t *testing.T) {
	s, db := migrated(t)
	if err := block(t.Context(), db, 1, time.UnixMilli(5000)); err != nil {
		t.Fatal(err)
	}
	drop := func(what string, want retire.TableDrop) {
		t.Helper()
		if got, err := s.DropTable(t.Context(), blocklist, dated, 2); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
		}
	}
	drop("not renamed", retire.TableDrop{TableNames: retire.TableNames{Table: true}})
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_blocklist"); n != 1 {
		t.Fatalf("%d rows", n)
	}
	if _, err := s.RenameTable(t.Context(), blocklist, blocklist, dated, 2); err != nil {
		t.Fatal(err)
	}
	drop("a row", retire.TableDrop{TableNames: retire.TableNames{Dated: true}, Rows: 1})
	exec(t, db, "DELETE FROM "+dated)
	exec(t, db, "CREATE TABLE ratelimit_blocklist (a INT)")
	drop("made anew", retire.TableDrop{TableNames: retire.TableNames{Table: true, Dated: true}})
	exec(t, db, "DROP TABLE ratelimit_blocklist")
	drop("empty", retire.TableDrop{})
	drop("again", retire.TableDrop{})
}

// No attempt reads the names of tables while a rename is under way: concurrent attempts take turns, and the server ends
// an attempt that waits too long for a statement on the table.
func TestAttemptsTakeTurns(t *testing.T) { servers.EachSQL(t, testAttemptsTakeTurns) }

func testAttemptsTakeTurns(t *testing.T) {
	s, db := migrated(t)
	var attempts sync.WaitGroup
	for i := range 6 {
		from, to := blocklist, dated
		if i%2 == 1 {
			from, to = dated, blocklist
		}
		attempts.Go(func() {
			if names, err := s.RenameTable(t.Context(), blocklist, from, to, 9); err != nil || names.Table == names.Dated {
				t.Errorf("%+v, %v", names, err)
			}
		})
	}
	attempts.Wait()

	holder, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close() }()
	if err := lockTable(t.Context(), holder, blocklist); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RenameTable(t.Context(), blocklist, blocklist, dated, 10); !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "another attempt is under way") {
		t.Errorf("%v", err)
	}
}

// An entry with an ID is stored once, however often it is written.
func TestAuditEntriesAreWrittenOnce(t *testing.T) { servers.EachSQL(t, testAuditEntriesAreWrittenOnce) }

func testAuditEntriesAreWrittenOnce(t *testing.T) {
	s, db := migrated(t)
	e := audit.Entry{By: controlplane.By{Actor: "ann", Reason: "x"}, Action: "a.b", Subject: "s"}
	for _, id := range []string{"one", "one", "two", "", ""} {
		e.ID = id
		if err := s.InsertAudit(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_audit"); n != 4 {
		t.Errorf("%d rows", n)
	}
}

func exec(t *testing.T, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}
