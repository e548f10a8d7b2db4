// Package schema has the tables that Weir keeps in MySQL, as ordered migrations, and applies them.
//
// Migrations only go forward: there is no Down. Undoing a table means dropping counts and settings that a fleet is
// using, and no tool should make that easy. The next migration repairs a mistake. Each migration leaves the tables
// usable by the nodes of the release before it, so the order of an upgrade is: migrate, then nodes.
//
// A file is a change and holds a single statement of DDL, or a single UPDATE that finds nothing to change when it runs
// again. Neither MySQL nor MariaDB can take two statements of DDL back together, so a file with two could stop
// half-way. And a migration that runs again after a crash, before its version was recorded, must find its work done (IF
// NOT EXISTS). Statements keep to the language that MySQL 8 and 9 and MariaDB share.
package schema

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"

	"github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

// VersionTable records which migrations a database has had. It carries our prefix
// because the database may be shared with programs that use the same library.
const VersionTable = "ratelimit_schema_version"

//go:embed *.sql procedures/*.sql
var files embed.FS

// Migrate brings the database that db is connected to up to Latest. A nil log is slog.Default().
//
// Any number of processes may call it at once: one works, the others wait for it and then find nothing to do. A process
// that dies while it works delays no other: the next does the rest of its work. A database that is newer than this
// binary is left unchanged. ctx bounds the whole, the waiting included.
//
// A long ALTER is a single long wait for an answer: db must have no short read timeout. An ALTER that waits for a table
// in use gives up after two seconds, because every later statement waits behind it. It is tried again after a pause;
// see ErrTableBusy.
func Migrate(ctx context.Context, db *sql.DB, log *slog.Logger) error {
	if log == nil {
		log = slog.Default()
	}
	if err := apply(ctx, db, files, log); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

func apply(ctx context.Context, db *sql.DB, files fs.FS, log *slog.Logger) error {
	if err := refuseForeign(ctx, db); err != nil {
		return err
	}
	p, err := begin(ctx, db, files, log)
	if err != nil {
		return err
	}
	return busy.retry(ctx, log, func() error { return up(ctx, p, files, log) })
}

// up applies the migrations that are left.
func up(ctx context.Context, p *goose.Provider, files fs.FS, log *slog.Logger) error {
	applied, err := p.Up(ctx)
	var stopped *goose.PartialError
	if errors.As(err, &stopped) {
		applied = stopped.Applied
	}
	for _, m := range applied {
		log.InfoContext(ctx, "migration applied", "file", fileOf(files, m.Source.Version), "took", m.Duration)
	}
	return err
}

// Version returns the number of the last migration that the database has had, 0 for none. It needs no more than SELECT
// on VersionTable.
func Version(ctx context.Context, db *sql.DB) (int64, error) {
	versions, err := database.NewStore(goose.DialectMySQL, VersionTable)
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	v, err := versions.GetLatestVersion(ctx, db)
	if isNumber(err, noSuchTable) || errors.Is(err, database.ErrVersionNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	return v, nil
}

// Latest returns the number of the last migration of this binary.
func Latest() int64 {
	latest := int64(0)
	for _, pattern := range filePatterns {
		names, err := fs.Glob(files, pattern)
		if err != nil {
			panic(err) // of a constant
		}
		for _, name := range names {
			v, err := goose.NumericComponent(path.Base(name))
			if err != nil {
				panic(err) // the names are tested
			}
			latest = max(latest, v)
		}
	}
	return latest
}

// filePatterns match the migrations: statements that change tables, and procedures.
var filePatterns = []string{"*.sql", "procedures/*.sql"}

// fileOf returns the name of a migration's file, because the library has it for some migrations only.
func fileOf(files fs.FS, version int64) string {
	for _, in := range []string{"", "procedures/"} {
		names, err := fs.Glob(files, fmt.Sprintf("%s%05d_*.sql", in, version))
		if err == nil && len(names) == 1 {
			return names[0]
		}
	}
	return fmt.Sprint(version)
}

// begin makes VersionTable and its first row, in two steps that can be repeated and raced for. The library takes a
// table without the row for a broken table, for good, and a crash between the steps would leave exactly that.
func begin(ctx context.Context, db *sql.DB, files fs.FS, log *slog.Logger) (*goose.Provider, error) {
	versions, err := database.NewStore(goose.DialectMySQL, VersionTable)
	if err != nil {
		return nil, err
	}
	_, err = versions.GetLatestVersion(ctx, db)
	if isNumber(err, noSuchTable) {
		err = versions.CreateVersionTable(ctx, db)
		if err == nil || isNumber(err, tableExists) {
			err = database.ErrVersionNotFound
		}
	}
	if errors.Is(err, database.ErrVersionNotFound) {
		err = versions.Insert(ctx, db, database.InsertRequest{Version: 0})
	}
	if err != nil {
		return nil, fmt.Errorf("begin %s: %w", VersionTable, err)
	}
	altering, altered, err := alterations(files, log)
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	creating, err := procedures(files, log)
	if err != nil {
		return nil, fmt.Errorf("read the procedures: %w", err)
	}
	return goose.NewProvider(database.DialectCustom, db, files,
		goose.WithExcludeVersions(altered), // as files: they come as functions
		goose.WithGoMigrations(append(altering, creating...)...),
		goose.WithStore(versions),
		goose.WithSessionLocker(locker{log: log, tableWaitSeconds: busy.waitSeconds}),
		goose.WithDisableGlobalRegistry(true),
	)
}

// Errors of the server that are answers to a question.
const (
	tableExists = 1050
	noSuchTable = 1146 // or the user may not see it
)

func isNumber(err error, number uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == number
}
