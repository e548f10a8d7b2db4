package mysqlcounts

import (
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/dataplane/store"
)

// classify marks errors that a row's values caused with store.ErrRefused. All other errors may pass with time: a lost
// connection, a full disk, a server that is read-only, or a missing table or grant, which an operator can add while
// nodes run.
func classify(err error) error {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && isRefusal(e) {
		return fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	return err
}

// isRefusal reports whether a row's values caused the error. SQLSTATE class 22 is data exceptions (too long, out of
// range, wrong type), and class 23 is violated constraints. The listed numbers have a less specific SQLSTATE on MySQL
// or on MariaDB. A duplicate key is not a refusal: two writers have inserted the same key at once, and the next attempt
// updates the row.
func isRefusal(e *mysql.MySQLError) bool {
	if e.Number == duplicateEntry {
		return false
	}
	switch class := string(e.SQLState[:2]); class {
	case "22", "23":
		return true
	}
	switch e.Number {
	case 1264, // out of range
		1265, // data truncated
		1292, // wrong value
		1366, // wrong value for the column, wrong bytes for its charset
		1406, // too long
		1690, // out of range, within an expression
		3140, // not JSON
		3819, // violates a CHECK (MySQL)
		4025: // violates a CHECK (MariaDB)
		return true
	}
	return false
}

// isNotSetUp reports whether the table is missing, or not granted to the user.
func isNotSetUp(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == noSuchTable || e.Number == tableDenied)
}

const (
	tableDenied = 1142
	noSuchTable = 1146
)

// After these errors a statement can be sent again, because the server has rolled it back in full.
const (
	lockWaitTimeout = 1205
	deadlock        = 1213
)

// lostTo returns the reason if err means that another writer won, or "" otherwise.
func lostTo(err error) string {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		switch e.Number {
		case deadlock:
			return "deadlock"
		case lockWaitTimeout:
			return "lock_wait"
		}
	}
	return ""
}
