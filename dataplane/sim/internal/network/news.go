package network

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/store"
)

// News is the store of news as one relay sees it: behind the relay's link to MySQL and MySQL's
// own delays and failures, and metered. A statement that has left is executed, whatever becomes of
// its caller.
type News struct {
	store.News
	*Statements
}

var _ store.News = News{}

// Statements is a process's way to the one MySQL.
type Statements struct {
	Link     *Link
	Database *Database
	Meters   *MySQLMeters
}

// MySQLMeters count, as mysqlcounts would cause them, statements; rows that MySQL examines and
// changes; and bytes of rows that it receives and sends: each row has store.NewsRowBytes
// beside its payload.
type MySQLMeters struct {
	Statements, RowsRead, RowsWritten atomic.Int64
	BytesRead, BytesWritten           atomic.Int64
}

// call is one call's way there and back around what it does.
func (s *Statements) call(ctx context.Context, op string, do func(context.Context) error) error {
	v, err := s.Link.embark(op)
	if err != nil {
		return err
	}
	return v.carry(ctx, op, func(ctx context.Context) error {
		if err := s.Database.embark(ctx, op); err != nil {
			return err
		}
		return do(ctx)
	})
}

// Append implements store.News. It is one statement.
func (n News) Append(ctx context.Context, row store.NewsRow) error {
	row.Payload = slices.Clone(row.Payload)
	return n.call(ctx, "append news", func(ctx context.Context) error {
		n.Meters.Statements.Add(1)
		n.Meters.BytesWritten.Add(int64(len(row.Payload)) + store.NewsRowBytes)
		err := n.News.Append(ctx, row)
		if err == nil {
			n.Meters.RowsWritten.Add(1)
		}
		return err
	})
}

// Read implements store.News. It is one statement, which examines each row that it returns and, to prove
// them, the row of each cursor; and a second one for streams that have no cursor.
func (n News) Read(ctx context.Context, q store.NewsQuery) (store.NewsPage, error) {
	q.After = maps.Clone(q.After)
	var page store.NewsPage
	err := n.call(ctx, "read news", func(ctx context.Context) (err error) {
		page, err = n.News.Read(ctx, q)
		n.Meters.Statements.Add(1)
		n.Meters.RowsRead.Add(int64(len(page.Rows)))
		if q.Prove {
			n.Meters.RowsRead.Add(int64(len(q.After)))
			n.Meters.BytesRead.Add(int64(len(q.After)) * store.NewsRowBytes)
		}
		n.received(page.Rows)
		if slices.ContainsFunc(page.Rows, func(r store.NewsRow) bool { _, ok := q.After[r.Stream]; return !ok }) {
			n.Meters.Statements.Add(1)
		}
		return err
	})
	if err != nil {
		return store.NewsPage{}, err
	}
	return page, nil
}

func (n News) received(rows []store.NewsRow) {
	for i := range rows {
		n.Meters.BytesRead.Add(int64(len(rows[i].Payload)) + store.NewsRowBytes)
	}
}

// Own implements store.News. It is one statement, which the caller reads only if it is still there.
func (n News) Own(ctx context.Context, stream store.Stream, yield func(store.NewsRow)) error {
	read := make(chan []store.NewsRow, 1)
	err := n.call(ctx, "read own news", func(ctx context.Context) error {
		n.Meters.Statements.Add(1)
		var rows []store.NewsRow
		err := n.News.Own(ctx, stream, func(row store.NewsRow) { rows = append(rows, row) })
		n.Meters.RowsRead.Add(int64(len(rows)))
		n.received(rows)
		read <- rows
		return err
	})
	if err != nil {
		return err
	}
	for _, row := range <-read {
		yield(row)
	}
	return nil
}

// Prune implements store.News. It is two statements: it looks for the stream's last row first.
func (n News) Prune(ctx context.Context, stream store.Stream, sequence int64, max int) (int, error) {
	deleted := 0
	err := n.call(ctx, "prune news", func(ctx context.Context) (err error) {
		deleted, err = n.News.Prune(ctx, stream, sequence, max)
		n.Meters.Statements.Add(2)
		n.Meters.RowsRead.Add(int64(deleted) + 1)
		n.Meters.RowsWritten.Add(int64(deleted))
		return err
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}
