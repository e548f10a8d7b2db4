// Package mysqlcounts is the store.CountStore on MySQL 8 and newer, MariaDB, and
// what else speaks their protocol and takes their upserts. Regions meet in its tables,
// which package schema makes.
//
//	db, err := mysqlcounts.Open("weir_node:secret@tcp(db.internal:3306)/weir")
//	counts := mysqlcounts.New(db, mysqlcounts.Options{})
//
// Every statement is a transaction of its own, and no call needs two of them to be true
// at once, so nothing is ever half done, and any call may be repeated: publishing is taking a
// maximum. A chunk of counts goes out as one multi-row upsert, in the order of the
// primary key: writers of the same rows then wait in one line and never in a circle.
// The package deletes nothing but news that two snapshots have replaced, and its user
// may delete nothing else: schema/README.md has the grants.
//
// What has changed is found by when it changed, on the clock of the database; timely.go
// has why nothing is overlooked. README.md has what each call costs.
//
// A replica may be given to read from. It then tells itself how far it has come, so
// being behind delays what it tells of and never loses it; one that is too far behind is
// left alone. It must commit in the primary's order (replica_preserve_commit_order, the
// default since MySQL 8.0.27; MariaDB always does within one GTID domain).
package mysqlcounts

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
)

// Options tune what a deployment rarely needs to. The zero value is the default.
type Options struct {
	// AttemptsMax bounds how often a statement that lost to another writer (a
	// deadlock, a lock wait that timed out) is sent before its error is returned.
	// Default 5. The caller's ctx bounds it as well.
	AttemptsMax int

	// BackoffMin and BackoffMax bound the pause before the next attempt: a random
	// time of up to BackoffMin, doubled with each attempt, up to BackoffMax.
	// Default 10 ms and 500 ms.
	BackoffMin, BackoffMax time.Duration

	// Overlap is how far before its cursor an import begins to read, and bounds how
	// long a publish may take before its rows are stamped anew. It must be the same in
	// the whole fleet. Lower: less is read twice. Higher: publishes may take longer;
	// below twice the round trip to the database nearly each is sent again.
	// Default 500 ms.
	Overlap time.Duration

	// OwnRows makes imports tell also of cells in which nothing but the region's own
	// component was raised. README.md has what that costs, and what it is good for.
	OwnRows bool

	// Replica is read by imports and digests instead of the database itself, as long
	// as it is no further behind than ReplicaLagMax. nil is none.
	Replica *sql.DB

	// ReplicaLagMax is how old the newest change that a replica has may be. A fleet
	// without traffic has its heartbeats, so it must be above their interval. Default
	// 10 s.
	ReplicaLagMax time.Duration
}

// Counts is a store.CountStore. Its methods may run concurrently. It owns no
// goroutine and does not close its database.
type Counts struct {
	db      *sql.DB
	queries *dataplanedb.Queries
	retry   retry
	checked atomic.Bool // the session's settings were seen to be right: see session.go
	totals  totals

	overlap time.Duration
	clock   func() time.Time
	doubts  doubts
	ownRows bool
	replica *replica // nil without one
}

var _ store.CountStore = (*Counts)(nil)

// New makes a store of a database that Open opened, or one with equal settings: the
// first Publish checks the ones that it relies on.
func New(db *sql.DB, o Options) *Counts {
	c := &Counts{
		db: db, queries: dataplanedb.New(db), totals: newTotals(), clock: time.Now,
		overlap: cmp.Or(max(o.Overlap, 0), overlapDefault), ownRows: o.OwnRows,
	}
	c.retry = newRetry(o, c.totals.retries)
	if o.Replica != nil {
		c.replica = &replica{db: o.Replica, lagMax: cmp.Or(max(o.ReplicaLagMax, 0), replicaLagMaxDefault)}
	}
	return c
}

// Publish implements store.CountStore. Rows that no region could import again are
// refused here, without asking the database.
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
	if err := c.store(ctx, region, counts); err != nil {
		return fmt.Errorf("publish %d counts as %q: %w", len(counts), region, err)
	}
	return nil
}

// store upserts rows so that every later import sees them.
func (c *Counts) store(ctx context.Context, region string, counts []store.Count) error {
	send := func(m multiRow) func(context.Context) error {
		return func(ctx context.Context) error { return c.upsert(ctx, m, region, counts) }
	}
	first := upsertRow
	if c.doubts.about(counts) {
		first = touchRow
	}
	ok, err := c.timely(ctx, send(first), send(touchRow))
	switch {
	case ok:
		c.doubts.settle(counts, c.clock().UnixMilli())
	case err == nil || unanswered(err):
		c.doubts.add(counts)
	}
	return err
}

// upsert sends rows in the order they come in, until they are stored or refused.
func (c *Counts) upsert(ctx context.Context, m multiRow, region string, counts []store.Count) error {
	query, args := m.statement(len(counts)), upsertArgs(region, counts)
	return c.retry.do(ctx, func() error {
		_, err := c.db.ExecContext(ctx, query, args...)
		return classify(err)
	})
}

// checkChunk tells a misused call (a plain error, as no row is at fault) from rows that
// can never be stored (ErrRefused).
func checkChunk(region string, counts []store.Count) error {
	if len(counts) > store.PublishRowsMax {
		return fmt.Errorf("at most %d at a time", store.PublishRowsMax)
	}
	if len(region) < 1 || len(region) > store.RegionBytesMax {
		return fmt.Errorf("region is %d bytes long (1 to %d)", len(region), store.RegionBytesMax)
	}
	for i, n := range counts {
		if i > 0 && counts[i-1].Cell.Compare(n.Cell) >= 0 {
			return fmt.Errorf("row %d: not sorted by cell, or twice", i)
		}
	}
	for i, n := range counts {
		if err := errors.Join(checkCell(n.Cell), checkCount(n.Count)); err != nil {
			return fmt.Errorf("%w: row %d: %w", store.ErrRefused, i, err)
		}
	}
	return nil
}
