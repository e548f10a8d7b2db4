package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// Replica is a running replica of another server of the same engine. Only replication can write on it. It applies the
// primary's commits immediately, unless it is held.
type Replica struct {
	*SQL
	Primary *SQL
}

// StartReplica starts a primary and a replica of it. ctx bounds the start; Stop ends both.
func StartReplica(ctx context.Context, e Engine) (*Replica, error) {
	primary, err := StartSQL(ctx, e, Options{Args: append(replicationArgs[e], "--server-id=1")})
	if err != nil {
		return nil, err
	}
	replica, err := StartSQL(ctx, e,
		Options{Args: append(replicationArgs[e], "--server-id=2", "--relay-log=relay", "--read-only")})
	if err != nil {
		return nil, errors.Join(err, primary.Stop())
	}
	r := &Replica{SQL: replica, Primary: primary}
	if err := r.follow(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start a replica: %w", err), r.Stop())
	}
	return r, nil
}

// replicationArgs: MariaDB always has GTIDs, MySQL always applies in parallel. No log waits for the disk.
var replicationArgs = map[Engine][]string{
	MariaDB: {"--log-bin=binlog", "--sync-binlog=0", "--slave-parallel-threads=4"},
	MySQL:   {"--log-bin=binlog", "--sync-binlog=0", "--gtid-mode=ON", "--enforce-gtid-consistency=ON"},
}

func (r *Replica) follow(ctx context.Context) error {
	statement := "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='root', MASTER_USE_GTID=slave_pos"
	if r.Engine == MySQL {
		statement = "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=%d, SOURCE_USER='root', " +
			"SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1"
	}
	if err := r.exec(ctx, fmt.Sprintf(statement, r.Primary.port.number)); err != nil {
		return err
	}
	return r.exec(ctx, "START REPLICA")
}

// Stop ends the replica and its primary.
func (r *Replica) Stop() error { return errors.Join(r.SQL.Stop(), r.Primary.Stop()) }

// Of returns the data source name of the same database on the replica.
func (r *Replica) Of(dsn string) (string, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return "", err
	}
	config.Addr = r.Addr()
	return config.FormatDSN(), nil
}

// Hold prevents the replica from applying the changes that it receives.
func (r *Replica) Hold(ctx context.Context) error { return r.exec(ctx, "STOP REPLICA SQL_THREAD") }

// Release continues a replica that is held.
func (r *Replica) Release(ctx context.Context) error { return r.exec(ctx, "START REPLICA SQL_THREAD") }

// CatchUp returns when the replica has applied everything that the primary had committed at the call. The replica must
// not be held.
func (r *Replica) CatchUp(ctx context.Context) error {
	committed, wait := "SELECT @@GLOBAL.gtid_binlog_pos", "SELECT MASTER_GTID_WAIT(?, 60)"
	if r.Engine == MySQL {
		committed, wait = "SELECT @@GLOBAL.gtid_executed", "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, 60)"
	}
	var position string
	ask := func(db *sql.DB) error { return db.QueryRowContext(ctx, committed).Scan(&position) }
	if err := r.Primary.connected(ask); err != nil {
		return fmt.Errorf("read the primary's position: %w", err)
	}
	var late int
	err := r.connected(func(db *sql.DB) error { return db.QueryRowContext(ctx, wait, position).Scan(&late) })
	if err == nil && late != 0 {
		err = fmt.Errorf("not within 60 s: %s", position)
	}
	if err != nil {
		return fmt.Errorf("wait for the replica: %w", err)
	}
	return nil
}

// SharedReplica returns the replica of the test's engine that all tests of this binary share, as SharedSQL does for a
// server. A test that holds it must release it, and two such tests must not run concurrently.
func SharedReplica(t testing.TB) *Replica {
	t.Helper()
	return sharedOf(t, shared.replicas, func(e Engine) (*Replica, error) { return StartReplica(context.Background(), e) })
}
