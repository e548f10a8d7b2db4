package schema

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/shared/servers"
)

// The grants are the README's, on a database with the README's name. With them run the statements of the tests, and
// then every statement of queries/ as its user. Each user is denied the statements that the README excludes.
func TestGrants(t *testing.T) { servers.EachSQL(t, testGrants) }

func testGrants(t *testing.T) {
	server := servers.SQLForTest(t)
	server.CreateForTest(t, "weir")
	root := connect(t, server.DSN("weir"))
	grants := readmeGrants(t)
	as := func(user string) *sql.DB {
		for _, statement := range grants[user] {
			exec(t, root, statement)
		}
		return connect(t, strings.Replace(server.DSN("weir"), "root@", user+":change me@", 1))
	}

	migrate(t, as("weir_migrate"))
	node, control := as("weir_node"), as("weir_control")
	for user, db := range map[string]*sql.DB{"dataplane": node, "controlplane": control} {
		for name, statement := range queries(t, user) {
			if err := attempt(t, db, statement); err != nil {
				t.Errorf("%s, %s: %v", user, name, err)
			}
		}
		wantVersion(t, db, Latest())
	}

	for _, table := range append(tables(t, root), "ratelimit_new") {
		if table != "ratelimit_changes" { // which relays prune
			wantDenied(t, node, "DELETE FROM "+table)
		}
		for _, db := range []*sql.DB{node, control} {
			wantDenied(t, db, "DROP TABLE "+table)
			wantDenied(t, db, "TRUNCATE "+table)
			wantDenied(t, db, "ALTER TABLE "+table+" ADD COLUMN more INT")
			wantDenied(t, db, "CREATE TABLE "+table+" (a INT)")
		}
	}
	for _, table := range []string{"ratelimit_tuning", "ratelimit_trials", "ratelimit_namespaces", "ratelimit_overrides",
		"ratelimit_resets"} {
		wantDenied(t, node, "INSERT INTO "+table+" () VALUES ()")
	}
	wantDenied(t, node, "UPDATE ratelimit_changes SET payload = ''")
	wantDenied(t, node, "SELECT * FROM ratelimit_audit")
	wantDenied(t, control, "DELETE FROM ratelimit_changes")
	wantDenied(t, control, "UPDATE ratelimit_window_counts SET count = 0")
	wantDenied(t, control, "INSERT INTO ratelimit_window_counts () VALUES ()")
	for _, table := range []string{"ratelimit_tuning", "ratelimit_audit"} {
		wantDenied(t, control, "DELETE FROM "+table)
		wantDenied(t, control, "UPDATE "+table+" SET reason = ''")
	}
}

// "Grant it for the time it takes": with the README's statements the control plane's user can rename the table there
// and back and drop it. Without them it can do none of this, and cannot find out whether the dated name exists.
func TestRetirementGrants(t *testing.T) { servers.EachSQL(t, testRetirementGrants) }

func testRetirementGrants(t *testing.T) {
	server := servers.SQLForTest(t)
	server.CreateForTest(t, "weir")
	root := connect(t, server.DSN("weir"))
	migrate(t, root)
	for _, statement := range readmeGrants(t)["weir_control"] {
		exec(t, root, statement)
	}
	const old, dated = "ratelimit_blocklist", "ratelimit_blocklist_retired_20260102_150405"
	control := connect(t, strings.Replace(server.DSN("weir"), "root@", "weir_control:change me@", 1))
	statements := []string{
		"SELECT 1 FROM " + dated + " LIMIT 0", "RENAME TABLE " + old + " TO " + dated,
		"RENAME TABLE " + dated + " TO " + old, "DROP TABLE IF EXISTS " + dated,
	}
	for _, statement := range statements {
		wantDenied(t, control, statement)
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	grants := regexp.MustCompile(`(?m)^    (GRANT .*ratelimit_blocklist.*);$`).FindAllStringSubmatch(string(text), -1)
	if len(grants) != 2 {
		t.Fatalf("%d statements", len(grants))
	}
	for _, g := range grants {
		exec(t, root, g[1])
	}
	for _, statement := range append(statements[1:3:3], statements[1], statements[0], statements[3]) {
		if _, err := control.ExecContext(t.Context(), statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// Where the users are made before the tables, as in deploy/compose, nodes may still run each of their statements, and
// delete nothing but news.
func TestGrantsBeforeTheTables(t *testing.T) { servers.EachSQL(t, testGrantsBeforeTheTables) }

func testGrantsBeforeTheTables(t *testing.T) {
	server := servers.SQLForTest(t)
	server.CreateForTest(t, "weir")
	root := connect(t, server.DSN("weir"))
	script, err := os.ReadFile("../deploy/compose/mysql/users.sh")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, root, "CREATE USER 'weir_node'@'%' IDENTIFIED BY 'change me'")
	for _, grant := range regexp.MustCompile(`(?m)^(GRANT .*'weir_node'@'%');$`).FindAllStringSubmatch(string(script), -1) {
		exec(t, root, grant[1])
	}
	migrate(t, root)
	node := connect(t, strings.Replace(server.DSN("weir"), "root@", "weir_node:change me@", 1))
	for name, statement := range queries(t, "dataplane") {
		if err := attempt(t, node, statement); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, table := range tables(t, root) {
		if table != "ratelimit_changes" {
			wantDenied(t, node, "DELETE FROM "+table)
		}
	}
}

// readmeGrants returns the statements of the README's SQL blocks, by the user they name.
func readmeGrants(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	by := make(map[string][]string)
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for _, statement := range strings.Split(strings.TrimSpace(block[1]), ";\n") {
			user := regexp.MustCompile(`'(weir_\w+)'@'%'`).FindStringSubmatch(statement)
			if user == nil {
				t.Fatalf("no user in %q", statement)
			}
			by[user[1]] = append(by[user[1]], strings.TrimSuffix(statement, ";"))
		}
	}
	if len(by) != 3 {
		t.Fatalf("grants for %d users", len(by))
	}
	return by
}

// queries returns a plane's statements by name, with a placeholder for each argument.
func queries(t *testing.T, plane string) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../queries/" + plane + "/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of %s, %v", len(files), plane, err)
	}
	all := make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(text), "-- name: ")[1:] {
			name, statement, _ := strings.Cut(part, " ")
			statement = comments.ReplaceAllString(statement[strings.Index(statement, "\n"):], "")
			statement = regexp.MustCompile(`sqlc\.\w+\(\w+\)`).ReplaceAllString(statement, "?")
			all[name] = strings.TrimSuffix(strings.TrimSpace(statement), ";")
		}
	}
	return all
}

// attempt runs a statement for its privileges' sake, with 1 for every argument, and
// takes it back.
func attempt(t *testing.T, db *sql.DB, statement string) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	args := make([]any, strings.Count(statement, "?"))
	for i := range args {
		args[i] = 1
	}
	_, err = tx.ExecContext(t.Context(), statement, args...)
	return errors.Join(err, tx.Rollback())
}

func wantDenied(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	err := attempt(t, db, statement)
	var e *mysql.MySQLError
	// On a table (or column), on the database, on a procedure.
	if !errors.As(err, &e) || e.Number != 1142 && e.Number != 1143 && e.Number != 1044 && e.Number != 1370 {
		t.Errorf("%s: %v, want it denied", statement, err)
	}
}

func tables(t *testing.T, db *sql.DB) (names []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil || len(names) != created(t)+1 {
		t.Fatalf("%d tables, %v", len(names), err)
	}
	return names
}
