package mysqlcounts

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/mysqlclient"
	"github.com/weirhq/weir/shared/servers"
)

// A large fleet: 50 regions of 8 shards, with 50 rows in each stream.
const (
	manyRegions, manyShards = 50, 8
	rowsEach                = 50
	farAway                 = "region-with-a-name-07"
)

// manyCursors returns the cursors of a reader in farAway that has read all rows but the last of each stream.
func manyCursors() map[store.Stream]store.FeedCursor {
	after := make(map[store.Stream]store.FeedCursor)
	for r := range manyRegions {
		for shard := range manyShards {
			s := store.Stream{Region: fmt.Sprintf("region-with-a-name-%02d", r), Shard: shard}
			after[s] = store.FeedCursor{Sequence: rowsEach - 1, Writer: 7}
		}
	}
	maps.DeleteFunc(after, func(s store.Stream, _ store.FeedCursor) bool { return s.Region == farAway })
	return after
}

// fillFeed stores all rows. The last row of each stream is a complete snapshot.
func fillFeed(t testing.TB, c *Counts) {
	t.Helper()
	exec(t, c.db, `INSERT INTO ratelimit_changes
		(region, shard, sequence, writer, snapshot, last_part, whole, payload_bytes, payload, written_at)
		SELECT CONCAT('region-with-a-name-', LPAD(seq DIV 400, 2, '0')), seq DIV 50 % 8, 1 + seq % 50, 7,
		  IF(seq % 50 = 49, 50, 0), seq % 50 = 49, IF(seq % 50 = 49, 50, 0), 100, REPEAT('x', 100), 1
		FROM `+servers.Numbers(0, manyRegions*manyShards*rowsEach-1))
	exec(t, c.db, "ANALYZE TABLE "+feedTable)
}

// The rows that a read examines grow with the streams and the new rows, not with the stored rows: a range of the
// primary key for each stream with a cursor, and a jump for each other stream.
func TestFeedReadsWhatIsNew(t *testing.T) { servers.EachSQL(t, testFeedReadsWhatIsNew) }

func testFeedReadsWhatIsNew(t *testing.T) {
	c, db := openCounts(t)
	fillFeed(t, c)
	const streams = (manyRegions - 1) * manyShards
	for name, reader := range map[string]struct {
		after map[store.Stream]store.FeedCursor
		prove bool
		plan  []string
		most  int64 // row reads for each stream
	}{
		"of known streams":          {manyCursors(), false, []string{"range, PRIMARY"}, 4},
		"of streams that it proves": {manyCursors(), true, []string{"range, PRIMARY"}, 5},
		"of unknown streams":        {nil, false, []string{"range, PRIMARY", "Using index for group-by", "eq_ref, PRIMARY"}, 8},
	} {
		q := store.FeedQuery{Region: farAway, After: reader.after, Prove: reader.prove, MaxBytes: 4 << 20}
		query, args := askAfter(q).statement()
		plan, err := planOf(t.Context(), db, query, args...)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range reader.plan {
			if !strings.Contains(plan, want) || strings.Contains(plan, "index, PRIMARY") {
				t.Errorf("%s: the plan is %s, want %s and no scan", name, plan, want)
			}
		}
		before := handlerReads(t, db)
		page, err := c.Feed().Read(t.Context(), q)
		if err != nil || len(page.Rows) != streams || page.More {
			t.Fatalf("%s: %d rows, more %t, %v; want %d", name, len(page.Rows), page.More, err, streams)
		}
		if reads := handlerReads(t, db) - before; reads > reader.most*streams {
			t.Errorf("%s: %d reads for a row of each of %d streams, %d in all", name, reads, streams, streams*rowsEach)
		}
	}
}

// A relay follows 4,000 streams, and no stream of an invented region beyond them.
func TestFeedOfManyStreams(t *testing.T) { servers.EachSQL(t, testFeedOfManyStreams) }

func testFeedOfManyStreams(t *testing.T) {
	const most = 4_000
	c, _ := openCounts(t)
	q := store.FeedQuery{Region: "eu", After: make(map[store.Stream]store.FeedCursor), MaxBytes: 1 << 20, StreamsMax: most}
	for i := range most - 1 {
		s := store.Stream{Region: fmt.Sprint("region-", i/4), Shard: 1 + 2*(i%4)}
		q.After[s] = store.FeedCursor{Sequence: 1, Writer: 7}
	}
	appendFeed(t, c.Feed(), feedRow(ap0, 1), feedRow(us0, 1))
	for _, q.Prove = range []bool{false, true} {
		page, err := c.Feed().Read(t.Context(), q)
		if err != nil || len(page.Rows) == 0 || page.Rows[0].Stream != ap0 || page.Full == q.Prove {
			t.Errorf("with proof %t: %d rows, full %t, %v", q.Prove, len(page.Rows), page.Full, err)
		}
	}
}

// The longest possible statement: as many regions as a relay follows, with the longest names, of bytes that are all
// escaped into two.
func TestTheLongestStatementFitsIntoAPacket(t *testing.T) {
	servers.EachSQL(t, testTheLongestStatementFitsIntoAPacket)
}

