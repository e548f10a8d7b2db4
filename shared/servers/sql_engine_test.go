package servers

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// "as a subtest with the engine's name": the subtest's server has that engine.
func TestEachSQLRunsOnBothEngines(t *testing.T) {
	var ran []Engine
	EachSQL(t, func(t *testing.T) {
		ran = append(ran, EngineOf(t))
		var version string
		must(t, openDB(t, SharedSQL(t).DSN("")).QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version))
		if got := strings.Contains(version, "MariaDB"); got != (EngineOf(t) == MariaDB) {
			t.Errorf("version %s", version)
		}
		t.Run("below", func(t *testing.T) {
			if e := EngineOf(t); e != ran[len(ran)-1] {
				t.Errorf("a subtest is on %s", e)
			}
		})
	})
	if !slices.Equal(ran, Engines()) {
		t.Errorf("ran on %v, want %v", ran, Engines())
	}
}

// There are no engines outside of EachSQL and TurnSQL.
func TestNoEngineOutsideOfEachSQL(t *testing.T) {
	for test, want := range map[string]Engine{"TestRows": "", "TestRows/mysqlish": "", "mysql": "", "TestRows/mysql": MySQL, "TestRows/mariadb/case": MariaDB} {
		got, err := engineOf(test)
		if got != want || (err != nil) != (want == "") || err != nil && !errors.Is(err, errNoEngine) {
			t.Errorf("%s: %q, %v; want %q", test, got, err, want)
		}
	}
}

func TestTurn(t *testing.T) {
	for which, want := range map[string][]Engine{"": {MariaDB}, "mariadb": {MariaDB}, "mysql": {MySQL}, "both": Engines(), "oracle": nil} {
		got, err := turn(which)
		if !slices.Equal(got, want) || (err != nil) != (want == nil) {
			t.Errorf("%q: %v, %v; want %v", which, got, err, want)
		}
	}
	t.Setenv("WEIR_SQL_TURN", "both")
	var ran []Engine
	TurnSQL(t, func(t *testing.T) { ran = append(ran, EngineOf(t)) })
	if !slices.Equal(ran, Engines()) {
		t.Errorf("both ran on %v", ran)
	}
}

const (
	saysMySQL   = "mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))"
	saysMariaDB = "mysqld  Ver 10.11.19-MariaDB-deb12 for Linux on x86_64"
)

// "Some distributions call MariaDB's server mysqld as well, so the version of each program is checked."
func TestAnotherEnginesProgramIsNotTaken(t *testing.T) {
	onlyPATH(t)
	bin, cache := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	fakeServer(t, filepath.Join(bin, "mysqld"), saysMariaDB)
	dir, err := cacheDirectory()
	must(t, err)
	kept := fakeServer(t, filepath.Join(dir, "mysql", "mysqld"), saysMySQL)
	if found, err := findSQL(t.Context(), MySQL); err != nil || found.program != kept {
		t.Errorf("found %+v, %v; want the one that make setup keeps", found, err)
	}
	t.Setenv("MYSQL_SERVER_BIN", filepath.Join(bin, "mysqld"))
	if _, err := findSQL(t.Context(), MySQL); err == nil || !strings.Contains(err.Error(), "is not mysql") {
		t.Errorf("MariaDB named as MySQL: %v", err)
	}
}

// "MySQL if the system has it or MYSQL_SERVER_BIN names it, else MariaDB. The programs that `make setup` stores for
// tests do not count."
func TestPreferredSQL(t *testing.T) {
	onlyPATH(t)
	bin, cache := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("HOME", cache)
	t.Setenv("MYSQL_SERVER_BIN", "")
	dir, err := cacheDirectory()
	must(t, err)
	fakeServer(t, filepath.Join(dir, "mysql", "mysqld"), saysMySQL)
	for version, want := range map[string]Engine{saysMariaDB: MariaDB, saysMySQL: MySQL} {
		fakeServer(t, filepath.Join(bin, "mysqld"), version)
		if got := PreferredSQL(t.Context()); got != want {
			t.Errorf("with %q on PATH: %s", version, got)
		}
	}
	must(t, os.Remove(filepath.Join(bin, "mysqld")))
	if got := PreferredSQL(t.Context()); got != MariaDB {
		t.Errorf("with nothing on PATH: %s", got)
	}
	t.Setenv("MYSQL_SERVER_BIN", "/anywhere")
	if got := PreferredSQL(t.Context()); got != MySQL {
		t.Errorf("with MYSQL_SERVER_BIN: %s", got)
	}
}

// sqlFinder finds an engine's program as the other servers' are found.
func sqlFinder(t *testing.T, e Engine) func() (string, error) {
	return func() (string, error) {
		found, err := findSQL(t.Context(), e)
		return found.program, err
	}
}

// onlyPATH hides the MySQL that this system may have where distributions put it. Not for parallel tests.
func onlyPATH(t *testing.T) {
	all := sqlPrograms[MySQL]
	t.Cleanup(func() { sqlPrograms[MySQL] = all })
	path := all
	path.system, path.aside = []string{"mysqld"}, nil
	sqlPrograms[MySQL] = path
}
