// Package mysqlclient opens MySQL for every program, and is the one place that sets up connections.
// It ensures that
//
//   - no setting of the server, of a proxy or of the DSN changes the meaning of a statement;
//   - a connection to a server that has become read-only is replaced.
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
	// connLifetime makes connections move to the server to which a name points now. After a
	// failover the former primary may continue as a replica that still answers reads.
	connLifetime = 5 * time.Minute
	// connIdle is shorter than the time after which load balancers drop silent connections.
	connIdle = time.Minute

	lockWaitDefault = 50 * time.Second // the server's default
)

// PacketBytesMin is the least max_allowed_packet of the server. The longest statement reads the changes of 4,000
// regions, the most that a relay follows, with the longest names and each byte escaped into two: 2.9 MB
// (TestTheLongestStatementFitsIntoAPacket in dataplane/mysqlcounts). The default is 64 MiB in MySQL and 16 MiB in
// MariaDB.
const PacketBytesMin = 4 << 20

// Options are the differences between the pools of Weir's programs. A timeout in the DSN takes
// precedence. A zero timeout means none.
type Options struct {
	ConnsMax int // of the pool; idle connections are kept up to IdleMax
	IdleMax  int

	DialTimeout, ReadTimeout, WriteTimeout time.Duration

	// LockWait is how long a statement waits for a row that another transaction has locked, in
	// whole seconds. Zero means 50 s.
	LockWait time.Duration
}

// Open prepares a pool of connections to a DSN in the form of package mysqldsn. It does not
// connect, so that a program may start before its database does. No error contains the password.
// The caller must close the pool.
//
// The driver puts arguments into the text of the statement, which takes one round trip instead of
// three; []byte becomes a binary literal.
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
	config.Logger = &mysql.NopLogger{} // errors are returned, and counted by the caller

	c, err := mysql.NewConnector(config)
	if err != nil {
		return nil, errors.New("the MySQL DSN cannot be used") // the driver's error may quote the DSN
	}
	db := sql.OpenDB(Connector(c, o.LockWait))
	db.SetMaxOpenConns(o.ConnsMax)
	db.SetMaxIdleConns(o.IdleMax)
	db.SetConnMaxLifetime(connLifetime)
	db.SetConnMaxIdleTime(connIdle)
	return db, nil
}

// settings returns the statements that set up each connection. They override the server's defaults,
// its init_connect and the DSN.
func settings(lockWait time.Duration) []string {
	return []string{
		"SET " +
			// The charset decides where a quoted text ends. In gbk, for example, a byte before a
			// backslash can absorb it, so that the text would end early.
			"NAMES utf8mb4, " +
			// Refuse a value that does not fit its column, because two truncated names would count
			// as one.
			"SESSION sql_mode = 'STRICT_ALL_TABLES', " +
			// Without autocommit, no write outside a transaction is ever committed, and reads see
			// the first snapshot forever.
			"SESSION autocommit = 1, " +
			// In a time zone with daylight saving, NOW() is ambiguous for one hour a year.
			"SESSION time_zone = '+00:00', " +
			fmt.Sprintf("SESSION innodb_lock_wait_timeout = %d, ", int(cmp.Or(lockWait, lockWaitDefault).Seconds())) +
			// These are the defaults. A migration is one long statement, and the session that holds
			// its lock is silent meanwhile.
			"SESSION wait_timeout = 28800, " +
			"SESSION sql_select_limit = 18446744073709551615, SESSION sql_safe_updates = 0, SESSION sql_big_selects = 1, " +
			"SESSION unique_checks = 1, SESSION default_storage_engine = 'InnoDB'" +
			// No time limit for reads. MariaDB and MySQL have different variables for it, and each
			// executes its own comment.
			"/*M!100100 , SESSION max_statement_time = 0 *//*!80000 , SESSION max_execution_time = 0 */",
		// The default of both servers. Another level may block other writers or read uncommitted
		// rows; READ ONLY takes no writes.
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE",
	}
}

// Connector wraps a connector so that its connections have the settings of Open.
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
			_ = conn.Close() // the error above is more useful
			return nil, fmt.Errorf("%s: %w", statement, err)
		}
	}
	return conn, nil
}
