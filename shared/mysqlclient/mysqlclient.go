// Package mysqlclient opens MySQL for every program. It is the one place that knows how a connection must be set up:
// a setting of the server, of a proxy or of the DSN never changes the meaning of a statement, and a connection to a
// server that has become read-only is left for another one.
package mysqlclient

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

const (
	// connLifetime lets connections move to the server that a name stands for now: after a failover the former primary
	// may go on as a replica that still answers reads.
	connLifetime = 5 * time.Minute
	// connIdle is shorter than load balancers keep silent connections.
	connIdle = time.Minute

	lockWaitDefault = 50 * time.Second // the server's
)

// PacketBytesMin is what the server's max_allowed_packet must allow. The longest statement reads the news of 4,000
// regions, the most of a relay, with the longest names, each byte escaped into two: 2.9 MB
// (TestTheLongestStatementFitsIntoAPacket in dataplane/mysqlcounts). MySQL's default is 64 MiB, MariaDB's 16 MiB.
const PacketBytesMin = 4 << 20

// Options are what differs between the uses of a pool. Timeouts of the DSN win; zero means none.
type Options struct {
	ConnsMax int // of the pool; idle ones are kept up to IdleMax
	IdleMax  int

	DialTimeout, ReadTimeout, WriteTimeout time.Duration

	// LockWait is how long a statement waits for a row that another transaction has locked, in whole seconds. Zero
	// means 50 s.
	LockWait time.Duration
}

// Open prepares a pool of connections to a DSN in the form of package mysqldsn. It connects when first used, so that a
// program may start before its database does. No error holds the password. The caller closes the pool.
//
// Arguments travel within the statement, which takes one round trip instead of three; []byte is a binary literal there.
func Open(dsn string, o Options) (*sql.DB, error) {
	config, err := mysqldsn.Parse(dsn)
	if err != nil {
		return nil, err
	}
	config.Timeout = cmp.Or(config.Timeout, o.DialTimeout)
	config.ReadTimeout = cmp.Or(config.ReadTimeout, o.ReadTimeout)
	config.WriteTimeout = cmp.Or(config.WriteTimeout, o.WriteTimeout)
	config.InterpolateParams = true
	config.RejectReadOnly = true
	config.Logger = &mysql.NopLogger{} // errors are returned, and counted by whom they reach

	c, err := mysql.NewConnector(config)
	if err != nil {
		return nil, errors.New("the MySQL DSN cannot be used") // the driver's error may quote it
	}
	db := sql.OpenDB(Connector(c, o.LockWait))
	db.SetMaxOpenConns(o.ConnsMax)
	db.SetMaxIdleConns(o.IdleMax)
	db.SetConnMaxLifetime(connLifetime)
	db.SetConnMaxIdleTime(connIdle)
	return db, nil
}

// settings are what every connection sets, after whatever the server's defaults, its init_connect and the DSN have set.
func settings(lockWait time.Duration) []string {
	return []string{
		"SET " +
			// The charset decides where a quoted text ends: under gbk, say, a byte before a
			// backslash can eat it, and the text could end early.
			"NAMES utf8mb4, " +
			// Refuse a value that does not fit its column: cut names would be counted as one.
			"SESSION sql_mode = 'STRICT_ALL_TABLES', " +
			// Without it no write outside of a transaction is ever committed, and reads stay at their first snapshot.
			"SESSION autocommit = 1, " +
			// NOW() of a zone with daylight saving is ambiguous for an hour a year.
			"SESSION time_zone = '+00:00', " +
			fmt.Sprintf("SESSION innodb_lock_wait_timeout = %d, ", int(cmp.Or(lockWait, lockWaitDefault).Seconds())) +
			// The defaults. A migration is one long statement, and its lock is held by a session that is silent meanwhile.
			"SESSION wait_timeout = 28800, " +
			"SESSION sql_select_limit = 18446744073709551615, SESSION sql_safe_updates = 0, SESSION sql_big_selects = 1, " +
			"SESSION unique_checks = 1, SESSION default_storage_engine = 'InnoDB'" +
			// A limit in time that ends every long read. MariaDB and MySQL have variables of different names, and each
			// reads its own comment.
			"/*M!100100 , SESSION max_statement_time = 0 *//*!80000 , SESSION max_execution_time = 0 */",
		// The default of both. A server's may block other writers, read what is not committed, or take no writes.
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE",
	}
}

// Connector returns a connector whose connections have the settings that Open makes.
func Connector(inner driver.Connector, lockWait time.Duration) driver.Connector {
	return connector{inner, settings(lockWait)}
}

type connector struct {
	driver.Connector
	settings []string
}

// Connect implements driver.Connector.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, statement := range c.settings {
		if _, err := conn.(driver.ExecerContext).ExecContext(ctx, statement, nil); err != nil {
			_ = conn.Close() // the error above says more
			return nil, fmt.Errorf("%s: %w", statement, err)
		}
	}
	return conn, nil
}
