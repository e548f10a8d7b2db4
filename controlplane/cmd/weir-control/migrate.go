package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kong"
	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/schema"
	"github.com/weirhq/weir/shared/strict/flags"
)

// migrateArgument is the first argument that makes weir-control create or upgrade the tables and
// exit.
const migrateArgument = "migrate"

// migration is the command line of weir-control migrate.
type migration struct {
	MySQLDSNFile string        `name:"mysql-dsn-file" placeholder:"FILE" help:"File that holds the MySQL DSN, user:password@tcp(host:port)/database, of a user that may create and alter tables. The environment variable WEIR_MYSQL_DSN takes precedence."`
	Timeout      time.Duration `env:"-" default:"10m" help:"Time limit, including the wait for another process that migrates (1s to 24h)."`
}

// migrateTables applies the migrations that a database lacks. It returns 0 if the tables then have this program's
// version or a newer version.
func migrateTables(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	m, dsn, done, err := parseMigration(args, stdout, stderr)
	if done {
		return exitOK
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "weir-control: %v\nTry weir-control %s --help.\n", err, migrateArgument)
		return exitUsage
	}
	ctx, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	before, after, err := m.migrate(ctx, dsn, stderr)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "weir-control: %v\n", err)
		return exitFailure
	}
	switch {
	case after > schema.Latest():
		_, _ = fmt.Fprintf(stdout, "The tables are at version %d, newer than this program's %d: nothing to do.\n",
			after, schema.Latest())
	case after == before:
		_, _ = fmt.Fprintf(stdout, "The tables are at version %d: nothing to do.\n", after)
	default:
		_, _ = fmt.Fprintf(stdout, "The tables were at version %d and are at version %d.\n", before, after)
	}
	return exitOK
}

func parseMigration(args []string, stdout, stderr io.Writer) (m migration, dsn string, done bool, err error) {
	parser, err := kong.New(&m, kong.Name("weir-control "+migrateArgument), kong.Writers(stdout, stderr),
		kong.Description("Creates and upgrades Weir's tables in MySQL, and ends. Any number of processes may run it at "+
			"once."),
		kong.DefaultEnvars("WEIR"),
		flags.Strict())
	if err == nil {
		_, done, err = flags.Parse(parser, args)
	}
	if err == nil && !done {
		err = validSpan("timeout", m.Timeout, time.Second, 24*time.Hour)
	}
	if err == nil && !done {
		dsn, err = (&config{MySQLDSNFile: m.MySQLDSNFile}).dsn()
	}
	return m, dsn, done, err
}

// migrate returns the version of the tables before and after the migration.
func (m *migration) migrate(ctx context.Context, dsn string, stderr io.Writer) (before, after int64, err error) {
	db, err := store.Open(dsn)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if before, err = schema.Version(ctx, db); err != nil {
		return 0, 0, hintRights(err)
	}
	if err = schema.Migrate(ctx, db, newLog(stderr, "info")); err != nil {
		return 0, 0, hintRights(err)
	}
	after, err = schema.Version(ctx, db)
	return before, after, err
}

// lacksRights holds MySQL's error numbers for missing rights on a statement, database or table.
var lacksRights = map[uint16]bool{1044: true, 1142: true, 1143: true, 1227: true, 1370: true, 1410: true, 1419: true}

// hintRights adds the user to use to an error about missing rights.
func hintRights(err error) error {
	if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && lacksRights[refused.Number] {
		return fmt.Errorf("%w: the DSN's user lacks a right on the tables; use a user that has all privileges on "+
			"the database, such as weir_migrate of schema/README.md", err)
	}
	return err
}
