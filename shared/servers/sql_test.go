package servers

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// openDB opens a data source; the pool is closed before the server stops.
func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func mustExec(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func count(t *testing.T, dsn, query string) (n int) {
	t.Helper()
	must(t, openDB(t, dsn).QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

// "Everything that was committed survives Kill and Restart."
func TestSQLRowSurvivesKill(t *testing.T) {
	t.Parallel()
	EachSQL(t, testSQLRowSurvivesKill)
}

func testSQLRowSurvivesKill(t *testing.T) {
	t.Parallel()
	m := SQLForTest(t)
	must(t, m.CreateDatabase(t.Context(), "weir"))
	must(t, m.CreateDatabase(t.Context(), "weir")) // there already: fine
	dsn, addr, pid := m.DSN("weir"), m.Addr(), m.PID()
	db := openDB(t, dsn)
	mustExec(t, db, "CREATE TABLE r (n INT PRIMARY KEY)")
	mustExec(t, db, "INSERT INTO r VALUES (7)")

	must(t, m.Kill())
	must(t, m.Kill()) // dead already: nothing to do
	mustRefuse(t, addr)
	must(t, m.Restart(t.Context()))

	if m.Addr() != addr || m.DSN("weir") != dsn {
		t.Errorf("restarted on %s, was on %s", m.Addr(), addr)
	}
	if m.PID() == pid {
		t.Errorf("process %d is still the one that was killed", pid)
	}
	if n := count(t, dsn, "SELECT n FROM r"); n != 7 {
		t.Errorf("after kill and restart the row holds %d, want 7", n)
	}

	must(t, m.Stop())
	must(t, m.Stop()) // a second Stop does nothing
	mustRefuse(t, addr)
	mustBeGone(t, m.Dir())
	if err := m.Restart(t.Context()); err == nil {
		t.Error("a stopped server restarted")
	}
}

// "Dir keeps the server's data: created when missing, reused when it holds some, never removed."
func TestSQLKeepsGivenDirectory(t *testing.T) {
	t.Parallel()
	EachSQL(t, testSQLKeepsGivenDirectory)
}

func testSQLKeepsGivenDirectory(t *testing.T) {
	t.Parallel()
	// Deep, because a unix socket's path is limited to 107 bytes and a data directory's is not.
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 25))
	first, err := StartSQL(t.Context(), EngineOf(t), Options{Dir: dir})
	must(t, err)
	must(t, first.CreateDatabase(t.Context(), "kept"))
	mustExec(t, openDB(t, first.DSN("kept")), "CREATE TABLE r (n INT PRIMARY KEY)")
	must(t, first.Stop())

	second, err := StartSQL(t.Context(), EngineOf(t), Options{Dir: dir, Port: first.port.number})
	must(t, err)
	defer func() { must(t, second.Stop()) }()
	if second.Addr() != first.Addr() {
		t.Errorf("asked for port %d, got %s", first.port.number, second.Addr())
	}
	if n := count(t, second.DSN("kept"), "SELECT count(*) FROM r"); n != 0 {
		t.Errorf("a new table holds %d rows", n)
	}
}

func TestSQLDSN(t *testing.T) {
	t.Parallel()
	EachSQL(t, testSQLDSN)
}

func testSQLDSN(t *testing.T) {
	t.Parallel()
	m := SharedSQL(t)
	config, err := mysql.ParseDSN(m.DSN("weir"))
	must(t, err)
	if config.User != "root" || config.Passwd != "" || config.Net != "tcp" || config.Addr != m.Addr() || config.DBName != "weir" {
		t.Errorf("DSN %s", m.DSN("weir"))
	}
	if config.ParseTime || !config.InterpolateParams {
		t.Errorf("DSN %s: want times as bytes and arguments within the statement", m.DSN("weir"))
	}
	// Settings that the product's tables rely on, and that differ from MariaDB's defaults.
	for variable, want := range map[string]string{"character_set_server": "utf8mb4", "collation_server": "utf8mb4_bin", "log_bin": "0"} {
		var got string
		must(t, openDB(t, m.DSN("")).QueryRowContext(t.Context(), "SELECT @@"+variable).Scan(&got))
		if got != want {
			t.Errorf("%s is %s, want %s", variable, got, want)
		}
	}
}

// "makes an empty database for a test … It is dropped when the test ends."
func TestDatabaseForTest(t *testing.T) {
	t.Parallel()
	EachSQL(t, testDatabaseForTest)
}

func testDatabaseForTest(t *testing.T) {
	t.Parallel()
	m := SharedSQL(t)
	mine := m.DatabaseForTest(t)
	mustExec(t, openDB(t, mine), "CREATE TABLE r (n INT)")
	var theirs string
	t.Run("Ünusual name: with `quotes` and more than sixty-four characters, all told", func(t *testing.T) {
		theirs = m.DatabaseForTest(t)
		mustExec(t, openDB(t, theirs), "CREATE TABLE r (n INT)") // no clash with the other database's
	})
	if mine == theirs {
		t.Errorf("two tests got the same database %s", mine)
	}
	config, err := mysql.ParseDSN(theirs)
	must(t, err)
	n := count(t, m.DSN(""), "SELECT count(*) FROM information_schema.schemata WHERE schema_name = '"+config.DBName+"'")
	if n != 0 {
		t.Errorf("database %s outlived its test", config.DBName)
	}
}

// "whichever process needs it first makes it, the others wait": file locks belong to open files, so goroutines race as
// processes do.
func TestTemplateIsMadeOnce(t *testing.T) { EachSQL(t, testTemplateIsMadeOnce) }

func testTemplateIsMadeOnce(t *testing.T) {
	e, err := findSQL(t.Context(), EngineOf(t)) // which may be in the cache
	must(t, err)
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache) // Linux
	t.Setenv("HOME", cache)           // macOS
	var all sync.WaitGroup
	var paths [4]string
	var errs [4]error
	for i := range paths {
		all.Go(func() { paths[i], errs[i] = e.template(t.Context()) })
	}
	all.Wait()
	for i := range paths {
		must(t, errs[i])
		if paths[i] != paths[0] {
			t.Errorf("templates %s and %s", paths[0], paths[i])
		}
	}
	entries, err := filepath.Glob(filepath.Join(filepath.Dir(paths[0]), "*"))
	must(t, err)
	if len(entries) != 2 { // the template and its lock
		t.Errorf("the cache holds %v", entries)
	}
	if !strings.HasPrefix(paths[0], cache) {
		t.Errorf("template %s is outside of the cache %s", paths[0], cache)
	}
}

// "the whole numbers from first to last"
func TestNumbers(t *testing.T) {
	t.Parallel()
	EachSQL(t, testNumbers)
}

func testNumbers(t *testing.T) {
	t.Parallel()
	dsn := SharedSQL(t).DSN("")
	for _, c := range []struct{ first, last int }{{1, 1}, {1, 2}, {0, 9}, {1, 10}, {1, 11}, {0, 100}, {50_000, 99_999}} {
		query := "SELECT COUNT(DISTINCT seq) + 1000000 * (MIN(seq) = %d AND MAX(seq) = %d AND COUNT(*) = COUNT(DISTINCT seq)) FROM " + Numbers(c.first, c.last)
		if got, want := count(t, dsn, fmt.Sprintf(query, c.first, c.last)), 1_000_000+c.last-c.first+1; got != want {
			t.Errorf("%d to %d: %d, want %d", c.first, c.last, got, want)
		}
	}
}
