package mysqlcounts

import (
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/dataplane/store"
)

// classify marks the errors that name a row's own fault. All others may pass with time:
// a lost connection, a full disk, a server that is read-only, and also a missing table
// or grant, which an operator can mend without a restart of the nodes.
func classify(err error) error {
	var e *mysql.MySQLError
	if errors.As(err, &e) && isRefusal(e) {
		return fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	return err
}

// isRefusal: SQLSTATE class 22 is data exceptions (too long, out of range, not of this
// type), class 23 violated constraints. The numbers are those that one engine or the
// other files under a state that says nothing. A duplicate key is no fault of a row that is
// inserted or else updated: two of those have met, and the next attempt finds one of them.
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

// isNotSetUp: the table is not there, or not for this user.
func isNotSetUp(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == noSuchTable || e.Number == tableDenied)
}

const (
	tableDenied = 1142
	noSuchTable = 1146
)

// Why a statement may be sent again as it is: the server has taken it back in full.
const (
	lockWaitTimeout = 1205
	deadlock        = 1213
)

// lostTo names the reason if err means that another writer won, "" otherwise.
func lostTo(err error) string {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		switch e.Number {
		case deadlock:
			return "deadlock"
		case lockWaitTimeout:
			return "lock_wait"
		}
	}
	return ""
}
