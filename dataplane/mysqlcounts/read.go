package mysqlcounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
)

// replicaLagMaxDefault is twice the default interval of heartbeats.
const replicaLagMaxDefault = 10 * time.Second

// snapshot is a connection to read from, and what it is sure to show.
type snapshot struct {
	conn *sql.Conn

	// nowMs is the primary's clock, before anything was read.
	nowMs int64

	// positionMs is how far what conn shows has come: what is not there yet will be
	// stamped later than an overlap before it. On the primary that is nowMs.
	positionMs int64
}

// cursor is where the next read continues, from whichever server.
func (s snapshot) cursor() store.Cursor { return store.Cursor(s.positionMs) }

// replica is a second server to read from.
type replica struct {
	db     *sql.DB
	lagMax time.Duration
}

// read calls f with a snapshot of the replica, where there is one that is good enough,
// or of the primary.
func (c *Counts) read(ctx context.Context, region string, f func(snapshot) error) error {
	if c.replica != nil {
		switch s, why, err := c.ofReplica(ctx, region); {
		case ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case why == "":
			return withSnapshot(s, f)
		default:
			c.totals.replicaLeft.WithLabelValues(why).Inc()
		}
	}
	s, err := c.ofPrimary(ctx)
	if err != nil {
		return err
	}
	return withSnapshot(s, f)
}

func withSnapshot(s snapshot, f func(snapshot) error) (err error) {
	defer func() { err = errors.Join(err, s.conn.Close()) }()
	return f(s)
}

// ofPrimary asks for the time before there are rows to read, in the same session.
func (c *Counts) ofPrimary(ctx context.Context) (s snapshot, err error) {
	if s.conn, err = c.db.Conn(ctx); err != nil {
		return s, err
	}
	if s.nowMs, err = dataplanedb.New(s.conn).DatabaseNow(ctx); err != nil {
		return s, errors.Join(fmt.Errorf("read the database's clock: %w", err), s.conn.Close())
	}
	s.positionMs = s.nowMs
	return s, nil
}

// ofReplica has no snapshot but a reason if the replica will not do. A primary that does
// not answer is no reason: what the replica has is the best that can be had then.
func (c *Counts) ofReplica(ctx context.Context, region string) (s snapshot, why string, err error) {
	asked, primaryErr := c.queries.DatabaseNow(ctx)
	bound := asked // stamps from the future say nothing about how far it has come
	if primaryErr != nil {
		bound = math.MaxInt64
	}
	if s.conn, err = c.replica.db.Conn(ctx); err != nil {
		return s, "error", err
	}
	s.positionMs, err = dataplanedb.New(s.conn).ReplicaPosition(ctx, dataplanedb.ReplicaPositionParams{
		NowMs: uint64(bound), Region: []byte(region)})
	if err != nil {
		return s, "error", errors.Join(fmt.Errorf("read how far the replica has come: %w", err), s.conn.Close())
	}
	s.nowMs = asked
	if primaryErr != nil {
		s.nowMs = s.positionMs
		return s, "", nil //nolint:nilerr // see above: the replica is the best there is
	}
	lag := time.Duration(max(asked-s.positionMs, 0)) * time.Millisecond
	c.totals.replicaLag.Set(lag.Seconds())
	if lag > c.replica.lagMax {
		return s, "lag", s.conn.Close()
	}
	return s, "", nil
}
