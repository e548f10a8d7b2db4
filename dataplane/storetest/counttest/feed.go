package counttest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
)

// Feed is a store.Feed under test, with events that no relay causes.
type Feed struct {
	store.Feed

	// Hold begins to append a row and does not commit it until commit or rollback is called. rollback also stands for a
	// writer that is killed.
	Hold func(t testing.TB, row store.FeedRow) (commit, rollback func())

	// Lose deletes a stream's rows from a number on, as a backup does that is restored.
	Lose func(t testing.TB, stream store.Stream, from int64)
}

// TestFeed runs the contract of store.Feed against the feed that open returns, which must be empty. open is called once
// for each subtest, and no two run at once.
func TestFeed(t *testing.T, open func(t testing.TB) Feed) {
	group(t, "Append", open, []subtest[Feed]{
		{"numbers have no gaps", testAppendNumbers},
		{"a number is taken by another writer or other content", testAppendTaken},
		{"its writer may append a row again", testAppendAgain},
		{"one of many writers wins each number", testAppendRace},
		{"waits for a row that is not committed, as long as ctx", testAppendHeld},
		{"a writer that is killed leaves the number free", testAppendKilled},
		{"ErrRefused for a row that breaks a bound", testAppendRefused},
		{"keeps no reference to the payload", testAppendKeepsNothing},
		{"goes on where a store that lost rows ends", testAppendLost},
	})
	group(t, "Read", open, []subtest[Feed]{
		{"has the rows of other regions in order", testReadOthers},
		{"has what came after the cursors", testReadAfter},
		{"begins with the last whole snapshot", testReadSnapshot},
		{"has parts of snapshots where they are asked for", testReadParts},
		{"begins with the last whole snapshot where the cursor is not stored", testReadCursorGone},
		{"without proof has what came after the cursors", testReadUnproved},
		{"has many rows in pages", testReadPages},
		{"finds new streams among known ones", testReadNewStreams},
		{"has no more streams than are asked for", testReadStreamsMax},
		{"has about maxBytes at a time", testReadBytes},
		{"has at least one row", testReadAtLeastOne},
		{"counts rows without payload too", testReadCountsRows},
		{"skips no row that is committed late", testReadHeld},
		{"misses nothing while others append", testReadConcurrently},
		{"keeps rows whole", testReadWhole},
		{"has the store's clock", testReadClock},
	})
	group(t, "Own", open, []subtest[Feed]{{"has the stream from its last whole snapshot on", testOwn}})
	group(t, "Prune", open, []subtest[Feed]{
		{"deletes the lowest rows, at most max", testPruneMax},
		{"never deletes the last row", testPruneLast},
		{"touches no other stream", testPruneStream},
	})
	group(t, "all methods", open, []subtest[Feed]{
		{"tell streams apart", testFeedNames},
		{"obey ctx", testFeedContext},
	})
}

var (
	us0 = store.Stream{Region: "us", Shard: 0}
	us1 = store.Stream{Region: "us", Shard: 1}
	ap0 = store.Stream{Region: "ap", Shard: 0}
	eu0 = store.Stream{Region: "eu", Shard: 0}
)

// feed returns a row that is no part of a snapshot.
func feed(s store.Stream, sequence int64) store.FeedRow {
	payload := fmt.Appendf(nil, "%s/%d:%d", s.Region, s.Shard, sequence)
	return store.FeedRow{Stream: s, Sequence: sequence, Writer: 7, Payload: payload}
}

// part returns a part of a snapshot.
func part(s store.Stream, sequence, snapshot int64, last bool) store.FeedRow {
	row := feed(s, sequence)
	row.Snapshot, row.Last = snapshot, last
	return row
}

func appendRows(t testing.TB, n Feed, rows ...store.FeedRow) {
	t.Helper()
	for _, row := range rows {
		if err := n.Append(t.Context(), row); err != nil {
			t.Fatalf("append %d to %v: %v", row.Sequence, row.Stream, err)
		}
	}
}

// upTo returns a stream's rows 1 to last.
func upTo(s store.Stream, last int64) []store.FeedRow {
	var rows []store.FeedRow
	for sequence := range last {
		rows = append(rows, feed(s, sequence+1))
	}
	return rows
}

const plenty = 64 << 20

// cursors follow the rows that were read.
type cursors map[store.Stream]store.FeedCursor

func (c cursors) follow(rows []store.FeedRow) {
	for _, row := range rows {
		c[row.Stream] = row.Cursor()
	}
}

func readFeed(t testing.TB, n Feed, region string, after cursors, maxBytes int) store.FeedPage {
	t.Helper()
	return queryFeed(t, n, store.FeedQuery{Region: region, After: after, Prove: true, MaxBytes: maxBytes})
}

func queryFeed(t testing.TB, n Feed, q store.FeedQuery) store.FeedPage {
	t.Helper()
	page, err := n.Read(t.Context(), q)
	if err != nil {
		t.Fatalf("read as %q: %v", q.Region, err)
	}
	return page
}

func wantFeed(t testing.TB, what string, got []store.FeedRow, want ...store.FeedRow) {
	t.Helper()
	slices.SortStableFunc(want, compareFeed)
	if !slices.EqualFunc(got, want, sameFeed) {
		t.Errorf("%s: got %v\nwant %v", what, describe(got), describe(want))
	}
}

func compareFeed(a, b store.FeedRow) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Sequence, b.Sequence))
}

// sameFeed leaves out when they were written.
func sameFeed(a, b store.FeedRow) bool {
	return a.Stream == b.Stream && a.Sequence == b.Sequence && a.Writer == b.Writer && a.Snapshot == b.Snapshot &&
		a.Last == b.Last && bytes.Equal(a.Payload, b.Payload)
}

func describe(rows []store.FeedRow) (lines []string) {
	for _, r := range rows {
		lines = append(lines, fmt.Sprintf("%s/%d:%d by %d, snapshot %d %t, %d bytes",
			r.Region, r.Shard, r.Sequence, r.Writer, r.Snapshot, r.Last, len(r.Payload)))
	}
	return lines
}
