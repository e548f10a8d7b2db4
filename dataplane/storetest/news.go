package storetest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
)

// News is a store.News under test, beside what happens to a store that no relay does.
type News struct {
	store.News

	// Hold begins to append a row and does not commit it until one of the two functions is called. rollback is
	// also what becomes of a writer that is killed.
	Hold func(t testing.TB, row store.NewsRow) (commit, rollback func())

	// Lose deletes a stream's rows from a number on, as a backup does that is restored.
	Lose func(t testing.TB, stream store.Stream, from int64)
}

// TestNews runs the contract of store.News against what open returns: one that is empty when open returns it. open is
// called once for each subtest, and no two run at once.
func TestNews(t *testing.T, open func(t testing.TB) News) {
	group := func(name string, subtests ...newsTest) {
		t.Run(name, func(t *testing.T) {
			for _, s := range subtests {
				t.Run(s.name, func(t *testing.T) { s.run(t, open(t)) })
			}
		})
	}
	group("Append",
		newsTest{"numbers have no gaps", testAppendNumbers},
		newsTest{"a number is taken by another writer or other content", testAppendTaken},
		newsTest{"its writer may append a row again", testAppendAgain},
		newsTest{"one of many writers wins each number", testAppendRace},
		newsTest{"waits for a row that is not committed, as long as ctx", testAppendHeld},
		newsTest{"a writer that is killed leaves the number free", testAppendKilled},
		newsTest{"ErrRefused for a row that breaks a bound", testAppendRefused},
		newsTest{"keeps no reference to the payload", testAppendKeepsNothing},
		newsTest{"goes on where a store that lost rows ends", testAppendLost},
	)
	group("Read",
		newsTest{"has the rows of other regions in order", testReadOthers},
		newsTest{"has what came after the cursors", testReadAfter},
		newsTest{"begins with the last whole snapshot", testReadSnapshot},
		newsTest{"has parts of snapshots where they are asked for", testReadParts},
		newsTest{"begins with the last whole snapshot where the cursor is not stored", testReadCursorGone},
		newsTest{"without proof has what came after the cursors", testReadUnproved},
		newsTest{"has many rows in pages", testReadPages},
		newsTest{"finds new streams among known ones", testReadNewStreams},
		newsTest{"has no more streams than are asked for", testReadStreamsMax},
		newsTest{"has about maxBytes at a time", testReadBytes},
		newsTest{"has at least one row", testReadAtLeastOne},
		newsTest{"counts rows without payload too", testReadCountsRows},
		newsTest{"skips no row that is committed late", testReadHeld},
		newsTest{"misses nothing while others append", testReadConcurrently},
		newsTest{"keeps rows whole", testReadWhole},
		newsTest{"has the store's clock", testReadClock},
	)
	group("Own", newsTest{"has the stream from its last whole snapshot on", testOwn})
	group("Prune",
		newsTest{"deletes the lowest rows, at most max", testPruneMax},
		newsTest{"never deletes the last row", testPruneLast},
		newsTest{"touches no other stream", testPruneStream},
	)
	group("all methods",
		newsTest{"tell streams apart", testNewsNames},
		newsTest{"obey ctx", testNewsContext},
	)
}

type newsTest struct {
	name string
	run  func(t *testing.T, n News)
}

var (
	us0 = store.Stream{Region: "us", Shard: 0}
	us1 = store.Stream{Region: "us", Shard: 1}
	ap0 = store.Stream{Region: "ap", Shard: 0}
	eu0 = store.Stream{Region: "eu", Shard: 0}
)

// news is a row that is no part of a snapshot.
func news(s store.Stream, sequence int64) store.NewsRow {
	payload := fmt.Appendf(nil, "%s/%d:%d", s.Region, s.Shard, sequence)
	return store.NewsRow{Stream: s, Sequence: sequence, Writer: 7, Payload: payload}
}

// part is a part of a snapshot.
func part(s store.Stream, sequence, snapshot int64, last bool) store.NewsRow {
	row := news(s, sequence)
	row.Snapshot, row.Last = snapshot, last
	return row
}

func appendRows(t testing.TB, n News, rows ...store.NewsRow) {
	t.Helper()
	for _, row := range rows {
		if err := n.Append(t.Context(), row); err != nil {
			t.Fatalf("append %d to %v: %v", row.Sequence, row.Stream, err)
		}
	}
}

// upTo are a stream's rows 1 to last.
func upTo(s store.Stream, last int64) []store.NewsRow {
	var rows []store.NewsRow
	for sequence := range last {
		rows = append(rows, news(s, sequence+1))
	}
	return rows
}

const plenty = 64 << 20

// cursors follow what was read.
type cursors map[store.Stream]store.NewsCursor

func (c cursors) follow(rows []store.NewsRow) {
	for _, row := range rows {
		c[row.Stream] = row.Cursor()
	}
}

func readNews(t testing.TB, n News, region string, after cursors, maxBytes int) store.NewsPage {
	t.Helper()
	page, err := n.Read(t.Context(), store.NewsQuery{Region: region, After: after, Prove: true, MaxBytes: maxBytes})
	if err != nil {
		t.Fatalf("read as %q: %v", region, err)
	}
	return page
}

func wantNews(t testing.TB, what string, got []store.NewsRow, want ...store.NewsRow) {
	t.Helper()
	slices.SortStableFunc(want, compareNews)
	if !slices.EqualFunc(got, want, sameNews) {
		t.Errorf("%s: got %v\nwant %v", what, describe(got), describe(want))
	}
}

func compareNews(a, b store.NewsRow) int {
	return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Sequence, b.Sequence))
}

// sameNews leaves out when they were written.
func sameNews(a, b store.NewsRow) bool {
	return a.Stream == b.Stream && a.Sequence == b.Sequence && a.Writer == b.Writer && a.Snapshot == b.Snapshot &&
		a.Last == b.Last && bytes.Equal(a.Payload, b.Payload)
}

func describe(rows []store.NewsRow) (lines []string) {
	for _, r := range rows {
		lines = append(lines, fmt.Sprintf("%s/%d:%d by %d, snapshot %d %t, %d bytes",
			r.Region, r.Shard, r.Sequence, r.Writer, r.Snapshot, r.Last, len(r.Payload)))
	}
	return lines
}
