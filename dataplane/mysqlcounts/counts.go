// Package mysqlcounts implements store.CountStore, store.Feed and store.Settings on MySQL 8 and newer, on MariaDB, and
// on other databases with their protocol and their upserts, for example TiDB. Regions share its tables, which package
// schema creates.
//
//	db, err := mysqlcounts.Open("weir_node:secret@tcp(db.internal:3306)/weir")
//	counts := mysqlcounts.New(db, mysqlcounts.Options{})
//
// Every statement is a transaction of its own, except for the usage of namespaces, which needs a transaction of
// several. Nothing is ever half done, and you can repeat any call: publishing keeps the larger count, and a report of
// usage is counted once. A chunk of counts is a multi-row upsert in the order of the primary key, so writers of the
// same rows wait for each other in that order and cannot deadlock. The package deletes only rows of the change feed
// that two snapshots have replaced. Its user needs no right to delete anything else: schema/README.md has the grants.
//
// README.md has the cost of each call.
package mysqlcounts

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
)

// Options configure a Counts. The zero value has the defaults, which suit most deployments.
type Options struct {
	// AttemptsMax is how often at most a statement that lost to another writer (by a deadlock or a lock wait timeout) is
	// sent before its error is returned. Default 5. The caller's ctx bounds it as well.
	AttemptsMax int

	// BackoffMin and BackoffMax bound the pause before the next attempt: a random time of up to BackoffMin, doubled with
	// each attempt, up to BackoffMax. Default 10 ms and 500 ms. Higher values put less load on a busy server, but publish
	// counts later. For example, raise BackoffMin if weir_mysql_retries_total grows all the time.
	BackoffMin, BackoffMax time.Duration

	// Logger receives the first row that is left out because no relay can have written it. The
	// default is slog.Default().
	Logger *slog.Logger
}

// Counts is a store.CountStore and a store.Settings. You may call its methods concurrently. It starts no goroutines and
// does not close its database.
type Counts struct {
	db      *sql.DB
	queries *dataplanedb.Queries
	retry   retry
	checked atomic.Bool // the session's settings were checked: see session.go
	totals  totals

	logger      *slog.Logger
	invalidOnce sync.Once // for the first invalid row, which is logged
	usageOnce   sync.Once // for the first report of usage that was not stored
}

var (
	_ store.CountStore = (*Counts)(nil)
	_ store.Settings   = (*Counts)(nil)
)

// New returns a store on a database that Open opened, or another pool with equal settings. The first Publish checks the
// settings that it depends on.
func New(db *sql.DB, o Options) *Counts {
	c := &Counts{db: db, queries: dataplanedb.New(db), totals: newTotals(), logger: cmp.Or(o.Logger, slog.Default())}
	c.retry = newRetry(o, c.totals.retries)
	return c
}

// Publish implements store.CountStore. It returns store.ErrRefused for rows that Import would leave out, without a call
// to the database.
func (c *Counts) Publish(ctx context.Context, region string, counts []store.Count) error {
	if len(counts) == 0 {
		return ctx.Err()
	}
	if err := checkChunk(region, counts); err != nil {
		return fmt.Errorf("publish %d counts as %q: %w", len(counts), region, err)
	}
	if err := c.checkSession(ctx); err != nil {
		return fmt.Errorf("publish %d counts as %q: %w", len(counts), region, err)
	}
	if err := c.upsert(ctx, region, counts); err != nil {
		return fmt.Errorf("publish %d counts as %q: %w", len(counts), region, err)
	}
	return nil
}

// upsert sends rows in their order, until they are stored or refused.
func (c *Counts) upsert(ctx context.Context, region string, counts []store.Count) error {
	query, args := upsertRow.statement(len(counts)), upsertArgs(region, counts)
	return c.retry.do(ctx, func() error {
		_, err := c.db.ExecContext(ctx, query, args...)
		return classify(err)
	})
}

// each runs a query, and calls scan for each row while the database still sends rows.
func (c *Counts) each(ctx context.Context, scan func(*sql.Rows) error, query string, args ...any) (err error) {
	rows, err := c.db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// checkChunk checks the arguments of Publish. A misused call gets a plain error. Rows that can never be stored get
// store.ErrRefused.
func checkChunk(region string, counts []store.Count) error {
	if len(counts) > store.PublishRowsMax {
		return fmt.Errorf("at most %d at a time", store.PublishRowsMax)
	}
	if err := checkRegion(region); err != nil {
		return err
	}
	for i, n := range counts {
		if i > 0 && counts[i-1].Cell.Compare(n.Cell) >= 0 {
			return fmt.Errorf("row %d: not sorted by cell, or twice", i)
		}
	}
	for i, n := range counts {
		if err := errors.Join(n.Cell.Validate(), checkCount(n.Count)); err != nil {
			return fmt.Errorf("%w: row %d: %w", store.ErrRefused, i, err)
		}
	}
	return nil
}
