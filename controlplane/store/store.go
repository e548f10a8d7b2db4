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
	connectionsMax = 8 // the control plane executes one step at a time; the others are for people who read
	idleMax        = 2

	noSuchTable  = 1146
	noSuchColumn = 1054
)

// queries are the generated statements.
type queries = controlplanedb.Queries

// Store executes the statements of the control plane. It has a part for each kind of data. See the interfaces that it
// implements for the contracts of its methods. All methods can be called concurrently.
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

	// nodes has the nodes' heartbeats and reports.
	nodes struct{ *statements }

	// jobs has the states of periodic jobs.
	jobs struct{ *statements }

	// rollouts has rollouts, and the tunings and trials that they write.
	rollouts struct{ *statements }

	// settings has the settings of namespaces, overrides and resets.
	settings struct{ *statements }

	// tables has the tables that are retired.
	tables struct{ *statements }

	// operators has the operators' tokens, without their secrets.
	operators struct{ *statements }
)

// statements is shared by all parts.
type statements struct {
	db      *sql.DB
	queries *queries
}

// New returns a store on db. The caller must close db.
func New(db *sql.DB) *Store {
	s := &statements{db, controlplanedb.New(db)}
	return &Store{s, auditLog{s}, expiry{s}, nodes{s}, jobs{s}, rollouts{s}, settings{s}, tables{s}, operators{s}}
}

// Open prepares connections to dsn, in the form of github.com/go-sql-driver/mysql with the parameters of package
// mysqldsn. It does not connect, so that a process can start before its database does. An error is about the form of
// dsn and does not repeat dsn, which may contain a password. There is no timeout for reads, because migrations can take
// long.
func Open(dsn string) (*sql.DB, error) {
	return mysqlclient.Open(dsn, mysqlclient.Options{ConnsMax: connectionsMax, IdleMax: idleMax, DialTimeout: dialTimeout})
}

// Now returns the time of the database's clock.
func (s *statements) Now(ctx context.Context) (time.Time, error) {
	ms, err := s.queries.DatabaseNow(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the clock of the database: %w", explain(err))
	}
	return time.UnixMilli(ms), nil
}

// briefly runs a bounded statement in a transaction that locks no gaps, and returns how many rows it has changed.
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

// explain adds advice to an error, such as where the DSN of MySQL is set. If the server did not answer, or its tables
// are missing or old, the error wraps controlplane.ErrUnavailable. Other errors of the server stay as they are.
func explain(err error) error {
	var answered *mysql.MySQLError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("MySQL did not answer in time: %w", err)
	case !errors.As(err, &answered):
		return fmt.Errorf("%w: MySQL does not answer (is it running? see WEIR_MYSQL_DSN): %w",
			controlplane.ErrUnavailable, err)
	case answered.Number == noSuchTable, answered.Number == noSuchColumn:
		return fmt.Errorf("%w: tables are missing, or older than this build needs; weir-control creates and upgrades "+
			"them, unless --no-migrate is set: %w", controlplane.ErrUnavailable, err)
	}
	return err
}

// unixMs converts t to Unix milliseconds. Times before 1970 become 0.
func unixMs(t time.Time) uint64 { return uint64(max(0, t.UnixMilli())) }
