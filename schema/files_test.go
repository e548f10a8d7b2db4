package schema

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// migration is a file without its comments.
type migration struct{ name, text, statements string }

func migrations(t *testing.T) []migration {
	t.Helper()
	return migrationsOf(t, files)
}

func migrationsOf(t *testing.T, files fs.FS) []migration {
	t.Helper()
	var names []string
	for _, pattern := range filePatterns {
		found, err := fs.Glob(files, pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	if len(names) == 0 {
		t.Fatal("no files")
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(path.Base(a), path.Base(b)) })
	var all []migration
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, migration{name, string(text), comments.ReplaceAllString(string(text), "")})
	}
	return all
}

// withAlteration returns the migrations with another, which adds to a table as a later migration may.
func withAlteration(t *testing.T) fs.FS {
	t.Helper()
	all := make(fstest.MapFS)
	for _, m := range migrations(t) {
		all[m.name] = &fstest.MapFile{Data: []byte(m.text)}
	}
	all[fmt.Sprintf("%05d_nodes_later.sql", Latest()+1)] = &fstest.MapFile{Data: []byte(`-- +goose Up
-- What a later release adds; a column and a key.
ALTER TABLE ratelimit_nodes
  ADD COLUMN later BIGINT UNSIGNED NULL DEFAULT NULL COMMENT 'a comment; with DROP in it',
  ADD KEY later_idx (later);
`)}
	return all
}

var (
	comments  = regexp.MustCompile(`(?m)--.*$`)
	goodNames = regexp.MustCompile(`^\d{5}_[a-z]+(_[a-z]+)*\.sql$`)
	ddl       = regexp.MustCompile(`(?i)\b(CREATE|ALTER|DROP|RENAME|TRUNCATE)\s`)
	// Text in quotes, where any word may stand.
	quoted = regexp.MustCompile("'[^']*'|`[^`]*`")
)

// Migrations are ordered: numbers ascend from 1 without a gap. So two branches that add a migration collide in review
// and not in a database.
func TestNumbersAscendWithoutGaps(t *testing.T) {
	for i, m := range migrations(t) {
		if want := fmt.Sprintf("%05d_", i+1); !strings.HasPrefix(path.Base(m.name), want) {
			t.Errorf("file %d is %s, want %s…", i+1, m.name, want)
		}
		if !goodNames.MatchString(path.Base(m.name)) {
			t.Errorf("%s: name is not number_words.sql", m.name)
		}
	}
	if got, want := Latest(), int64(len(migrations(t))); got != want {
		t.Errorf("Latest is %d, want %d", got, want)
	}
}

// "A file is a change and holds a single statement of DDL, or a single UPDATE", and nothing else.
func TestOneStatementEach(t *testing.T) {
	for _, m := range migrations(t) {
		if strings.HasPrefix(m.name, "procedures/") {
			if s := strings.TrimSpace(m.statements); !strings.HasPrefix(s, "CREATE PROCEDURE ratelimit_") || !strings.HasSuffix(s, "END;") {
				t.Errorf("%s: not one procedure", m.name)
			}
			continue
		}
		statements := quoted.ReplaceAllString(m.statements, "''")
		if n := strings.Count(statements, ";"); n != 1 || !strings.HasSuffix(strings.TrimSpace(statements), ";") {
			t.Errorf("%s: %d statements, want 1", m.name, n)
		}
		parts := strings.NewReplacer("DROP PRIMARY KEY", "", "ALTER COLUMN", "") // of an ALTER TABLE
		if n := len(ddl.FindAllString(parts.Replace(statements), -1)); n != 1 && !strings.HasPrefix(strings.TrimSpace(statements), "UPDATE ratelimit_") {
			t.Errorf("%s: %d statements of DDL, want 1", m.name, n)
		}
	}
}

// "Migrations only go forward: there is no Down."
func TestForwardOnly(t *testing.T) {
	for _, m := range migrations(t) {
		if n := strings.Count(m.text, "+goose"); n != 1 || !strings.HasPrefix(m.text, "-- +goose Up\n") {
			t.Errorf("%s: want one annotation, +goose Up, on the first line", m.name)
		}
	}
}

// "a migration that runs again after a crash, before its version was recorded, must find its work done": and a table
// sets the character set of its text, whatever a server's default is.
func TestTablesAreRepeatableAndExplicit(t *testing.T) {
	for _, m := range migrations(t) {
		if !strings.Contains(m.statements, "CREATE TABLE") || strings.HasPrefix(m.name, "procedures/") {
			continue // a procedure makes a table that is LIKE one of ours: TestKeepExpiredPartition
		}
		for _, want := range []string{"CREATE TABLE IF NOT EXISTS ratelimit_", "ENGINE = InnoDB", "DEFAULT CHARSET = utf8mb4"} {
			if !strings.Contains(m.statements, want) {
				t.Errorf("%s: no %q", m.name, want)
			}
		}
	}
}

