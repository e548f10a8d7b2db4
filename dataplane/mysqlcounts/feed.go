package mysqlcounts

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
)

// Feed is a store.Feed in the table ratelimit_changes of a Counts' database. Feed and imports should use a connection
// to the primary: a reader on a replica reads late, but skips nothing.
//
// The primary key decides between two writers of the same number. A row is stored only if the row before it is stored,
// so a reader never sees gaps in a stream, in whatever order transactions commit. If another transaction has inserted
// the same number and not committed yet, an append waits for it. The wait ends with the append's ctx, or after
// innodb_lock_wait_timeout and the attempts of Options.
type Feed struct{ c *Counts }

var _ store.Feed = Feed{}

// Feed returns the change feed in the same database. It shares the connections and the metrics of Counts.
func (c *Counts) Feed() Feed { return Feed{c} }

// Append implements store.Feed.
func (n Feed) Append(ctx context.Context, row store.FeedRow) error {
	err := row.Validate()
	if err == nil {
		err = n.c.checkSession(ctx)
	}
	if err == nil {
		err = n.insert(ctx, row)
	}
	if err != nil {
		return fmt.Errorf("append change %d of %q, shard %d: %w", row.Sequence, row.Region, row.Shard, err)
	}
	return nil
}

func (n Feed) insert(ctx context.Context, row store.FeedRow) error {
	var stored int64
	err := n.c.retry.do(ctx, func() (err error) {
		stored, err = n.c.queries.FeedInsert(ctx, insertParams(row))
		return err
	})
	switch {
	case err != nil && !isDuplicate(err):
		return err
	case err == nil && stored == 1:
		return nil
	}
	return n.compare(ctx, row)
}

func insertParams(row store.FeedRow) dataplanedb.FeedInsertParams {
	return dataplanedb.FeedInsertParams{
		Region: []byte(row.Region), Shard: uint16(row.Shard), Sequence: row.Sequence, Previous: row.Sequence - 1,
		Writer: row.Writer, Snapshot: row.Snapshot, LastPart: row.Last,
		PayloadBytes: uint32(len(row.Payload)), Payload: append([]byte{}, row.Payload...), // nil would be NULL
	}
}

// compare returns nil if the stored row is the same row from the same writer. Otherwise it returns store.ErrTaken: the
// number is taken, or it is not the next number.
func (n Feed) compare(ctx context.Context, row store.FeedRow) error {
	stored, err := n.c.queries.FeedStored(ctx, dataplanedb.FeedStoredParams{
		Region: []byte(row.Region), Shard: uint16(row.Shard), Sequence: row.Sequence})
	if err != nil {
		return fmt.Errorf("compare with the stored row: %w", err)
	}
	for _, s := range stored {
		same := s.Writer == row.Writer && s.Snapshot == row.Snapshot && s.LastPart == row.Last
		if same && bytes.Equal(s.Payload, row.Payload) {
			return nil
		}
	}
	return store.ErrTaken
}

// Own implements store.Feed. It yields rows while the database still sends them, so it never holds more than a row.
func (n Feed) Own(ctx context.Context, stream store.Stream, yield func(store.FeedRow)) error {
	region, shard := []byte(stream.Region), stream.Shard
	err := stream.Validate()
	if err == nil {
		err = n.c.each(ctx, func(rows *sql.Rows) error {
			row, last, writtenAtMs := store.FeedRow{Stream: stream}, int64(0), uint64(0)
			err := rows.Scan(&row.Sequence, &row.Writer, &row.Snapshot, &last, &writtenAtMs, &row.Payload)
			if err == nil {
				row.Last, row.WrittenAt = last != 0, time.UnixMilli(saturate(writtenAtMs))
				yield(row)
			}
			return err
		}, dataplanedb.FeedOwn, region, shard, region, shard)
	}
	if err != nil {
		return fmt.Errorf("read the change feed of %q, shard %d: %w", stream.Region, stream.Shard, err)
	}
	return nil
}

// Prune implements store.Feed.
func (n Feed) Prune(ctx context.Context, stream store.Stream, sequence int64, max int) (deleted int, err error) {
	if err = stream.Validate(); err == nil {
		deleted, err = n.prune(ctx, stream, sequence, max)
	}
	if err != nil {
		return 0, fmt.Errorf("prune the change feed of %q, shard %d: %w", stream.Region, stream.Shard, err)
	}
	return deleted, nil
}

// prune first reads the stream's last number, and keeps that row. The last number only grows, so the stream is never
// empty.
func (n Feed) prune(ctx context.Context, stream store.Stream, sequence int64, most int) (int, error) {
	region, shard := []byte(stream.Region), uint16(stream.Shard)
	last, err := n.c.queries.FeedLast(ctx, dataplanedb.FeedLastParams{Region: region, Shard: shard})
	if err != nil {
		return 0, err
	}
	var deleted int64
	below := dataplanedb.FeedPruneParams{
		Region: region, Shard: shard, Sequence: min(sequence, last), Limit: int32(min(max(most, 0), math.MaxInt32)),
	}
	err = n.c.retry.do(ctx, func() (err error) {
		deleted, err = n.c.queries.FeedPrune(ctx, below)
		return err
	})
	return int(deleted), err
}

// isDuplicate reports whether err is a duplicate primary key.
func isDuplicate(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == duplicateEntry
}

const duplicateEntry = 1062
