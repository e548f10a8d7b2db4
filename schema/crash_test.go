package schema

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/shared/servers"
)

// "A process that dies while it works delays no other: the next does the rest of its work": it dies after its first
// statement, after its second, and so on through all of them. The next run must always finish.
func TestMigrateAfterACrashAtEveryStatement(t *testing.T) {
	servers.EachSQL(t, testMigrateAfterACrashAtEveryStatement)
}

func testMigrateAfterACrashAtEveryStatement(t *testing.T) {
	all, latest := withAlteration(t), Latest()+1
	for survived := int64(0); ; survived++ {
		db, dsn := emptyDatabase(t)
		c := &crashing{Connector: connector(t, dsn)}
		c.left.Store(survived)
		dying := sql.OpenDB(c)
		err := apply(t.Context(), dying, all, quiet)
		if closeErr := dying.Close(); closeErr != nil {
			t.Error(closeErr)
		}
		if err == nil {
			if survived < 2*latest { // each migration's own statement, and the statement that records it
				t.Fatalf("only %d statements were seen", survived)
			}
			return
		}
		if !errors.Is(err, errCrashed) {
			t.Fatalf("after %d statements: %v", survived, err)
		}
		if err := apply(t.Context(), db, all, quiet); err != nil {
			t.Fatalf("died after statement %d; the next run: %v", survived, err)
		}
		wantVersion(t, db, latest)
	}
}

// A migration that names a column that is not there has failed, though a renamed column's former name is not there
// either.
func TestAMistakenAlterationIsNotTakenForDone(t *testing.T) {
	servers.EachSQL(t, func(t *testing.T) {
		db, _ := emptyDatabase(t)
		migrate(t, db)
		later, name := maps.Clone(withAlteration(t).(fstest.MapFS)), fmt.Sprintf("%05d_nodes_later.sql", Latest()+1)
		later[name] = &fstest.MapFile{Data: []byte("-- +goose Up\n" +
			"ALTER TABLE ratelimit_nodes ADD COLUMN later BIGINT NULL DEFAULT NULL AFTER missing;\n")}
		if err := apply(t.Context(), db, later, quiet); !isNumber(err, unknownColumn) {
			t.Errorf("error %v, want one of an unknown column", err)
		}
		wantVersion(t, db, Latest())
	})
}

var errCrashed = errors.New("crashed")

// crashing is a process that dies right after the server has done a statement: its
// connection is gone, and nothing works any more.
type crashing struct {
	driver.Connector
	left atomic.Int64
}

func (c *crashing) Connect(ctx context.Context) (driver.Conn, error) {
	if c.left.Load() < 0 {
		return nil, errCrashed
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &crashingConn{mysqlConn: conn.(mysqlConn), crashing: c}, nil
}

// mysqlConn has the methods of the driver's connections that are used here.
type mysqlConn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnBeginTx
	driver.NamedValueChecker
}

type crashingConn struct {
	mysqlConn
	crashing *crashing
}

func (c *crashingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.crashing.left.Load() < 0 {
		return nil, errCrashed
	}
	result, err := c.mysqlConn.ExecContext(ctx, query, args)
	if c.crashing.left.Add(-1) < 0 {
		return nil, errors.Join(errCrashed, c.Close())
	}
	return result, err
}

func (c *crashingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.crashing.left.Load() < 0 {
		return nil, errCrashed
	}
	rows, err := c.mysqlConn.QueryContext(ctx, query, args)
	if c.crashing.left.Add(-1) < 0 {
		return nil, errors.Join(errCrashed, c.Close())
	}
	return rows, err
}

func connector(t *testing.T, dsn string) driver.Connector {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	c, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