// created returns how many of the migrations make a table.
func created(t *testing.T) (n int) {
	t.Helper()
	for _, m := range migrations(t) {
		if !strings.HasPrefix(m.name, "procedures/") {
			n += strings.Count(m.statements, "CREATE TABLE")
		}
	}
	return n
}

// partitionsFile is the only ALTER that does more than to add. It has the whole form of the key and of the partitions,
// so it may run again.
const partitionsFile = "00018_window_counts_partitions.sql"

// renames matches the only form of a RENAME: one of our tables gets another name.
var renames = regexp.MustCompile(`^RENAME TABLE ratelimit_\w+ TO ratelimit_\w+;$`)

// setsDefault matches an ALTER that changes the default of a column. The rows keep their values, and the writers of the
// release before name every column.
var setsDefault = regexp.MustCompile(`^ALTER TABLE ratelimit_\w+\s+ALTER COLUMN \w+ SET DEFAULT '[^']*';$`)

// An ALTER that runs again after a crash ends in an error that shows that its work is done. Other ALTERs would not, or
// not on both engines.
func TestAlterationsOnlyAdd(t *testing.T) {
	altered, all := 0, withAlteration(t)
	for _, m := range migrationsOf(t, all) {
		if renames.MatchString(strings.TrimSpace(m.statements)) {
			altered++
			continue
		}
		if !strings.HasPrefix(strings.TrimSpace(m.statements), "ALTER TABLE") {
			continue
		}
		altered++
		if m.name == partitionsFile { // makes the same form again
			continue
		}
		if renamesColumn(strings.TrimSpace(m.statements)) {
			alone := regexp.MustCompile(`^ALTER TABLE ratelimit_\w+\s+CHANGE COLUMN \w+ \w+ [^,]*;$`)
			if s := strings.TrimSpace(m.statements); !alone.MatchString(s) {
				t.Errorf("%s: %q does more than to rename a column", m.name, s)
			}
			continue
		}
		if setsDefault.MatchString(strings.TrimSpace(m.statements)) { // sets the same default again
			continue
		}
		adds := regexp.MustCompile(`(?s)^ALTER TABLE ratelimit_\w+\s+ADD (COLUMN|KEY) `)
		if s := strings.TrimSpace(m.statements); !adds.MatchString(s) {
			t.Errorf("%s: %q does not add columns or a key", m.name, s)
		}
		if regexp.MustCompile(`(?i)\b(DROP|MODIFY|CHANGE|RENAME)\b`).MatchString(quoted.ReplaceAllString(m.statements, "''")) {
			t.Errorf("%s: does more than to add", m.name)
		}
		if strings.Contains(m.statements, "ADD COLUMN") && strings.Count(m.statements, "NULL DEFAULT") != strings.Count(m.statements, "ADD COLUMN") {
			t.Errorf("%s: a column without a default stops the writers of the release before", m.name)
		}
	}
	if found, versions, err := alterations(all, quiet); err != nil || len(found) != altered || len(versions) != altered || altered == 0 {
		t.Errorf("%d alterations are run as such, %v; want %d", len(found), err, altered)
	}
}

// "Statements keep to the language that MySQL 8 and 9 and MariaDB share": every other test runs them on MySQL 9.7 and
// MariaDB 10.11. Both accept the words below, but either each gives them another meaning, or older servers that Weir
// supports reject them; there is no such server here. sqlc's parser, which is TiDB's, reads every file when the code is
// generated.
func TestNoWordOfTwoMeanings(t *testing.T) {
	for word, why := range map[string]string{
		`\butf8(mb3)?\b`:                   "another charset on each",
		`INVISIBLE|\bVISIBLE\b`:            "columns of MySQL from 8.0.23 on, indexes of it alone",
		`\bJSON\b`:                         "a type on one, text on the other",
		`ALGORITHM\s*=\s*(INSTANT|NOCOPY)`: "not for the same changes in every version",
		`(BIGINT|INT)\s*\(\d+\)`:           "display widths: deprecated in MySQL",
	} {
		trap := regexp.MustCompile(`(?i)` + word)
		for _, m := range migrations(t) {
			if found := trap.FindString(quoted.ReplaceAllString(m.statements, "''")); found != "" {
				t.Errorf("%s: %q: %s", m.name, found, why)
			}
		}
	}
}
