package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/mysqlclient"
)

const (
	dialTimeout    = 5 * time.Second
	connectionsMax = 8 // the control plane works one step at a time; this is for people who look on
	idleMax        = 2

	noSuchTable  = 1146
	noSuchColumn = 1054
)

// queries are the generated statements.
type queries = controlplanedb.Queries

// Store executes the statements of the control plane. It has a part for each thing that it stores. The interfaces that
// it implements say what its methods do. All methods may be called concurrently.
type Store struct {
	*statements
	auditLog
	expiry
	nodes
	jobs
	rollouts
	settings
	tables
	operators
}

type (
	// auditLog is the log of changes.
	auditLog struct{ *statements }

	// expiry deletes rows that have expired, a batch or a partition at a time.
	expiry struct{ *statements }

	// nodes is the nodes' heartbeats and reports.
	nodes struct{ *statements }

	// jobs is the states of periodic jobs.
	jobs struct{ *statements }

	// rollouts is rollouts, and the tunings and trials that they write.
	rollouts struct{ *statements }

	// settings is the settings of namespaces, overrides and resets.
	settings struct{ *statements }

	// tables is the tables that are retired.
	tables struct{ *statements }

	// operators is the operators' tokens, without their secrets.
	operators struct{ *statements }
)

// statements are what all parts work with.
type statements struct {
	db      *sql.DB
	queries *queries
}

// New returns a store on db, which stays the caller's to close.
func New(db *sql.DB) *Store {
	s := &statements{db, controlplanedb.New(db)}
	return &Store{s, auditLog{s}, expiry{s}, nodes{s}, jobs{s}, rollouts{s}, settings{s}, tables{s}, operators{s}}
}

// Open prepares connections to dsn, in the form of github.com/go-sql-driver/mysql with the parameters of package
// mysqldsn. It does not connect, so that a process may start before its database does. An error is about the form of
// dsn and does not repeat it: it may hold a password. There is no timeout for reads, since migrations may take long.
func Open(dsn string) (*sql.DB, error) {
	return mysqlclient.Open(dsn, mysqlclient.Options{ConnsMax: connectionsMax, IdleMax: idleMax, DialTimeout: dialTimeout})
}

// Now is the clock of the database.
func (s *statements) Now(ctx context.Context) (time.Time, error) {
	ms, err := s.queries.DatabaseNow(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the clock of the database: %w", explain(err))
	}
	return time.UnixMilli(ms), nil
}

// briefly runs one bounded statement in a transaction that locks no gaps, and returns how many rows it has changed.
func (s *statements) briefly(ctx context.Context, change func(*queries) (int64, error)) (rows int64, err error) {
	err = s.inTransaction(ctx, func(q *queries) (err error) {
		rows, err = change(q)
		return err
	})
	if err != nil {
		return 0, err
	}
	return rows, nil
}

// explain tells an answer of the server's from its silence, which is
// controlplane.ErrUnavailable.
func explain(err error) error {
	var answered *mysql.MySQLError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("MySQL did not answer in time: %w", err)
	case !errors.As(err, &answered):
		return fmt.Errorf("%w: MySQL does not answer (is it running? see WEIR_MYSQL_DSN): %w",
			controlplane.ErrUnavailable, err)
	case answered.Number == noSuchTable, answered.Number == noSuchColumn:
		return fmt.Errorf("%w: the tables are not there yet, or older than this build; weir-control creates and upgrades "+
			"them, unless --no-migrate is set: %w", controlplane.ErrUnavailable, err)
	}
	return err
}

// unixMs is t as the tables have it. Times before 1970 are the start of 1970.
func unixMs(t time.Time) uint64 { return uint64(max(0, t.UnixMilli())) }
