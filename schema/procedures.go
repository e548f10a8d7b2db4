package schema

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"

	"github.com/pressly/goose/v3"
)

// procedureExists is the server's error of a CREATE PROCEDURE that was done before.
const procedureExists = 1304

// refusals are the errors of servers without partitions, or without procedures. The table keeps its form, and the
// cleanup deletes rows in batches.
var refusals = []uint16{
	1064, // a syntax that it does not parse
	1178, // not of this storage engine
	1235, // not in this version
	1289, // not in this build
	1506, // not with foreign keys
	8108, // TiDB: unsupported
	8200, // TiDB: unsupported DDL
}

// procedures returns the files that create a procedure each. They are migrations like the others, in a directory of
// their own, because the generator of queries does not parse them.
func procedures(files fs.FS, log *slog.Logger) (all []*goose.Migration, err error) {
	names, err := fs.Glob(files, "procedures/*.sql")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		version, err := goose.NumericComponent(path.Base(name))
		if err != nil {
			return nil, err
		}
		all = append(all, function(version, name, withoutComments(string(text)), log, procedureExists))
	}
	return all, nil
}

// function returns a migration that executes a single statement. The server's errors among done mean that its work is
// done.
func function(version int64, name, statement string, log *slog.Logger, done ...uint16) *goose.Migration {
	return goose.NewGoMigration(version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement)
		switch {
		case slices.ContainsFunc(done, func(number uint16) bool { return isNumber(err, number) }):
			return nil
		case optional(name) && slices.ContainsFunc(refusals, func(number uint16) bool { return isNumber(err, number) }):
			log.WarnContext(ctx, "the server lacks partitions or procedures: the cleanup deletes rows in batches",
				"file", name, "error", err)
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}}, nil)
}

// optional reports whether a server may refuse a migration: the partitions and the procedures that drop and add them.
func optional(name string) bool { return strings.Contains(name, "partition") }
