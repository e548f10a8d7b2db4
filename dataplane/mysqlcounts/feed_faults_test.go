package mysqlcounts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/gen/sql/dataplanedb"
	"github.com/weirhq/weir/shared/servers"
)

var us0, us1, ap0 = store.Stream{Region: "us"}, store.Stream{Region: "us", Shard: 1}, store.Stream{Region: "ap"}

func feedRow(s store.Stream, sequence int64) store.FeedRow {
	return store.FeedRow{Stream: s, Sequence: sequence, Writer: 7, Payload: fmt.Append(nil, sequence)}
}

func appendFeed(t testing.TB, n Feed, rows ...store.FeedRow) {
	t.Helper()
	for _, row := range rows {
		if err := n.Append(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
}

// An append waits for a row that another session has locked, and then returns a transient error. It may be repeated.
// Appends to other streams do not wait.
func TestFeedAppendGivesUpOnALock(t *testing.T) { servers.EachSQL(t, testFeedAppendGivesUpOnALock) }

func testFeedAppendGivesUpOnALock(t *testing.T) {
	dsn := migrated(t)
	db := open(t, dsn)
	n := New(db, Options{AttemptsMax: 2}).Feed()
	appendFeed(t, n, feedRow(us0, 1), feedRow(us1, 1), feedRow(us1, 2), feedRow(ap0, 1))
	_, rollback := holdFeed(t, openPlain(t, dsn), feedRow(us0, 2))
	err := n.Append(t.Context(), feedRow(us0, 2))
	var e *mysql.MySQLError
	if !errors.As(err, &e) || e.Number != lockWaitTimeout || errors.Is(err, store.ErrTaken) {
		t.Errorf("while it is held: %v", err)
	}
	appendFeed(t, n, feedRow(us1, 3), feedRow(ap0, 2), feedRow(store.Stream{Region: "us", Shard: 2}, 1))
	if deleted, err := n.Prune(t.Context(), us1, 2, 9); err != nil || deleted != 1 {
		t.Errorf("another stream: %d rows pruned, %v", deleted, err)
	}
	rollback()
	appendFeed(t, n, feedRow(us0, 2))
}

// The number of a writer whose connection ends in the middle of a transaction is free again.
func TestFeedOfAKilledWriter(t *testing.T) { servers.EachSQL(t, testFeedOfAKilledWriter) }

func testFeedOfAKilledWriter(t *testing.T) {
	dsn := migrated(t)
	n := New(open(t, dsn), Options{}).Feed()
	appendFeed(t, n, feedRow(us0, 1))
	tx, err := openPlain(t, dsn).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // its connection is gone
	var id int64
	if err := tx.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		t.Fatal(err)
	}
	if _, err := dataplanedb.New(tx).FeedInsert(t.Context(), insertParams(feedRow(us0, 2))); err != nil {
		t.Fatal(err)
	}
	exec(t, openPlain(t, dsn), fmt.Sprint("KILL CONNECTION ", id))
	other := feedRow(us0, 2)
	other.Writer++
	appendFeed(t, n, other)
	if err := n.Append(t.Context(), feedRow(us0, 2)); !errors.Is(err, store.ErrTaken) {
		t.Errorf("the killed writer's row: %v, want ErrTaken", err)
	}
}

// "After any other error the row may be stored or not: append it again; one that its Writer has stored already is no
// error."
func TestFeedAppendWithLostReply(t *testing.T) { servers.EachSQL(t, testFeedAppendWithLostReply) }

func testFeedAppendWithLostReply(t *testing.T) {
	c, direct, proxy := faulty(t)
	n := c.Feed()
	appendFeed(t, n, feedRow(us0, 1))
	withLostReply(t, c, proxy, func(ctx context.Context) {
		if err := n.Append(ctx, feedRow(us0, 2)); err == nil || errors.Is(err, store.ErrTaken) {
			t.Errorf("a lost reply: %v", err)
		}
	}, func() bool {
		rows := 0
		if err := direct.Feed().Own(t.Context(), us0, func(store.FeedRow) { rows++ }); err != nil {
			t.Fatal(err)
		}
		return rows == 2
	})
	appendFeed(t, direct.Feed(), feedRow(us0, 2))
	other := feedRow(us0, 2)
	other.Writer++
	if err := direct.Feed().Append(t.Context(), other); !errors.Is(err, store.ErrTaken) {
		t.Errorf("another writer: %v, want ErrTaken", err)
	}
}

// feedReader follows streams, and fails the test if a row does not follow the row that was read before it.
type feedReader struct {
	t     *testing.T
	after map[store.Stream]store.FeedCursor
	most  map[store.Stream]int64
}

// read returns the greatest numbers that were read so far.
func (r *feedReader) read(n Feed) map[store.Stream]int64 {
	r.t.Helper()
	page, err := n.Read(r.t.Context(), store.FeedQuery{Region: "eu", After: r.after, Prove: true, MaxBytes: 1 << 20})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, row := range page.Rows {
		if row.Sequence > r.most[row.Stream]+1 {
			r.t.Errorf("%v: row %d came after row %d", row.Stream, row.Sequence, r.most[row.Stream])
		}
		r.most[row.Stream] = max(r.most[row.Stream], row.Sequence)
		r.after[row.Stream] = row.Cursor()
	}
	return r.most
}

// A reader whose connections lead to a replica, or to the replica and the primary in turn, reads later and skips
// nothing.
func TestFeedOfALaggingReplicaIsLate(t *testing.T) {
	servers.EachSQL(t, testFeedOfALaggingReplicaIsLate)
}

func testFeedOfALaggingReplicaIsLate(t *testing.T) {
	r := replicate(t)
	primary, replica := New(open(t, r.dsn), Options{}).Feed(), New(open(t, r.readerDSN()), Options{}).Feed()
	reader := &feedReader{t, make(map[store.Stream]store.FeedCursor), make(map[store.Stream]int64)}
	want := func(what string, n Feed, us, ap int64) {
		t.Helper()
		most := map[store.Stream]int64{us0: us, ap0: ap}
		maps.DeleteFunc(most, func(_ store.Stream, n int64) bool { return n == 0 })
		if got := reader.read(n); !maps.Equal(got, most) {
			t.Errorf("%s: read up to %v, want %v", what, got, most)
		}
	}
	want("at first", replica, 0, 0)
	appendFeed(t, primary, feedRow(us0, 1), feedRow(us0, 2))
	r.apply()
	want("once it has two rows", replica, 2, 0)
	appendFeed(t, primary, feedRow(us0, 3), feedRow(ap0, 1))
	want("before it has more", replica, 2, 0)
	want("from the primary", primary, 3, 1)
	appendFeed(t, primary, feedRow(us0, 4), feedRow(us0, 5))
	want("from the replica, which is behind the cursor", replica, 3, 1)
	r.apply()
	want("once it has all", replica, 5, 1)
	want("from the primary", primary, 5, 1)
}

// A row with values that no relay writes hides no row of another stream from readers, and no row of its own stream from
// the relay that takes over.
func TestAMalformedRowOfTheFeedHidesNoOther(t *testing.T) {
	servers.EachSQL(t, testAMalformedRowOfTheFeed)
}

func testAMalformedRowOfTheFeed(t *testing.T) {
	db := open(t, migrated(t))
	n := New(db, Options{}).Feed()
	const insert = "INSERT INTO " + feedTable + ` (region, shard, sequence, writer, snapshot, last_part, whole, payload_bytes,
		payload, written_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	none := []byte{}
	for i, row := range [][]any{
		{"ap", 0, 1, 7, 0, 2, 0, 1, []byte("x"), 1},                      // a last part of 2
		{"aq", 0, 1, 7, 0, -128, 0, 1, []byte("x"), 1},                   // a negative last part
		{"ar", 0, 1, 7, 0, 0, 0, 1, []byte("x"), uint64(math.MaxUint64)}, // written after the end of time
		{"as", 65535, 1, uint64(math.MaxUint64), 0, 0, 0, 0, none, 0},
		{"at", 0, int64(math.MaxInt64), 7, int64(math.MaxInt64), 1, int64(math.MaxInt64), uint32(math.MaxUint32), none, 1},
		{"au", 0, -5, 7, -5, 1, -5, 0, none, 1},
		{"", 0, 1, 7, 0, 0, 0, 0, none, 1}, // without a region
	} {
		exec(t, db, insert, row...)
		appendFeed(t, n, feedRow(us0, int64(i+1)))
	}
	after := map[store.Stream]store.FeedCursor{}
	read := 0
	for range 3 {
		page, err := n.Read(t.Context(), store.FeedQuery{Region: "eu", After: after, MaxBytes: 1 << 20, Prove: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Rows {
			after[row.Stream] = row.Cursor()
			if row.Stream == us0 {
				read++
			}
		}
	}
	if read != 7 {
		t.Errorf("%d rows of another stream were read, want 7", read)
	}
	rows := 0
	if err := n.Own(t.Context(), ap0, func(store.FeedRow) { rows++ }); err != nil || rows != 1 {
		t.Errorf("its own stream has %d rows: %v", rows, err)
	}
}
