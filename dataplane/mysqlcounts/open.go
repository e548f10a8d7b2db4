package mysqlcounts

import (
	"database/sql"
	"time"

	"github.com/weirhq/weir/shared/mysqlclient"
)

// What Open sets unless the DSN does. A call's own ctx usually ends it earlier.
const (
	dialTimeout = 3 * time.Second
	// An import sends its first row as soon as the database has found it, so a read
	// waits for one row and not for all.
	readTimeout  = 30 * time.Second
	writeTimeout = 30 * time.Second

	// connsMax bounds a node's share of the server: the relay's news and counts, a read of the
	// settings and a heartbeat at once.
	connsMax = 4

	// lockWait is less than the 2 s that a relay waits for a call, so that one that waits for a lock is counted as that
	// and sent again, and does not go on in a connection that nothing reads.
	lockWait = time.Second
)

// Open prepares a pool of connections for New, of a DSN in the form of go-sql-driver
// (user:password@tcp(host:port)/database?tls=true) with the parameters for files of TLS
// that package mysqldsn adds. No error holds the password. It connects when first used. The
// caller closes it, and may change the pool's bounds.
//
// It sets timeouts where the DSN has none; package mysqlclient sets what the statements rely on.
func Open(dsn string) (*sql.DB, error) {
	return mysqlclient.Open(dsn, mysqlclient.Options{ConnsMax: connsMax, IdleMax: connsMax,
		DialTimeout: dialTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, LockWait: lockWait})
}