func testTheLongestStatementFitsIntoAPacket(t *testing.T) {
	const most = 4_000
	server := servers.SQLForTest(t)
	dsn := server.DatabaseForTest(t)
	migrate(t, dsn)
	q := store.FeedQuery{Region: "eu", After: make(map[store.Stream]store.FeedCursor), MaxBytes: 1 << 20, StreamsMax: most, Prove: true}
	for i := range most {
		name := strings.Repeat("'", store.RegionBytesMax-4) + fmt.Sprintf("%04d", i)
		q.After[store.Stream{Region: name, Shard: 100}] = store.FeedCursor{Sequence: math.MaxInt32, Writer: 7}
	}
	query, args := askAfter(q).statement()
	long := len(query)
	for _, arg := range args { // as the driver writes it
		if name, ok := arg.([]byte); ok {
			long += len("_binary''") + len(name) + strings.Count(string(name), "'") - 1
		} else {
			long += len(fmt.Sprint(arg)) - 1
		}
	}
	t.Logf("the longest statement has %d bytes", long)
	if long > mysqlclient.PacketBytesMin || long < mysqlclient.PacketBytesMin/2 {
		t.Errorf("packets of %d bytes are too small, or larger than is needed", mysqlclient.PacketBytesMin)
	}
	root := openPlain(t, dsn)
	for packet, fits := range map[int]bool{mysqlclient.PacketBytesMin: true, mysqlclient.PacketBytesMin / 2: false} {
		exec(t, root, "SET GLOBAL max_allowed_packet = ?", packet)
		page, err := New(open(t, dsn), Options{}).Feed().Read(t.Context(), q)
		if (err == nil) != fits || fits && len(page.Gone) != most {
			t.Errorf("in packets of %d bytes: %d streams are gone, %v", packet, len(page.Gone), err)
		}
		if !fits && !strings.Contains(err.Error(), "max_allowed_packet is 2097152, want at least 4194304") {
			t.Errorf("%v does not name the setting", err)
		}
	}
}

// "It is one statement, and further ones only when some stream has no stored cursor."
func TestFeedReadIsOneStatement(t *testing.T) { servers.EachSQL(t, testFeedReadIsOneStatement) }

func testFeedReadIsOneStatement(t *testing.T) {
	c, db := openCounts(t)
	db.SetMaxOpenConns(1) // the session whose statements are counted
	selects := func() (n int) {
		var name string
		if err := db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Com\\_select'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	streams := []store.Stream{ap0, us0, us1}
	at := func(sequence int64) map[store.Stream]store.FeedCursor {
		after := make(map[store.Stream]store.FeedCursor)
		for _, s := range streams {
			after[s] = store.FeedCursor{Sequence: sequence, Writer: 7}
		}
		return after
	}
	for _, s := range streams {
		appendFeed(t, c.Feed(), feedRow(s, 1), feedRow(s, 2), feedRow(s, 3))
	}
	for name, read := range map[string]struct {
		after            map[store.Stream]store.FeedCursor
		prove            bool
		maxBytes         int
		rows, statements int
	}{
		"nothing is new":              {at(3), false, 1 << 20, 0, 1},
		"a row of each stream is new": {at(2), false, 1 << 20, 3, 1},
		"cursors are proved":          {at(2), true, 1 << 20, 3, 1},
		"not all fits":                {at(1), false, 1, 1, 2}, // another statement reads its payload
		"no stream is known":          {nil, false, 1 << 20, 9, 2},
		"cursors are not stored":      {at(4), true, 1 << 20, 9, 3},
	} {
		before := selects()
		page, err := c.Feed().Read(t.Context(), store.FeedQuery{Region: "eu", After: read.after, Prove: read.prove, MaxBytes: read.maxBytes})
		if err != nil || len(page.Rows) != read.rows {
			t.Errorf("%s: %d rows, %v, want %d", name, len(page.Rows), err, read.rows)
		}
		if got := selects() - before; got != read.statements {
			t.Errorf("%s: %d statements, want %d", name, got, read.statements)
		}
	}
}

// With 50 regions of 8 shards the statement has less than 32 KiB, including its arguments.
func TestFeedStatementStaysSmall(t *testing.T) {
	query, args := askAfter(store.FeedQuery{Region: farAway, After: manyCursors(), Prove: true, MaxBytes: 4 << 20}).statement()
	bytes := len(query)
	for _, a := range args {
		if name, ok := a.([]byte); ok {
			a = "_binary'" + string(name) + "'"
		}
		bytes += len(fmt.Sprint(a)) - len("?")
	}
	if bytes > 32<<10 {
		t.Errorf("it is %d bytes long", bytes)
	}
	if got := strings.Count(query, "?"); got != len(args) {
		t.Errorf("%d placeholders, %d arguments", got, len(args))
	}
}

func TestFeedGapsAreWhereNoKnownStreamIs(t *testing.T) {
	const end = store.FeedShardsMax
	stream := func(region string, shard int) feedRange {
		return feedRange{Stream: store.Stream{Region: region, Shard: shard}}
	}
	for name, c := range map[string]struct {
		known   []feedRange
		regions []regionGap
		shards  []shardGap
	}{
		"none known": {nil, []regionGap{{"", "own"}, {"own", regionEnd}}, nil},
		"neighbours": {
			[]feedRange{stream("a", 0), stream("a", 1)},
			[]regionGap{{"", "a"}, {"a", "own"}, {"own", regionEnd}},
			[]shardGap{{"a", 1, end}},
		},
		"holes": {
			[]feedRange{stream("a", 1), stream("a", 3), stream("z", end-1)},
			[]regionGap{{"", "a"}, {"a", "own"}, {"own", "z"}, {"z", regionEnd}},
			[]shardGap{{"a", -1, 1}, {"a", 1, 3}, {"a", 3, end}, {"z", -1, end - 1}},
		},
	} {
		regions, shards := gaps("own", c.known)
		if !slices.Equal(regions, c.regions) || !slices.Equal(shards, c.shards) {
			t.Errorf("%s: %v, %v\nwant %v, %v", name, regions, shards, c.regions, c.shards)
		}
	}
}
