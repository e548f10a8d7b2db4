package mysqlcounts

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/mysqlclient"
	"github.com/weirhq/weir/shared/servers"
)

// R2: if rows of a page are pruned between the statements of a read, the read fails. Otherwise a relay would advance
// its cursor past a row whose payload it lacks, would read the next snapshots without their payloads, and would miss
// the counts of cells that do not grow.
func TestR2RowsPrunedBetweenTheStatementsOfARead(t *testing.T) {
	servers.EachSQL(t, testR2RowsPrunedBetweenTheStatementsOfARead)
}

func testR2RowsPrunedBetweenTheStatementsOfARead(t *testing.T) {
	two := []store.FeedRow{rowOf("a", us0, 1, 0, false), rowOf("b", us0, 2, 0, false)}
	parts := []store.FeedRow{rowOf("a", us0, 1, 1, false), rowOf("b", us0, 2, 1, true)}
	for what, test := range map[string]struct {
		stored     []store.FeedRow
		after      store.FeedCursor
		read       string // the letters that the reader has received up to the cursor
		pruneBelow int64
	}{
		"a stream that is followed":    {two, two[0].Cursor(), "a", 3},
		"a stream that is new":         {two, store.FeedCursor{}, "", 3},
		"a snapshot":                   {parts, store.FeedCursor{}, "", 3},
		"the first part of a snapshot": {parts, store.FeedCursor{}, "", 2},
	} {
		for at := range 3 { // a read is at most three statements
			t.Run(fmt.Sprint(what, ", before statement ", at), func(t *testing.T) {
				dsn := migrated(t)
				n := New(open(t, dsn), Options{}).Feed()
				appendFeed(t, n, test.stored...)
				feed := New(openHooked(t, dsn, at, func() {
					appendFeed(t, n, rowOf("ab", us0, 3, 3, true), rowOf("ab", us0, 4, 4, true))
					if _, err := n.Prune(t.Context(), us0, test.pruneBelow, 9); err != nil {
						t.Error(err)
					}
				}), Options{}).Feed()
				wantBothRead(t, feed, test.after, test.read)
			})
		}
	}
}

// rowOf returns a row whose payload is some letters, a letter for each cell.
func rowOf(cells string, s store.Stream, sequence, snapshot int64, last bool) store.FeedRow {
	return store.FeedRow{Stream: s, Sequence: sequence, Writer: 7, Snapshot: snapshot, Last: last, Payload: []byte(cells)}
}

// wantBothRead reads row by row, like a relay that has read all rows up to a cursor, until no rows are left.
func wantBothRead(t *testing.T, n Feed, cursor store.FeedCursor, read string) {
	t.Helper()
	after := map[store.Stream]store.FeedCursor{us0: cursor}
	for gone := 0; after[us0].Sequence < 4; {
		page, err := n.Read(t.Context(), store.FeedQuery{Region: "eu", After: after, MaxBytes: 1})
		if gone++; err != nil && (gone > 3 || !errors.Is(err, errFeedGone)) {
			t.Fatal(err)
		}
		for _, row := range page.Rows {
			read += string(row.Payload)
			after[us0] = row.Cursor()
		}
	}
	if !strings.Contains(read, "a") || !strings.Contains(read, "b") {
		t.Errorf("the reader was told of %q, want \"a\" and \"b\"", read)
	}
}

// openHooked opens a pool that calls before once, before its statement with the given number, from 0 on.
func openHooked(t *testing.T, dsn string, number int, before func()) *sql.DB {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.InterpolateParams = true
	c, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := closing(t, sql.OpenDB(&hooked{Connector: mysqlclient.Connector(c, lockWait), left: number, before: before}))
	db.SetMaxOpenConns(1)
	return db
}

// hooked is a connector that counts statements.
type hooked struct {
	driver.Connector
	left   int
	before func()
}

func (h *hooked) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := h.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return hookedConn{conn.(mysqlConn), h}, nil
}

// mysqlConn is the part of the driver's connections that a read uses.
type mysqlConn interface {
	driver.Conn
	driver.QueryerContext
	driver.NamedValueChecker
}

type hookedConn struct {
	mysqlConn
	hooked *hooked
}

func (c hookedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.hooked.left--; c.hooked.left == -1 {
		c.hooked.before()
	}
	return c.mysqlConn.QueryContext(ctx, query, args)
}
