package schema

import (
	"io/fs"
	"log/slog"
	"strings"

	"github.com/pressly/goose/v3"
)

// Errors of an ALTER that finds its work done.
const (
	columnExists  = 1060
	keyExists     = 1061
	unknownColumn = 1054 // of a CHANGE COLUMN alone: elsewhere it is a mistake in the statement
)

// alterations returns the files that add to a table or rename a table. ADD COLUMN has no IF NOT EXISTS that both
// engines accept. So an ALTER that runs again after a crash, before its version was recorded, ends in an error that
// shows that its work is done: both engines do an ALTER as a whole or not at all. A CHANGE COLUMN that runs again no
// longer finds the former name. A RENAME that runs again fails with noSuchTable, for the former name, on MariaDB, and
// with tableExists, for the new name, on MySQL.
func alterations(files fs.FS, log *slog.Logger) (all []*goose.Migration, versions []int64, err error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, nil, err
		}
		statement := withoutComments(string(text))
		version, err := goose.NumericComponent(name)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case renamesColumn(statement):
			all = append(all, function(version, name, statement, log, unknownColumn))
		case strings.HasPrefix(statement, "ALTER TABLE "):
			all = append(all, function(version, name, statement, log, columnExists, keyExists))
		case strings.HasPrefix(statement, "RENAME TABLE "):
			all = append(all, function(version, name, statement, log, noSuchTable, tableExists))
		default:
			continue
		}
		versions = append(versions, version)
	}
	return all, versions, nil
}

func renamesColumn(statement string) bool {
	return strings.HasPrefix(statement, "ALTER TABLE ") && strings.Contains(statement, "CHANGE COLUMN ")
}

// withoutComments leaves the statement of a file: comments fill whole lines there.
func withoutComments(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, ""))
}
