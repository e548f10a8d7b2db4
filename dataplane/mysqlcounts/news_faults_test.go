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

func newsRow(s store.Stream, sequence int64) store.NewsRow {
	return store.NewsRow{Stream: s, Sequence: sequence, Writer: 7, Payload: fmt.Append(nil, sequence)}
}

func appendNews(t testing.TB, n News, rows ...store.NewsRow) {
	t.Helper()
	for _, row := range rows {
		if err := n.Append(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
}

// A row that another session holds is waited for, then given up as something that may pass, and may be repeated. Rows
// of other streams are not waited for.
func TestNewsAppendGivesUpOnALock(t *testing.T) { servers.EachSQL(t, testNewsAppendGivesUpOnALock) }

func testNewsAppendGivesUpOnALock(t *testing.T) {
	dsn := migrated(t)
	db := open(t, dsn)
	n := New(db, Options{AttemptsMax: 2}).News()
	appendNews(t, n, newsRow(us0, 1), newsRow(us1, 1), newsRow(us1, 2), newsRow(ap0, 1))
	_, rollback := holdNews(t, openPlain(t, dsn), newsRow(us0, 2))
	err := n.Append(t.Context(), newsRow(us0, 2))
	var e *mysql.MySQLError
	if !errors.As(err, &e) || e.Number != lockWaitTimeout || errors.Is(err, store.ErrTaken) {
		t.Errorf("while it is held: %v", err)
	}
	appendNews(t, n, newsRow(us1, 3), newsRow(ap0, 2), newsRow(store.Stream{Region: "us", Shard: 2}, 1))
	if deleted, err := n.Prune(t.Context(), us1, 2, 9); err != nil || deleted != 1 {
		t.Errorf("another stream: %d rows pruned, %v", deleted, err)
	}
	rollback()
	appendNews(t, n, newsRow(us0, 2))
}

// The number of a writer whose connection ends in the middle of a transaction is free again.
func TestNewsOfAKilledWriter(t *testing.T) { servers.EachSQL(t, testNewsOfAKilledWriter) }

func testNewsOfAKilledWriter(t *testing.T) {
	dsn := migrated(t)
	n := New(open(t, dsn), Options{}).News()
	appendNews(t, n, newsRow(us0, 1))
	tx, err := openPlain(t, dsn).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // its connection is gone
	var id int64
	if err := tx.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		t.Fatal(err)
	}
	if _, err := dataplanedb.New(tx).NewsInsert(t.Context(), insertParams(newsRow(us0, 2))); err != nil {
		t.Fatal(err)
	}
	exec(t, openPlain(t, dsn), fmt.Sprint("KILL CONNECTION ", id))
	other := newsRow(us0, 2)
	other.Writer++
	appendNews(t, n, other)
	if err := n.Append(t.Context(), newsRow(us0, 2)); !errors.Is(err, store.ErrTaken) {
		t.Errorf("the killed writer's row: %v, want ErrTaken", err)
	}
}

// "After any other error the row may be stored or not: append it again; one that its Writer has stored already is no
// error."
func TestNewsAppendWithLostReply(t *testing.T) { servers.EachSQL(t, testNewsAppendWithLostReply) }

func testNewsAppendWithLostReply(t *testing.T) {
	c, direct, proxy := faulty(t)
	n := c.News()
	appendNews(t, n, newsRow(us0, 1))
	withLostReply(t, c, proxy, func(ctx context.Context) {
		if err := n.Append(ctx, newsRow(us0, 2)); err == nil || errors.Is(err, store.ErrTaken) {
			t.Errorf("a lost reply: %v", err)
		}
	}, func() bool {
		rows := 0
		if err := direct.News().Own(t.Context(), us0, func(store.NewsRow) { rows++ }); err != nil {
			t.Fatal(err)
		}
		return rows == 2
	})
	appendNews(t, direct.News(), newsRow(us0, 2))
	other := newsRow(us0, 2)
	other.Writer++
	if err := direct.News().Append(t.Context(), other); !errors.Is(err, store.ErrTaken) {
		t.Errorf("another writer: %v, want ErrTaken", err)
	}
}

// newsReader follows streams, and fails the test on a row that does not follow one that it has read.
type newsReader struct {
	t     *testing.T
	after map[store.Stream]store.NewsCursor
	most  map[store.Stream]int64
}

// read returns the greatest numbers that were read so far.
func (r *newsReader) read(n News) map[store.Stream]int64 {
	r.t.Helper()
	page, err := n.Read(r.t.Context(), store.NewsQuery{Region: "eu", After: r.after, Prove: true, MaxBytes: 1 << 20})
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

// A reader whose connection leads to a replica, or to one and the other in turn, is told later and skips nothing.
func TestNewsOfALaggingReplicaAreLate(t *testing.T) {
	servers.EachSQL(t, testNewsOfALaggingReplicaAreLate)
}

func testNewsOfALaggingReplicaAreLate(t *testing.T) {
	r := replicate(t)
	primary, replica := New(open(t, r.dsn), Options{}).News(), New(open(t, r.readerDSN()), Options{}).News()
	reader := &newsReader{t, make(map[store.Stream]store.NewsCursor), make(map[store.Stream]int64)}
	want := func(what string, n News, us, ap int64) {
		t.Helper()
		most := map[store.Stream]int64{us0: us, ap0: ap}
		maps.DeleteFunc(most, func(_ store.Stream, n int64) bool { return n == 0 })
		if got := reader.read(n); !maps.Equal(got, most) {
			t.Errorf("%s: read up to %v, want %v", what, got, most)
		}
	}
	want("at first", replica, 0, 0)
	appendNews(t, primary, newsRow(us0, 1), newsRow(us0, 2))
	r.apply()
	want("once it has two rows", replica, 2, 0)
	appendNews(t, primary, newsRow(us0, 3), newsRow(ap0, 1))
	want("before it has more", replica, 2, 0)
	want("from the primary", primary, 3, 1)
	appendNews(t, primary, newsRow(us0, 4), newsRow(us0, 5))
	want("from the replica, which is behind the cursor", replica, 3, 1)
	r.apply()
	want("once it has all", replica, 5, 1)
	want("from the primary", primary, 5, 1)
}

// A row with values that no relay writes hides no row of another stream from those that read news, and none of its own
// stream from the relay that takes over.
func TestAMalformedRowOfNewsHidesNoOther(t *testing.T) { servers.EachSQL(t, testAMalformedRowOfNews) }

func testAMalformedRowOfNews(t *testing.T) {
	db := open(t, migrated(t))
	n := New(db, Options{}).News()
	const insert = "INSERT INTO " + newsTable + ` (region, shard, sequence, writer, snapshot, last_part, whole, payload_bytes,
		payload, written_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	none := []byte{}
	for i, row := range [][]any{
		{"ap", 0, 1, 7, 0, 2, 0, 1, []byte("x"), 1},                      // a last part of 2
		{"aq", 0, 1, 7, 0, -128, 0, 1, []byte("x"), 1},                   // and of less than 0
		{"ar", 0, 1, 7, 0, 0, 0, 1, []byte("x"), uint64(math.MaxUint64)}, // written after the end of time
		{"as", 65535, 1, uint64(math.MaxUint64), 0, 0, 0, 0, none, 0},
		{"at", 0, int64(math.MaxInt64), 7, int64(math.MaxInt64), 1, int64(math.MaxInt64), uint32(math.MaxUint32), none, 1},
		{"au", 0, -5, 7, -5, 1, -5, 0, none, 1},
		{"", 0, 1, 7, 0, 0, 0, 0, none, 1}, // of no region
	} {
		exec(t, db, insert, row...)
		appendNews(t, n, newsRow(us0, int64(i+1)))
	}
	after := map[store.Stream]store.NewsCursor{}
	read := 0
	for range 3 {
		page, err := n.Read(t.Context(), store.NewsQuery{Region: "eu", After: after, MaxBytes: 1 << 20, Prove: true})
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
	if err := n.Own(t.Context(), ap0, func(store.NewsRow) { rows++ }); err != nil || rows != 1 {
		t.Errorf("its own stream has %d rows: %v", rows, err)
	}
}
