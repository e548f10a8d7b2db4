package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
)

var _ retire.Store = (*Store)(nil)

const (
	// How long a rename or a drop waits for the attempt before it, and for statements that use the table. The sum must be
	// less than the timeout of the step.
	fenceWaitSeconds = 5
	tableWaitSeconds = 5

	tableDenied, columnDenied = 1142, 1143
)

func (s tables) TableFigures(ctx context.Context, name string) (*retire.TableFigures, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, explain(err)
	}
	defer func() { _ = conn.Close() }()
	figures, err := tableFigures(ctx, conn, name)
	if err != nil {
		return nil, fmt.Errorf("look at table %s: %w", name, denied(err))
	}
	return figures, nil
}

func tableFigures(ctx context.Context, conn *sql.Conn, name string) (*retire.TableFigures, error) {
	var f retire.TableFigures
	err := conn.QueryRowContext(ctx, "SELECT COALESCE(MAX(pk), 0), COALESCE(MAX(expires_at), 0) FROM "+quoted(name)).
		Scan(&f.Mark.LastKey, &f.Mark.LastExpiryMs)
	if isNumber(err, noSuchTable) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// MySQL 8 caches the statistics of tables for a day unless a session disables that. MariaDB ignores the versioned
	// comment.
	if _, err := conn.ExecContext(ctx,
		"SET /*!80000 SESSION information_schema_stats_expiry = 0, */ @weir = 0"); err != nil {
		return nil, err
	}
	err = conn.QueryRowContext(ctx,
		"SELECT COALESCE(MAX(AUTO_INCREMENT), 0) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND "+
			"TABLE_NAME = ?", name).
		Scan(&f.Mark.NextKey)
	if err != nil {
		return nil, err
	}
	f.Rows, err = countRows(ctx, conn, name)
	return &f, err
}

func countRows(ctx context.Context, conn *sql.Conn, name string) (rows int64, err error) {
	text := fmt.Sprintf("SELECT COUNT(*) FROM (SELECT 1 FROM %s LIMIT %d) counted", quoted(name),
		retire.TableRowsCounted)
	err = conn.QueryRowContext(ctx, text).Scan(&rows)
	return rows, err
}

// RenameTable renames the table if a table has the first name and no table has the other. The server rejects a name
// that is taken, so no table is ever overwritten.
func (s tables) RenameTable(ctx context.Context, table, from, to string,
	fence int64) (names retire.TableNames, err error) {
	err = s.fenced(ctx, table, fence, func(conn *sql.Conn) error {
		hasFrom, hasTo, err := hasBoth(ctx, conn, from, to)
		if err != nil {
			return err
		}
		if hasFrom && !hasTo {
			if _, err := conn.ExecContext(ctx, "RENAME TABLE "+quoted(from)+" TO "+quoted(to)); err != nil {
				return err
			}
			hasFrom, hasTo = false, true
		}
		names = retire.TableNames{Table: hasFrom, Dated: hasTo}
		if to == table {
			names = retire.TableNames{Table: hasTo, Dated: hasFrom}
		}
		return nil
	})
	if err != nil {
		return names, fmt.Errorf("rename table %s to %s: %w", from, to, err)
	}
	return names, nil
}

// DropTable drops the dated table if it is empty and no table has the original name.
func (s tables) DropTable(ctx context.Context, table, dated string,
	fence int64) (did retire.TableDrop, err error) {
	err = s.fenced(ctx, table, fence, func(conn *sql.Conn) error {
		if did.Table, did.Dated, err = hasBoth(ctx, conn, table, dated); err != nil || !did.Dated {
			return err
		}
		if did.Rows, err = countRows(ctx, conn, dated); err != nil || did.Rows > 0 || did.Table {
			return err
		}
		if _, err := conn.ExecContext(ctx, "DROP TABLE IF EXISTS "+quoted(dated)); err != nil {
			return err
		}
		did.Dated = false
		return nil
	})
	if err != nil {
		return did, fmt.Errorf("drop table %s: %w", dated, err)
	}
	return did, nil
}

// fenced runs statements in a session of their own, one session at a time. It returns an error if an attempt with a
// higher fence has come before.
//
// The lock is held by the server for the session. If a process is killed, its session and the lock last until its
// statement ends. So no other process reads the names of tables while a rename is under way. Limitation: the lock
// exists on one server only, like the lock of the migrations.
func (s tables) fenced(ctx context.Context, table string, fence int64, run func(*sql.Conn) error) (err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return explain(err)
	}
	// Closing the session releases its lock and drops its settings.
	defer func() {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		_ = conn.Close()
	}()
	if err := lockTable(ctx, conn, table); err != nil {
		return err
	}
	q := controlplanedb.New(conn)
	if err := q.RetirementFenceRaise(ctx, controlplanedb.RetirementFenceRaiseParams{Name: []byte(table),
		Fence: uint64(fence)}); err != nil {
		return denied(err)
	}
	highest, err := q.RetirementFence(ctx, []byte(table))
	if err != nil {
		return denied(err)
	}
	if highest > uint64(fence) {
		return fmt.Errorf("%w: attempt %d was replaced by attempt %d", controlplane.ErrConflict, fence, highest)
	}
	if err := run(conn); err != nil {
		return denied(err)
	}
	return nil
}

func lockTable(ctx context.Context, conn *sql.Conn, table string) error {
	var database string
	if err := conn.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil {
		return explain(err)
	}
	name := fmt.Sprintf("weir.retire.%x", sha256.Sum256([]byte(database+"."+table)))[:64]
	var got sql.NullBool
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", name, fenceWaitSeconds).Scan(&got); err != nil {
		return explain(err)
	}
	if !got.Bool {
		return fmt.Errorf("%w: another attempt is under way", controlplane.ErrUnavailable)
	}
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d", tableWaitSeconds)); err != nil {
		return explain(err)
	}
	return nil
}

func hasBoth(ctx context.Context, conn *sql.Conn, a, b string) (hasA, hasB bool, err error) {
	if hasA, err = hasTable(ctx, conn, a); err != nil {
		return false, false, err
	}
	hasB, err = hasTable(ctx, conn, b)
	return hasA, hasB, err
}

// hasTable reads from the table itself, because the server lists only tables that the user may see.
func hasTable(ctx context.Context, conn *sql.Conn, name string) (bool, error) {
	_, err := conn.ExecContext(ctx, "SELECT 1 FROM "+quoted(name)+" LIMIT 0")
	if isNumber(err, noSuchTable) {
		return false, nil
	}
	return err == nil, err
}

// denied adds advice to the error of a missing grant, because retirements need some grants only temporarily.
func denied(err error) error {
	if isNumber(err, tableDenied) || isNumber(err, columnDenied) {
		return fmt.Errorf("a grant is missing (see Grants in schema/README.md): %w", err)
	}
	return explain(err)
}

func isNumber(err error, number uint16) bool {
	var answered *mysql.MySQLError
	return errors.As(err, &answered) && answered.Number == number
}

// quoted returns a name in backquotes. Names must come from retire.DatedName or the list of tables that can be retired.
func quoted(name string) string { return "`" + name + "`" }
