package store

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/schema"
	"github.com/weirhq/weir/shared/servers"
)

var build = SchemaCheck{Version: schema.Version, Latest: schema.Latest()}

// examined returns the checks by name.
func examined(t *testing.T, dsn string, s SchemaCheck) map[string]watch.Check {
	t.Helper()
	db, err := Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	checks := map[string]watch.Check{}
	for _, c := range New(db).Examine(s)(t.Context()) {
		if _, twice := checks[c.Name]; twice || (c.Do == "") != (c.Result == watch.CheckOK) {
			t.Errorf("%+v", c)
		}
		checks[c.Name] = c
	}
	return checks
}

func wantCheck(t *testing.T, checks map[string]watch.Check, name string, result watch.CheckResult, says string) {
	t.Helper()
	if c := checks[name]; c.Result != result || !strings.Contains(c.What+" "+c.Do, says) {
		t.Errorf("%s is %+v, want %s, saying %q", name, c, result, says)
	}
}

// Ready returns nil if the tables have this build's version or a newer version, and otherwise an error with advice.
func TestReady(t *testing.T) { servers.EachSQL(t, testReady) }

func testReady(t *testing.T) {
	server := servers.SQLForTest(t)
	server.CreateForTest(t, "weir")
	db, err := Open(server.DSN("weir"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	want := func(says string, latest int64) {
		t.Helper()
		err := New(db).Ready(t.Context(), SchemaCheck{Version: schema.Version, Latest: latest})
		if says == "" && err != nil || says != "" && (!errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), says)) {
			t.Errorf("build %d: %v, want %q", latest, err, says)
		}
	}
	latest := schema.Latest()
	want("have version 0, this build needs", latest)
	if err := schema.Migrate(t.Context(), db, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	want("", latest)
	want("", latest-1)
	want("needs", latest+1)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	want("MySQL does not answer", latest)
}

// Provokes each fault on a real server, with users that have exactly the grants of schema/README.md, fewer, or more.
func TestExamine(t *testing.T) { servers.EachSQL(t, testExamine) }

func testExamine(t *testing.T) {
	server := servers.SQLForTest(t)
	server.CreateForTest(t, "weir")
	rootDSN := server.DSN("weir")
	root, err := Open(rootDSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	wantCheck(t, examined(t, rootDSN, build), "schema", watch.CheckFail, "version 0")
	if err := schema.Migrate(t.Context(), root, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for _, statement := range readmeGrants(t) {
		exec(t, root, statement)
	}
	dsn := strings.Replace(rootDSN, "root@", "weir_control:change me@", 1)
	for name, c := range examined(t, dsn, build) {
		if c.Result != watch.CheckOK {
			t.Errorf("with the README's grants: %s %+v", name, c)
		}
	}
	older, newer := build, build
	older.Latest--
	newer.Latest++
	wantCheck(t, examined(t, dsn, older), "schema", watch.CheckWarn, "upgrade this weir-control")
	wantCheck(t, examined(t, dsn, newer), "schema", watch.CheckFail, "migrate")

	exec(t, root, `REVOKE EXECUTE ON PROCEDURE weir.ratelimit_add_partitions FROM 'weir_control'@'%'`)
	wantCheck(t, examined(t, dsn, build), "partitions", watch.CheckWarn, "Grant EXECUTE")
	exec(t, root, `GRANT EXECUTE ON PROCEDURE weir.ratelimit_add_partitions TO 'weir_control'@'%'`)
	exec(t, root, `REVOKE DELETE ON weir.ratelimit_window_counts FROM 'weir_control'@'%'`)
	wantCheck(t, examined(t, dsn, build), "grants", watch.CheckFail, "GRANT DELETE ON weir.ratelimit_window_counts TO")
	exec(t, root, `GRANT SELECT, DELETE, UPDATE ON weir.ratelimit_window_counts TO 'weir_control'@'%'`)
	wantCheck(t, examined(t, dsn, build), "grants, too many", watch.CheckWarn, "ratelimit_window_counts UPDATE")
	exec(t, root, `GRANT DROP ON weir.* TO 'weir_control'@'%'`)
	wantCheck(t, examined(t, dsn, build), "grants, too many", watch.CheckWarn, "DROP")
	migrates := build
	migrates.Migrates = true
	wantCheck(t, examined(t, dsn, migrates), "grants, too many", watch.CheckOK, "it migrates")
	wantCheck(t, examined(t, rootDSN, build), "grants, too many", watch.CheckWarn, "on every database")

	exec(t, root, `SET GLOBAL sql_mode = ''`)
	exec(t, root, `SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE`)
	exec(t, root, `SET GLOBAL read_only = ON`)
	exec(t, root, `SET GLOBAL max_allowed_packet = 1048576`)
	faulty := examined(t, dsn, build)
	wantCheck(t, faulty, "sql_mode", watch.CheckOK, "STRICT_ALL_TABLES") // each session sets it
	wantCheck(t, faulty, "isolation", watch.CheckOK, "REPEATABLE-READ")
	wantCheck(t, faulty, "read_only", watch.CheckFail, "primary")
	wantCheck(t, faulty, "autocommit", watch.CheckOK, "ON")
	wantCheck(t, faulty, "max_allowed_packet", watch.CheckFail, "at least 4194304")

	wantCheck(t, examined(t, strings.Replace(dsn, "change me", "wrong", 1), build), "reachable", watch.CheckFail, "WEIR_MYSQL_DSN")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	down := examined(t, dsn, build)
	wantCheck(t, down, "reachable", watch.CheckFail, "Start MySQL")
	if len(down) != 1 {
		t.Errorf("%+v", down)
	}
}

// readmeGrants returns the statements for the control plane's user.
func readmeGrants(t *testing.T) (statements []string) {
	t.Helper()
	text, err := os.ReadFile("../../schema/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for statement := range strings.SplitSeq(block[1], ";\n") {
			if strings.Contains(statement, "'weir_control'") {
				statements = append(statements, strings.TrimSpace(statement))
			}
		}
	}
	return statements
}

// A server version that cannot be parsed is a warning; a schema version that cannot be read is a failure.
func TestExamineVersions(t *testing.T) { servers.EachSQL(t, testExamineVersions) }

func testExamineVersions(t *testing.T) {
	for text, want := range map[string]watch.CheckResult{
		"8.0.19": watch.CheckOK, "8.0.36-0ubuntu0.22.04.1": watch.CheckOK, "8.4.0": watch.CheckOK, "8.0.11-TiDB-v8.1.0": watch.CheckOK,
		"5.7.44-log": watch.CheckFail, "8.0.18": watch.CheckFail,
		"10.11.19-MariaDB-deb12": watch.CheckOK, "10.6.0-MariaDB": watch.CheckOK, "10.5.29-MariaDB": watch.CheckFail,
		"": watch.CheckWarn, "8": watch.CheckWarn, "8.x.1": watch.CheckWarn,
	} {
		if c := versionCheck(text); c.Result != want {
			t.Errorf("%q: %+v, want %s", text, c, want)
		}
	}
	broken := build
	broken.Version = func(context.Context, *sql.DB) (int64, error) { return 0, errors.New("denied") }
	wantCheck(t, examined(t, servers.SharedSQL(t).DatabaseForTest(t), broken), "schema", watch.CheckFail, "denied")
}

// Every variable that makes a server read-only fails the check, and a variable that is not shown is a warning.
func TestExamineVariablesOfAReader(t *testing.T) {
	right := map[string]string{"sql_mode": "STRICT_ALL_TABLES", "autocommit": "ON", "transaction_isolation": "READ-COMMITTED",
		"read_only": "OFF", "innodb_read_only": "OFF", "transaction_read_only": "0", "time_zone": "+00:00", "max_allowed_packet": "67108864"}
	check := func(name, value string) map[string]watch.Check {
		values, byName := maps.Clone(right), map[string]watch.Check{}
		values[name] = value
		if value == "" {
			delete(values, name)
		}
		for _, c := range variableChecks(values) {
			byName[c.Name] = c
		}
		return byName
	}
	for name, c := range check("read_only", "OFF") {
		if c.Result != watch.CheckOK {
			t.Errorf("%s: %+v", name, c)
		}
	}
	for name, value := range map[string]string{"read_only": "ON", "innodb_read_only": "ON", "transaction_read_only": "ON", "tx_read_only": "1"} {
		wantCheck(t, check(name, value), name, watch.CheckFail, "primary")
	}
	for _, name := range []string{"sql_mode", "autocommit", "read_only", "time_zone", "max_allowed_packet"} {
		wantCheck(t, check(name, ""), name, watch.CheckWarn, "not checked")
	}
	wantCheck(t, check("transaction_isolation", ""), "isolation", watch.CheckWarn, "not checked")
}

func TestClockCheck(t *testing.T) {
	for _, tc := range []struct {
		skew, took time.Duration
		want       watch.CheckResult
	}{
		{0, 0, watch.CheckOK}, {-900 * time.Millisecond, 0, watch.CheckOK}, {-time.Second, 0, watch.CheckWarn},
		{time.Second, time.Second, watch.CheckOK}, {10 * time.Second, 0, watch.CheckFail},
	} {
		if c := clockCheck(tc.skew, tc.took); c.Result != tc.want {
			t.Errorf("%v within %v: %+v, want %s", tc.skew, tc.took, c, tc.want)
		}
	}
}

// Any server version gets a check that contains the version, and never a panic.
func FuzzReadVersion(f *testing.F) {
	for _, seed := range []string{"8.0.36-log", "10.11.19-MariaDB", "8", "-1.2.3", "8.0.99999999999999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if c := versionCheck(text); c.Name != "version" || c.Result == "" || len(c.What) > 1000 {
			t.Errorf("%+v", c)
		}
		if v, ok := readVersion(text); ok && (v[0] < 0 || v[1] < 0 || v[2] < 0) {
			t.Errorf("%v", v)
		}
	})
}
