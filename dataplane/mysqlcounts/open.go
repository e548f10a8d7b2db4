package mysqlcounts

import (
	"database/sql"
	"time"

	"github.com/weirhq/weir/shared/mysqlclient"
)

// Timeouts that Open sets unless the DSN has them. A call's own ctx usually ends it earlier.
const (
	dialTimeout = 3 * time.Second
	// An import sends its first row as soon as the database has found it, so this bounds the wait for a single row.
	readTimeout  = 30 * time.Second
	writeTimeout = 30 * time.Second

	// connsMax bounds a node's connections to the server: for the relay's change feed and counts, the settings, and a
	// heartbeat at once.
	connsMax = 4

	// lockWait is shorter than the 2 s for which a relay waits for a call. So a call that waits for a lock fails and is
	// sent again, instead of running on in a connection that no call reads from.
	lockWait = time.Second
)

// Open prepares a pool of connections for New. The DSN has go-sql-driver's form
// (user:password@tcp(host:port)/database?tls=true), and may have the parameters for TLS files of
// package mysqldsn. Open does not connect. No error contains the password. The caller must close
// the pool, and may change its bounds.
//
// Open sets timeouts if the DSN has none. Package mysqlclient sets the session variables that the
// statements rely on.
func Open(dsn string) (*sql.DB, error) {
	return mysqlclient.Open(dsn, mysqlclient.Options{ConnsMax: connsMax, IdleMax: connsMax,
		DialTimeout: dialTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, LockWait: lockWait})
}
