package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/schema"
	"github.com/weirhq/weir/shared/servers"
)

// The command applies the migrations that a database lacks, logs them, prints the version and ends; repeated, it finds
// nothing to do. A user without the rights is named as the reason.
func TestMigrateUpgradesTheTablesAndEnds(t *testing.T) { servers.EachSQL(t, testMigrate) }

func testMigrate(t *testing.T) {
	mysql := servers.SQLForTest(t)
	mysql.CreateForTest(t, "weir")
	root, err := store.Open(mysql.DSN("weir"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	for _, statement := range []string{"CREATE USER 'reader'@'%' IDENTIFIED BY 'pass word'", "GRANT SELECT ON weir.* TO 'reader'@'%'"} {
		if _, err := root.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	reader := strings.Replace(mysql.DSN("weir"), "root@", "reader:pass word@", 1)
	code, stdout, stderr := tried(t, "migrate", "--mysql-dsn-file", file(t, reader+"\n"))
	if code != exitFailure || stdout != "" || !strings.Contains(stderr, "lacks a right on the tables") || strings.Contains(stderr, "pass word") {
		t.Errorf("without rights: exit %d, %q, %s", code, stdout, stderr)
	}

	version := strconv.FormatInt(schema.Latest(), 10)
	for run, want := range []string{
		"The tables were at version 0 and are at version " + version + ".\n",
		"The tables are at version " + version + ": nothing to do.\n",
	} {
		code, stdout, stderr := tried(t, "migrate", "--mysql-dsn-file", file(t, mysql.DSN("weir")))
		if code != exitOK || stdout != want {
			t.Errorf("run %d: exit %d, %q, want %q; %s", run, code, stdout, want, stderr)
		}
		if logged := strings.Count(stderr, "migration applied"); (logged > 0) != (run == 0) {
			t.Errorf("run %d logged %d migrations", run, logged)
		}
	}
	if v, err := schema.Version(t.Context(), root); err != nil || v != schema.Latest() {
		t.Errorf("version %d, %v", v, err)
	}
}

// An error names the fault of the command line or the server.
func TestMigrateRefusals(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no DSN":       {nil, exitUsage, "no MySQL is configured"},
		"no such flag": {[]string{"--down"}, exitUsage, "unknown flag --down"},
		"octal":        {[]string{"--timeout", "010m", "--mysql-dsn-file", "x"}, exitUsage, "leading zeros"},
		"a timeout":    {[]string{"--timeout", "1ms", "--mysql-dsn-file", "x"}, exitUsage, "timeout is 1ms"},
		"no server":    {[]string{"--mysql-dsn-file", file(t, "weir:s3cret@tcp(127.0.0.1:1)/weir")}, exitFailure, "connection refused"},
	} {
		code, stdout, stderr := tried(t, append([]string{"migrate"}, tc.args...)...)
		if code != tc.code || stdout != "" || !strings.Contains(stderr, tc.says) || strings.Contains(stderr, "s3cret") {
			t.Errorf("%s: exit %d, %q, %s", name, code, stdout, stderr)
		}
	}
	if code, stdout, _ := tried(t, "migrate", "--help"); code != exitOK || !strings.Contains(stdout, "--mysql-dsn-file") {
		t.Errorf("exit %d, %s", code, stdout)
	}
}
