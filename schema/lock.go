package schema

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pressly/goose/v3/lock"
)

// locker lets one process migrate a database at a time, by a lock of the server (GET_LOCK). The lock belongs to the
// session that then runs the migrations: a process that loses one of them has lost the other.
//
// The library's own lock for MySQL is a row with a lease. It needs a second session, a handle that parses times and
// equal time zones in all processes, its waiters poll, and after a kill they wait for the end of the lease. GET_LOCK
// needs none of it, and the server releases it when the session ends for any reason.
//
// It gives up this: the lock is valid on a single server. If several servers accept writes (Galera, group replication
// with many primaries), run migrations from one place.
type locker struct {
	log              *slog.Logger
	tableWaitSeconds int
}

// lockWait is how long the server waits in a call. It bounds the time in which a waiter that is gone can still get the
// lock.
const lockWait = time.Second

const unlockTimeout = 5 * time.Second

// SessionLock implements the library's interface.
func (l locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	name, err := lockName(ctx, conn)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	for waited := false; ; waited = true {
		var got sql.NullBool
		err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, lockWait.Seconds()).Scan(&got)
		switch {
		case err != nil:
			return fmt.Errorf("lock %s: %w", name, err)
		case !got.Valid:
			return fmt.Errorf("lock %s: the server failed or ended the wait", name)
		case got.Bool:
			return l.waitBriefly(ctx, conn)
		case !waited:
			l.log.InfoContext(ctx, "waiting for another process to migrate", "lock", name)
		}
	}
}

// waitBriefly bounds how long the session's statements wait for a table that others use.
// While an ALTER waits, every statement that comes after it waits behind it, reads too;
// the server's default is a day.
func (l locker) waitBriefly(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d", l.tableWaitSeconds)); err != nil {
		return fmt.Errorf("set lock_wait_timeout: %w", err)
	}
	return nil
}

// SessionUnlock implements the library's interface. A lock that is not ours any more is
// an error: somebody else may have worked at the same time.
func (l locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	// The library's context has no end. A session that ends gives the lock back.
	ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
	defer cancel()
	name, err := lockName(ctx, conn)
	if err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	var released sql.NullBool
	if err := conn.QueryRowContext(ctx, "SELECT RELEASE_LOCK(?)", name).Scan(&released); err != nil {
		return fmt.Errorf("unlock %s: %w", name, err)
	}
	if !released.Bool {
		return fmt.Errorf("unlock %s: it was not held any more", name)
	}
	if _, err := conn.ExecContext(ctx, "SET SESSION lock_wait_timeout = DEFAULT"); err != nil {
		return fmt.Errorf("unlock %s: %w", name, err)
	}
	return nil
}

// lockName returns a name for a single database, because locks belong to the whole server. It has at most 64 bytes, as
// MySQL requires.
func lockName(ctx context.Context, conn *sql.Conn) (string, error) {
	var db sql.NullString
	if err := conn.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&db); err != nil {
		return "", fmt.Errorf("ask for the database's name: %w", err)
	}
	if !db.Valid {
		return "", errors.New("the connection names no database")
	}
	return fmt.Sprintf("weir.schema.%x", sha256.Sum256([]byte(db.String)))[:64], nil
}

var _ lock.SessionLocker = locker{}
