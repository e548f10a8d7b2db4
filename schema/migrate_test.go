package schema

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servers"
)

func TestMigrateEmptyDatabase(t *testing.T) { servers.EachSQL(t, testMigrateEmptyDatabase) }

func testMigrateEmptyDatabase(t *testing.T) {
	db, _ := emptyDatabase(t)
	wantVersion(t, db, 0)

	var log bytes.Buffer
	if err := Migrate(t.Context(), db, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	wantVersion(t, db, Latest())
	for _, m := range migrations(t) {
		if n := strings.Count(log.String(), "file="+m.name); n != 1 {
			t.Errorf("%s is logged %d times:\n%s", m.name, n, &log)
		}
	}
	var tables int
	if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM information_schema.TABLES
		WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'ratelimit\_%'`).Scan(&tables); err != nil {
		t.Fatal(err)
	}
	if want := created(t) + 1; tables != want {
		t.Errorf("%d tables, want %d and the versions'", tables, want-1)
	}
}

// Idempotent: a second run changes nothing and logs nothing.
func TestMigrateTwice(t *testing.T) { servers.EachSQL(t, testMigrateTwice) }

func testMigrateTwice(t *testing.T) {
	db, _ := emptyDatabase(t)
	migrate(t, db)
	exec(t, db, `INSERT INTO ratelimit_namespaces (workspace_id, namespace, updated_at) VALUES ('w', 'n', 1)`)

	var log bytes.Buffer
	if err := Migrate(t.Context(), db, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
		t.Fatal(err)
	}
	if log.Len() > 0 {
		t.Errorf("logged %s", &log)
	}
	wantRows(t, db, "ratelimit_namespaces", 1)
	wantRows(t, db, VersionTable, int(Latest())+1)
}

// "Any number of processes may call it at once": four, many times, because the test looks for a race.
func TestMigrateFromFourProcesses(t *testing.T) { servers.EachSQL(t, testMigrateFromFourProcesses) }

func testMigrateFromFourProcesses(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		db, dsn := emptyDatabase(t)
		applied := make([]bytes.Buffer, 4)
		var wg sync.WaitGroup
		for i := range applied {
			wg.Go(func() {
				p := osexec.CommandContext(t.Context(), self)
				p.Env = append(os.Environ(), migrateEnv+"="+dsn)
				p.Stdout, p.Stderr = &applied[i], &applied[i]
				if err := p.Run(); err != nil {
					t.Errorf("round %d, process %d: %v\n%s", round, i, err, &applied[i])
				}
			})
		}
		wg.Wait()
		wantVersion(t, db, Latest())
		var all string
		for i := range applied {
			all += applied[i].String()
		}
		if n := strings.Count(all, "migration applied"); n != int(Latest()) {
			t.Errorf("round %d: %d migrations applied, want each of %d once\n%s", round, n, Latest(), all)
		}
	}
}

// A fleet that shared verdicts before counts has ratelimit_blocklist already, with
// the collation of its day and rows in it: it is left as it is.
func TestMigrateKeepsLegacyBlocklist(t *testing.T) {
	servers.EachSQL(t, testMigrateKeepsLegacyBlocklist)
}

func testMigrateKeepsLegacyBlocklist(t *testing.T) {
	db, _ := emptyDatabase(t)
	exec(t, db, "CREATE TABLE ratelimit_blocklist ("+
		"`pk` bigint unsigned AUTO_INCREMENT NOT NULL, `workspace_id` varchar(191) NOT NULL, `namespace` varchar(255) NOT NULL, "+
		"`identifier` varchar(255) NOT NULL, `duration_ms` bigint unsigned NOT NULL, `sequence` bigint NOT NULL, `limit` bigint unsigned NOT NULL, "+
		"`expires_at` bigint unsigned NOT NULL, PRIMARY KEY (`pk`), "+
		"CONSTRAINT `unique_propagation_key` UNIQUE (`workspace_id`,`namespace`,`identifier`,`duration_ms`,`sequence`), "+
		"KEY `expires_at_idx` (`expires_at`)) DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_ci")
	exec(t, db, "INSERT INTO ratelimit_blocklist VALUES (7, 'w', 'n', 'i', 60000, 5, 10, 420000)")
	before := createStatement(t, db, "ratelimit_blocklist")

	migrate(t, db)
	if after := createStatement(t, db, "ratelimit_blocklist"); after != before {
		t.Errorf("changed from\n%s\nto\n%s", before, after)
	}
	wantRows(t, db, "ratelimit_blocklist", 1)
}

// The design that Weir grew out of has ratelimit_window_counts too, with text columns and a surrogate key: "its table
// would … accept every statement of ours, and quietly count 'Alice' and 'alice' as the same person".
func TestMigrateRefusesForeignCounts(t *testing.T) {
	servers.EachSQL(t, testMigrateRefusesForeignCounts)
}

func testMigrateRefusesForeignCounts(t *testing.T) {
	for name, columns := range map[string]string{
		"surrogate key": `pk BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, workspace_id VARCHAR(191), namespace VARCHAR(255)`,
		"text in the key": `workspace_id VARCHAR(191), namespace VARCHAR(255), identifier VARCHAR(255), duration_ms BIGINT UNSIGNED, sequence BIGINT,
			region VARCHAR(48), PRIMARY KEY (workspace_id, namespace, identifier, duration_ms, sequence, region)`,
		"no key": `workspace_id VARBINARY(191)`,
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := emptyDatabase(t)
			exec(t, db, "CREATE TABLE ratelimit_window_counts ("+columns+") DEFAULT CHARSET = utf8mb4")
			if err := Migrate(t.Context(), db, quiet); !errors.Is(err, ErrForeignTable) {
				t.Fatalf("%v, want ErrForeignTable", err)
			}
			wantVersion(t, db, 0)
			exec(t, db, "RENAME TABLE ratelimit_window_counts TO old_window_counts") // as the error advises
			migrate(t, db)
		})
	}
}

// "A database that is newer than this binary is left unchanged": the previous release may start once more while an
// upgrade is under way.
func TestMigrateLeavesNewerDatabase(t *testing.T) { servers.EachSQL(t, testMigrateLeavesNewerDatabase) }

func testMigrateLeavesNewerDatabase(t *testing.T) {
	db, _ := emptyDatabase(t)
	migrate(t, db)
	exec(t, db, "INSERT INTO "+VersionTable+" (version_id, is_applied) VALUES (?, TRUE)", Latest()+1)
	if err := Migrate(t.Context(), db, quiet); err != nil {
		t.Fatal(err)
	}
	wantVersion(t, db, Latest()+1)
}

// "ctx bounds the whole, the waiting included", and no process gets past a lock that is held for longer than the server
// waits in a call.
func TestMigrateGivesUpWaitingWithItsContext(t *testing.T) {
	servers.EachSQL(t, testMigrateGivesUpWaitingWithItsContext)
}

func testMigrateGivesUpWaitingWithItsContext(t *testing.T) {
	db, dsn := emptyDatabase(t)
	holder, err := connect(t, dsn).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	l := locker{log: quiet, tableWaitSeconds: 1}
	if err := l.SessionLock(t.Context(), holder); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), lockWait+300*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := Migrate(ctx, db, quiet); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the deadline", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("gave up after %v", took)
	}
	if err := l.SessionUnlock(t.Context(), holder); err != nil {
		t.Error(err)
	}
	if err := l.SessionUnlock(t.Context(), holder); err == nil || !strings.Contains(err.Error(), "not held") {
		t.Errorf("unlocking a lock that is not held: %v", err)
	}
	migrate(t, db)
}

// Locks belong to the whole server: two databases of a server must not wait for each other.
func TestDatabasesMigrateIndependently(t *testing.T) {
	servers.EachSQL(t, testDatabasesMigrateIndependently)
}

func testDatabasesMigrateIndependently(t *testing.T) {
	_, dsn := emptyDatabase(t)
	holder, err := connect(t, dsn).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := (locker{log: quiet, tableWaitSeconds: 1}).SessionLock(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	other, _ := emptyDatabase(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := Migrate(ctx, other, quiet); err != nil {
		t.Error(err)
	}
}

func TestMigrateNeedsADatabase(t *testing.T) { servers.EachSQL(t, testMigrateNeedsADatabase) }

func testMigrateNeedsADatabase(t *testing.T) {
	db := connect(t, servers.SharedSQL(t).DSN(""))
	if err := Migrate(t.Context(), db, quiet); err == nil || !strings.Contains(err.Error(), "No database selected") {
		t.Errorf("%v", err)
	}
	if _, err := Version(t.Context(), db); err == nil {
		t.Error("a version without a database")
	}
}

func createStatement(t *testing.T, db *sql.DB, table string) string {
	t.Helper()
	var name, statement string
	if err := db.QueryRowContext(t.Context(), "SHOW CREATE TABLE "+table).Scan(&name, &statement); err != nil {
		t.Fatal(err)
	}
	return statement
}

func wantRows(t *testing.T, db *sql.DB, table string, want int) {
	t.Helper()
	var got int
	if err := db.QueryRowContext(t.Context(), fmt.Sprintf("SELECT COUNT(*) FROM %s", table)).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("%s has %d rows, want %d", table, got, want)
	}
}
