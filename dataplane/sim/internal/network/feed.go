package network

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/store"
)

// Feed is the change feed as a relay calls it: behind the relay's link to MySQL and MySQL's own delays and failures,
// and metered. A statement that was sent is executed, even if its caller gives up.
type Feed struct {
	store.Feed
	*Statements
}

var _ store.Feed = Feed{}

// Statements is a process's connection to MySQL.
type Statements struct {
	Link     *Link
	Database *Database
	Meters   *MySQLMeters
}

// MySQLMeters count the load that mysqlcounts would cause: statements, rows that MySQL examines and changes, and bytes
// of rows that it receives and sends. Each row counts store.FeedRowBytes in addition to its payload.
type MySQLMeters struct {
	Statements, RowsRead, RowsWritten atomic.Int64
	BytesRead, BytesWritten           atomic.Int64
}

// query carries a call to MySQL and its reply back.
func query[R any](ctx context.Context, s *Statements, op string,
	do func(context.Context) (R, error)) (reply R, err error) {
	v, err := s.Link.embark(op)
	if err != nil {
		return reply, err
	}
	return carry(ctx, v, op, func(ctx context.Context) (R, error) {
		if err := s.Database.embark(ctx, op); err != nil {
			return reply, err
		}
		return do(ctx)
	})
}

// call is query for a call whose reply is only an acknowledgment.
func (s *Statements) call(ctx context.Context, op string, do func(context.Context) error) error {
	_, err := query(ctx, s, op, unanswered(do))
	return err
}

// Append implements store.Feed. It counts as a single statement.
func (n Feed) Append(ctx context.Context, row store.FeedRow) error {
	row.Payload = slices.Clone(row.Payload)
	return n.call(ctx, "append change", func(ctx context.Context) error {
		n.Meters.Statements.Add(1)
		n.Meters.BytesWritten.Add(int64(len(row.Payload)) + store.FeedRowBytes)
		err := n.Feed.Append(ctx, row)
		if err == nil {
			n.Meters.RowsWritten.Add(1)
		}
		return err
	})
}

// Read implements store.Feed. It counts as a statement that examines each returned row and, to prove the cursors, the
// row of each cursor. If streams have no cursor, it counts as two statements.
func (n Feed) Read(ctx context.Context, q store.FeedQuery) (store.FeedPage, error) {
	q.After = maps.Clone(q.After)
	return query(ctx, n.Statements, "read feed", func(ctx context.Context) (store.FeedPage, error) {
		page, err := n.Feed.Read(ctx, q)
		n.Meters.Statements.Add(1)
		n.Meters.RowsRead.Add(int64(len(page.Rows)))
		if q.Prove {
			n.Meters.RowsRead.Add(int64(len(q.After)))
			n.Meters.BytesRead.Add(int64(len(q.After)) * store.FeedRowBytes)
		}
		n.received(page.Rows)
		if slices.ContainsFunc(page.Rows, func(r store.FeedRow) bool { _, ok := q.After[r.Stream]; return !ok }) {
			n.Meters.Statements.Add(1)
		}
		return page, err
	})
}

func (n Feed) received(rows []store.FeedRow) {
	for i := range rows {
		n.Meters.BytesRead.Add(int64(len(rows[i].Payload)) + store.FeedRowBytes)
	}
}

// Own implements store.Feed. It counts as one statement. Rows are yielded only if the caller has not given up.
func (n Feed) Own(ctx context.Context, stream store.Stream, yield func(store.FeedRow)) error {
	read, err := query(ctx, n.Statements, "read own feed", func(ctx context.Context) (rows []store.FeedRow, err error) {
		n.Meters.Statements.Add(1)
		err = n.Feed.Own(ctx, stream, func(row store.FeedRow) { rows = append(rows, row) })
		n.Meters.RowsRead.Add(int64(len(rows)))
		n.received(rows)
		return rows, err
	})
	for _, row := range read {
		yield(row)
	}
	return err
}

// Prune implements store.Feed. It counts as two statements, because it first reads the stream's last row.
func (n Feed) Prune(ctx context.Context, stream store.Stream, sequence int64, max int) (int, error) {
	return query(ctx, n.Statements, "prune feed", func(ctx context.Context) (int, error) {
		deleted, err := n.Feed.Prune(ctx, stream, sequence, max)
		n.Meters.Statements.Add(2)
		n.Meters.RowsRead.Add(int64(deleted) + 1)
		n.Meters.RowsWritten.Add(int64(deleted))
		return deleted, err
	})
}
