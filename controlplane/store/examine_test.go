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
	"github.com/weirhq/weir/schema"
	"github.com/weirhq/weir/shared/servers"
)

var build = SchemaCheck{Version: schema.Version, Latest: schema.Latest()}

// examined are the checks by name.
func examined(t *testing.T, dsn string, s SchemaCheck) map[string]controlplane.Check {
	t.Helper()
	db, err := Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	checks := map[string]controlplane.Check{}
	for _, c := range New(db).Examine(s)(t.Context()) {
		if _, twice := checks[c.Name]; twice || (c.Do == "") != (c.Result == controlplane.CheckOK) {
			t.Errorf("%+v", c)
		}
		checks[c.Name] = c
	}
	return checks
}

func wantCheck(t *testing.T, checks map[string]controlplane.Check, name string, result controlplane.CheckResult, says string) {
	t.Helper()
	if c := checks[name]; c.Result != result || !strings.Contains(c.What+" "+c.Do, says) {
		t.Errorf("%s is %+v, want %s, saying %q", name, c, result, says)
	}
}

// "Nil when the tables are those of this build or of a newer one", and else what it takes.
func TestReady(t *testing.T) { servers.EachSQL(t, testReady) }

func testReady(t *testing.T) {
	server := servers.SQLForTest(t)
	if err := server.CreateDatabase(t.Context(), "weir"); err != nil {
		t.Fatal(err)
	}
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

// A real server with each fault provoked, one after the other, by users with the grants
// of schema/README.md, fewer, and more.
func TestExamine(t *testing.T) { servers.EachSQL(t, testExamine) }

func testExamine(t *testing.T) {
	server := servers.SQLForTest(t)
	if err := server.CreateDatabase(t.Context(), "weir"); err != nil {
		t.Fatal(err)
	}
	rootDSN := server.DSN("weir")
	root, err := Open(rootDSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	exec := func(statement string) {
		t.Helper()
		if _, err := root.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	wantCheck(t, examined(t, rootDSN, build), "schema", controlplane.CheckFail, "version 0")
	if err := schema.Migrate(t.Context(), root, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for _, statement := range readmeGrants(t) {
		exec(statement)
	}
	dsn := strings.Replace(rootDSN, "root@", "weir_control:change me@", 1)
	for name, c := range examined(t, dsn, build) {
		if c.Result != controlplane.CheckOK {
			t.Errorf("with the README's grants: %s %+v", name, c)
		}
	}
	older, newer := build, build
	older.Latest--
	newer.Latest++
	wantCheck(t, examined(t, dsn, older), "schema", controlplane.CheckWarn, "upgrade this weir-control")
	wantCheck(t, examined(t, dsn, newer), "schema", controlplane.CheckFail, "migrate")

	exec(`REVOKE EXECUTE ON PROCEDURE weir.ratelimit_add_partitions FROM 'weir_control'@'%'`)
	wantCheck(t, examined(t, dsn, build), "partitions", controlplane.CheckWarn, "Grant EXECUTE")
	exec(`GRANT EXECUTE ON PROCEDURE weir.ratelimit_add_partitions TO 'weir_control'@'%'`)
	exec(`REVOKE DELETE ON weir.ratelimit_window_counts FROM 'weir_control'@'%'`)
	wantCheck(t, examined(t, dsn, build), "grants", controlplane.CheckFail, "GRANT DELETE ON weir.ratelimit_window_counts TO")
	exec(`GRANT SELECT, DELETE, UPDATE ON weir.ratelimit_window_counts TO 'weir_control'@'%'`)
	wantCheck(t, examined(t, dsn, build), "grants, too many", controlplane.CheckWarn, "ratelimit_window_counts UPDATE")
	exec(`GRANT DROP ON weir.* TO 'weir_control'@'%'`)
	wantCheck(t, examined(t, dsn, build), "grants, too many", controlplane.CheckWarn, "DROP")
	migrates := build
	migrates.Migrates = true
	wantCheck(t, examined(t, dsn, migrates), "grants, too many", controlplane.CheckOK, "it migrates")
	wantCheck(t, examined(t, rootDSN, build), "grants, too many", controlplane.CheckWarn, "on every database")

	exec(`SET GLOBAL sql_mode = ''`)
	exec(`SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE`)
	exec(`SET GLOBAL read_only = ON`)
	exec(`SET GLOBAL max_allowed_packet = 1048576`)
	faulty := examined(t, dsn, build)
	wantCheck(t, faulty, "sql_mode", controlplane.CheckOK, "STRICT_ALL_TABLES") // each session sets it
	wantCheck(t, faulty, "isolation", controlplane.CheckOK, "REPEATABLE-READ")
	wantCheck(t, faulty, "read_only", controlplane.CheckFail, "primary")
	wantCheck(t, faulty, "autocommit", controlplane.CheckOK, "ON")
	wantCheck(t, faulty, "max_allowed_packet", controlplane.CheckFail, "at least 4194304")

	wantCheck(t, examined(t, strings.Replace(dsn, "change me", "wrong", 1), build), "reachable", controlplane.CheckFail, "WEIR_MYSQL_DSN")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	down := examined(t, dsn, build)
	wantCheck(t, down, "reachable", controlplane.CheckFail, "Start MySQL")
	if len(down) != 1 {
		t.Errorf("%+v", down)
	}
}

// readmeGrants are the statements for the control plane's user.
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

// A version that cannot be read is told; a schema version that cannot be is a failure.
func TestExamineVersions(t *testing.T) { servers.EachSQL(t, testExamineVersions) }

func testExamineVersions(t *testing.T) {
	for text, want := range map[string]controlplane.CheckResult{
		"8.0.19": controlplane.CheckOK, "8.0.36-0ubuntu0.22.04.1": controlplane.CheckOK, "8.4.0": controlplane.CheckOK, "8.0.11-TiDB-v8.1.0": controlplane.CheckOK,
		"5.7.44-log": controlplane.CheckFail, "8.0.18": controlplane.CheckFail,
		"10.11.19-MariaDB-deb12": controlplane.CheckOK, "10.6.0-MariaDB": controlplane.CheckOK, "10.5.29-MariaDB": controlplane.CheckFail,
		"": controlplane.CheckWarn, "8": controlplane.CheckWarn, "8.x.1": controlplane.CheckWarn,
	} {
		if c := versionCheck(text); c.Result != want {
			t.Errorf("%q: %+v, want %s", text, c, want)
		}
	}
	broken := build
	broken.Version = func(context.Context, *sql.DB) (int64, error) { return 0, errors.New("denied") }
	wantCheck(t, examined(t, servers.SharedSQL(t).DatabaseForTest(t), broken), "schema", controlplane.CheckFail, "denied")
}

// A server that a session cannot write to is not the primary, by whichever setting, and a setting that is not shown is
// not known to be right.
func TestExamineVariablesOfAReader(t *testing.T) {
	right := map[string]string{"sql_mode": "STRICT_ALL_TABLES", "autocommit": "ON", "transaction_isolation": "READ-COMMITTED",
		"read_only": "OFF", "innodb_read_only": "OFF", "transaction_read_only": "0", "time_zone": "+00:00", "max_allowed_packet": "67108864"}
	check := func(name, value string) map[string]controlplane.Check {
		values, byName := maps.Clone(right), map[string]controlplane.Check{}
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
		if c.Result != controlplane.CheckOK {
			t.Errorf("%s: %+v", name, c)
		}
	}
	for name, value := range map[string]string{"read_only": "ON", "innodb_read_only": "ON", "transaction_read_only": "ON", "tx_read_only": "1"} {
		wantCheck(t, check(name, value), name, controlplane.CheckFail, "primary")
	}
	for _, name := range []string{"sql_mode", "autocommit", "read_only", "time_zone", "max_allowed_packet"} {
		wantCheck(t, check(name, ""), name, controlplane.CheckWarn, "not checked")
	}
	wantCheck(t, check("transaction_isolation", ""), "isolation", controlplane.CheckWarn, "not checked")
}

func TestClockCheck(t *testing.T) {
	for _, tc := range []struct {
		skew, took time.Duration
		want       controlplane.CheckResult
	}{
		{0, 0, controlplane.CheckOK}, {-900 * time.Millisecond, 0, controlplane.CheckOK}, {-time.Second, 0, controlplane.CheckWarn},
		{time.Second, time.Second, controlplane.CheckOK}, {10 * time.Second, 0, controlplane.CheckFail},
	} {
		if c := clockCheck(tc.skew, tc.took); c.Result != tc.want {
			t.Errorf("%v within %v: %+v, want %s", tc.skew, tc.took, c, tc.want)
		}
	}
}

// Whatever a server says its version is, it is judged; what is read of it is in it.
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
