package mysqlcounts

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/shared/mysqldsn"
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
	// connLifetime lets connections move to the server that a name stands for now.
	connLifetime = 5 * time.Minute
	connIdle     = time.Minute
)

// sessionSettings is what every connection sets, after whatever the server's defaults,
// its init_connect and the DSN have set.
const sessionSettings = "SET " +
	// The charset decides where a quoted text ends: under gbk, say, a byte before a
	// backslash can eat it, and the text could end early.
	"NAMES utf8mb4, " +
	// Refuse what does not fit its column. Without it a name that is too long would be
	// cut, and two people counted as one.
	"SESSION sql_mode = 'STRICT_ALL_TABLES', " +
	// No statement here is followed by a COMMIT.
	"SESSION autocommit = 1, " +
	// Less than the 2 s that a relay waits for a call, so that one that waits for a lock is counted as that and sent
	// again, and does not go on in a connection that nothing reads. The default is 50 s.
	"SESSION innodb_lock_wait_timeout = 1"

// Open prepares a pool of connections for New, of a DSN in the form of go-sql-driver
// (user:password@tcp(host:port)/database?tls=true) with the parameters for files of TLS
// that package mysqldsn adds. No error holds the password. It connects when first used. The
// caller closes it, and may change the pool's bounds.
//
// It sets timeouts where the DSN has none, and what the statements rely on wherever
// they run (see sessionSettings). Arguments travel within the statement, which takes
// one round trip instead of three; names are binary literals there. A server that has
// become read-only is left for another connection.
func Open(dsn string) (*sql.DB, error) {
	config, err := mysqldsn.Parse(dsn)
	if err != nil {
		return nil, err
	}
	config.Timeout = cmp.Or(config.Timeout, dialTimeout)
	config.ReadTimeout = cmp.Or(config.ReadTimeout, readTimeout)
	config.WriteTimeout = cmp.Or(config.WriteTimeout, writeTimeout)
	config.InterpolateParams = true
	config.RejectReadOnly = true
	config.Logger = &mysql.NopLogger{} // errors are returned, and counted by whom they reach

	c, err := mysql.NewConnector(config)
	if err != nil {
		return nil, errors.New("the MySQL DSN cannot be used") // the driver's error may quote it
	}
	db := sql.OpenDB(connector{c})
	db.SetMaxOpenConns(connsMax)
	db.SetMaxIdleConns(connsMax)
	db.SetConnMaxLifetime(connLifetime)
	db.SetConnMaxIdleTime(connIdle)
	return db, nil
}

// connector hands out connections with sessionSettings.
type connector struct{ driver.Connector }

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.(driver.ExecerContext).ExecContext(ctx, sessionSettings, nil); err != nil {
		_ = conn.Close() // the error above says more
		return nil, fmt.Errorf("%s: %w", sessionSettings, err)
	}
	return conn, nil
}
