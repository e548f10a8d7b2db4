package counttest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

func testReadOthers(t *testing.T, n Feed) {
	if page := readFeed(t, n, "eu", nil, plenty); len(page.Rows) != 0 || page.More {
		t.Errorf("an empty store has %v, more %t", describe(page.Rows), page.More)
	}
	all := slices.Concat(upTo(us1, 11), upTo(us0, 2), upTo(ap0, 3), upTo(eu0, 1))
	appendRows(t, n, all...)
	for _, region := range []string{"eu", "us", "ap", "EU", "u", "zz"} {
		others := slices.DeleteFunc(slices.Clone(all), func(r store.FeedRow) bool { return r.Region == region })
		wantFeed(t, "as "+region, readFeed(t, n, region, nil, plenty).Rows, others...)
	}
}

func testReadAfter(t *testing.T, n Feed) {
	appendRows(t, n, slices.Concat(upTo(us0, 2), upTo(us1, 1), upTo(ap0, 1))...)
	after := cursors{}
	after.follow(readFeed(t, n, "eu", after, plenty).Rows)
	wantFeed(t, "once all is read", readFeed(t, n, "eu", after, plenty).Rows)
	more := []store.FeedRow{feed(us0, 3), feed(us0, 4), feed(ap0, 2)}
	appendRows(t, n, more...)
	wantFeed(t, "after more", readFeed(t, n, "eu", after, plenty).Rows, more...)
	after.follow(more[:1])
	wantFeed(t, "after one of them", readFeed(t, n, "eu", after, plenty).Rows, more[1:]...)
	after[eu0] = store.FeedCursor{} // of the own region: nothing comes of it
	wantFeed(t, "with a cursor of one's own", readFeed(t, n, "eu", after, plenty).Rows, more[1:]...)
}

// snapshots returns a stream with two whole snapshots and an incomplete snapshot.
func snapshots(s store.Stream) (all, fromWhole []store.FeedRow) {
	all = []store.FeedRow{
		feed(s, 1), part(s, 2, 2, true), feed(s, 3),
		part(s, 4, 4, false), feed(s, 5), part(s, 6, 4, true), feed(s, 7),
		part(s, 8, 8, false), feed(s, 9),
	}
	return all, all[3:]
}

func testReadSnapshot(t *testing.T, n Feed) {
	all, whole := snapshots(us0)
	appendRows(t, n, slices.Concat(all, upTo(us1, 2))...)
	wantFeed(t, "unknown", readFeed(t, n, "eu", nil, plenty).Rows, slices.Concat(whole, upTo(us1, 2))...)
	appendRows(t, n, part(us0, 10, 8, true))
	want := slices.Concat(all[7:], []store.FeedRow{part(us0, 10, 8, true)}, upTo(us1, 2))
	wantFeed(t, "unknown, once the last one is whole", readFeed(t, n, "eu", nil, plenty).Rows, want...)
	after := cursors{us1: store.FeedCursor{}}
	after.follow(all[:1])
	want = withoutSnapshots(slices.Concat(all[1:], []store.FeedRow{part(us0, 10, 8, true)}, upTo(us1, 2)))
	wantFeed(t, "known", readFeed(t, n, "eu", after, plenty).Rows, want...)
}

func testReadParts(t *testing.T, n Feed) {
	all, _ := snapshots(us0)
	appendRows(t, n, all...)
	for _, prove := range []bool{false, true} {
		after := cursors{}
		after.follow(all[:1])
		page := queryFeed(t, n, store.FeedQuery{Region: "eu", After: after, Prove: prove, Parts: true, MaxBytes: plenty})
		wantFeed(t, fmt.Sprint("with proof: ", prove), page.Rows, all[1:]...)
	}
}

// withoutSnapshots returns rows as a reader gets them that has read the rows before them.
func withoutSnapshots(rows []store.FeedRow) []store.FeedRow {
	for i := range rows {
		if rows[i].Snapshot != 0 {
			rows[i].Payload = nil
		}
	}
	return rows
}

func testReadCursorGone(t *testing.T, n Feed) {
	all, whole := snapshots(us0)
	appendRows(t, n, slices.Concat(all, upTo(us1, 2))...)
	after := cursors{us0: {Sequence: 7, Writer: 8}}
	after.follow(upTo(us1, 2))
	wantFeed(t, "written by another", readFeed(t, n, "eu", after, plenty).Rows, whole...)
	after[us0] = store.FeedCursor{Sequence: 10, Writer: 7}
	wantFeed(t, "not there yet", readFeed(t, n, "eu", after, plenty).Rows, whole...)
	after.follow(all)
	n.Lose(t, us0, 6)
	wantFeed(t, "lost", readFeed(t, n, "eu", after, plenty).Rows, all[1:5]...)
	wantFeed(t, "lost, and not proved", readUnproved(t, n, after).Rows)
	again := feed(us0, 6)
	again.Writer++
	appendRows(t, n, again)
	after[us0] = all[5].Cursor()
	wantFeed(t, "lost and written anew", readFeed(t, n, "eu", after, plenty).Rows, append(all[1:5:5], again)...)
	wantFeed(t, "lost, written anew and not proved", readUnproved(t, n, after).Rows)
	n.Lose(t, us0, 0)
	page := readFeed(t, n, "eu", after, plenty)
	wantFeed(t, "all lost", page.Rows)
	if !slices.Equal(page.Gone, []store.Stream{us0}) {
		t.Errorf("all lost: gone are %v, want %v", page.Gone, us0)
	}
	appendRows(t, n, feed(us0, 1))
	after.follow(all[:1])
	prune(t, n, us1, 9, 9, 1)
	after[us1] = feed(us1, 1).Cursor()
	wantFeed(t, "pruned", readFeed(t, n, "eu", after, plenty).Rows, feed(us1, 2))
}

// A reader that does not prove its cursors gets new rows, and finds a gap behind a cursor.
func testReadUnproved(t *testing.T, n Feed) {
	all, whole := snapshots(us0)
	appendRows(t, n, slices.Concat(all, upTo(us1, 5))...)
	after := cursors{us0: all[2].Cursor(), us1: feed(us1, 3).Cursor()}
	want := slices.Concat(withoutSnapshots(slices.Clone(all[3:])), upTo(us1, 5)[3:])
	wantFeed(t, "what is new", readUnproved(t, n, after).Rows, want...)
	prune(t, n, us1, 4, 9, 3)
	wantFeed(t, "what is new behind a cursor that was pruned", readUnproved(t, n, after).Rows, want...)
	prune(t, n, us0, 4, 9, 3)
	after[us0] = all[0].Cursor()
	page := readUnproved(t, n, after)
	wantFeed(t, "from the snapshot on behind a gap", page.Rows, slices.Concat(whole, upTo(us1, 5)[3:])...)
	if len(page.Gone) > 0 {
		t.Errorf("gone are %v", page.Gone)
	}
	after = cursors{us1: feed(us1, 5).Cursor()}
	wantFeed(t, "an unknown stream", readUnproved(t, n, after).Rows, whole...)
}

// More rows than fit come in their order, a page after the other, with cursors that are proved and without.
func testReadPages(t *testing.T, n Feed) {
	const rows = 700
	all := slices.Concat(upTo(ap0, rows), upTo(us0, rows))
	appendRows(t, n, all...)
	for _, prove := range []bool{false, true} {
		after := cursors{ap0: all[0].Cursor(), us0: all[rows].Cursor()}
		var got []store.FeedRow
		for more := true; more; {
			page := queryFeed(t, n, store.FeedQuery{Region: "eu", After: after, Prove: prove, MaxBytes: plenty})
			if len(page.Gone) > 0 {
				t.Fatalf("gone are %v", page.Gone)
			}
			after.follow(page.Rows)
			got, more = append(got, page.Rows...), page.More
		}
		slices.SortStableFunc(got, compareFeed)
		wantFeed(t, "in all", got, slices.Concat(all[1:rows], all[rows+1:])...)
	}
}

func readUnproved(t *testing.T, n Feed, after cursors) store.FeedPage {
	t.Helper()
	return queryFeed(t, n, store.FeedQuery{Region: "eu", After: after, MaxBytes: plenty})
}

// A new stream may lie before, between and behind the reader's streams, in the same region or another.
func testReadNewStreams(t *testing.T, n Feed) {
	s := func(region string, shard int) store.Stream { return store.Stream{Region: region, Shard: shard} }
	known := []store.Stream{s("c", 2), s("c", 3), s("c", 6), s("x", 0)}
	own := []store.Stream{s("k", 0), s("k", 1)}
	after := cursors{}
	for _, s := range slices.Concat(known, own) {
		appendRows(t, n, feed(s, 1))
		after.follow([]store.FeedRow{feed(s, 1)})
	}
	delete(after, own[1])
	found := []store.Stream{
		s("\x00", 5), s("b", 0), s("c", 0), s("c", 1), s("c", 5), s("c", 7), s("c", store.FeedShardsMax-1), s("c\x00", 0),
		s("j", 0), s("l", 0), s("x", 1), s("y", 0), s(strings.Repeat("\xff", store.RegionBytesMax), store.FeedShardsMax-1),
	}
	for _, s := range found {
		appendRows(t, n, feed(s, 1))
		wantFeed(t, "with a new stream", readFeed(t, n, "k", after, plenty).Rows, feed(s, 1))
		after.follow([]store.FeedRow{feed(s, 1)})
	}
	wantFeed(t, "once all are known", readFeed(t, n, "k", after, plenty).Rows)
}

func testReadStreamsMax(t *testing.T, n Feed) {
	s := func(region string, shard int) store.Stream { return store.Stream{Region: region, Shard: shard} }
	after := cursors{}
	for _, known := range []store.Stream{s("c", 2), s("x", 0)} {
		appendRows(t, n, feed(known, 1))
		after.follow([]store.FeedRow{feed(known, 1)})
	}
	appendRows(t, n, feed(s("x", 0), 2))
	for _, other := range []store.Stream{s("a", 0), s("c", 1), s("k", 0), s("y", 0)} {
		appendRows(t, n, feed(other, 1))
	}
	for _, c := range []struct {
		most int
		full bool
		want []store.Stream
	}{
		{0, false, []store.Stream{s("a", 0), s("c", 1), s("x", 0), s("y", 0)}},
		{5, false, []store.Stream{s("a", 0), s("c", 1), s("x", 0), s("y", 0)}},
		{4, true, []store.Stream{s("a", 0), s("c", 1), s("x", 0)}},
		{3, true, []store.Stream{s("a", 0), s("x", 0)}},
		{2, true, []store.Stream{s("x", 0)}},
		{1, true, []store.Stream{s("x", 0)}},
	} {
		for _, prove := range []bool{false, true} {
			page, err := n.Read(t.Context(), store.FeedQuery{Region: "k", After: after, Prove: prove, MaxBytes: plenty,
				StreamsMax: c.most})
			var got []store.Stream
			for _, row := range page.Rows {
				got = append(got, row.Stream)
			}
			if err != nil || page.Full != c.full || !slices.Equal(got, c.want) || len(page.Gone) > 0 {
				t.Errorf("of %d streams, with proof %t: %v, full %t, gone %v, %v; want %v, full %t", c.most, prove, got,
					page.Full, page.Gone, err, c.want, c.full)
			}
		}
	}
}

func testReadBytes(t *testing.T, n Feed) {
	const rowBytes = 1000
	var all []store.FeedRow
	for _, s := range []store.Stream{ap0, us0, us1} {
		for sequence := range int64(5) {
			row := feed(s, sequence+1)
			row.Payload = make([]byte, rowBytes-store.FeedRowBytes)
			all = append(all, row)
		}
	}
	appendRows(t, n, all...)
	for _, after := range []cursors{{}, {ap0: all[0].Cursor(), us0: all[5].Cursor(), us1: all[10].Cursor()}} {
		want := len(all) - len(after)
		for got := 0; got < want; {
			page := readFeed(t, n, "eu", after, 3*rowBytes)
			after.follow(page.Rows)
			if got += len(page.Rows); len(page.Rows) != min(3, want-got+len(page.Rows)) || page.More != (got < want) {
				t.Fatalf("%d rows in a page, more %t, after %d of %d", len(page.Rows), page.More, got, want)
			}
		}
		for _, last := range []store.FeedRow{all[4], all[9], all[14]} {
			if after[last.Stream] != last.Cursor() {
				t.Errorf("%v was read up to %v", last.Stream, after[last.Stream])
			}
		}
	}
}

func testReadAtLeastOne(t *testing.T, n Feed) {
	appendRows(t, n, upTo(us0, 2)...)
	after := cursors{}
	for sequence := range int64(2) {
		page := readFeed(t, n, "eu", after, 0)
		wantFeed(t, "of 0 bytes", page.Rows, feed(us0, sequence+1))
		if page.More != (sequence == 0) {
			t.Errorf("after row %d more is %t", sequence+1, page.More)
		}
		after.follow(page.Rows)
	}
}

func testReadCountsRows(t *testing.T, n Feed) {
	for sequence := range int64(9) {
		appendRows(t, n, store.FeedRow{Stream: us0, Sequence: sequence + 1})
	}
	if page := readFeed(t, n, "eu", nil, 4*store.FeedRowBytes); len(page.Rows) != 4 || !page.More {
		t.Errorf("%d rows, more %t, want 4 of 9", len(page.Rows), page.More)
	}
}

func testReadHeld(t *testing.T, n Feed) {
	appendRows(t, n, slices.Concat(upTo(us0, 1), upTo(us1, 1), upTo(ap0, 1))...)
	after := cursors{}
	after.follow(readFeed(t, n, "eu", after, plenty).Rows)
	commit, _ := n.Hold(t, feed(us0, 2))
	first, _ := n.Hold(t, feed(store.Stream{Region: "aa"}, 1)) // a stream's first row
	for sequence := int64(2); sequence < 5; sequence++ {
		later := []store.FeedRow{feed(us1, sequence), feed(ap0, sequence)}
		appendRows(t, n, later...)
		page := readFeed(t, n, "eu", after, plenty)
		wantFeed(t, "while one is held back", page.Rows, later...)
		after.follow(page.Rows)
	}
	commit()
	first()
	late := []store.FeedRow{feed(store.Stream{Region: "aa"}, 1), feed(us0, 2)}
	wantFeed(t, "once it is committed", readFeed(t, n, "eu", after, plenty).Rows, late...)
}

// A reader that follows several writers has each of their rows, once and in order.
func testReadConcurrently(t *testing.T, n Feed) {
	const rows = 40
	streams := []store.Stream{us0, us1, ap0}
	var writing sync.WaitGroup
	for _, s := range streams {
		writing.Go(func() {
			for _, row := range upTo(s, rows) {
				if err := n.Append(t.Context(), row); err != nil {
					t.Errorf("append: %v", err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	var got []store.FeedRow
	after := cursors{}
	for last := false; !last; {
		select {
		case <-done:
			last = true
		default:
		}
		page := readFeed(t, n, "eu", after, plenty)
		after.follow(page.Rows)
		got = append(got, page.Rows...)
	}
	slices.SortStableFunc(got, func(a, b store.FeedRow) int { // by stream: numbers stay as they came
		a.Sequence, b.Sequence = 0, 0
		return compareFeed(a, b)
	})
	wantFeed(t, "in all", got, slices.Concat(upTo(us0, rows), upTo(us1, rows), upTo(ap0, rows))...)
}

func testReadWhole(t *testing.T, n Feed) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	rows := []store.FeedRow{
		{Stream: us0, Sequence: 1, Writer: 0, Payload: nil},
		{Stream: us0, Sequence: 2, Writer: 1<<64 - 1, Payload: every},
		{Stream: us0, Sequence: 3, Writer: 1 << 63, Payload: []byte("alice ")},
		{Stream: us0, Sequence: 4, Writer: 1, Payload: make([]byte, store.FeedBytesMax), Snapshot: 0},
	}
	appendRows(t, n, rows...)
	wantFeed(t, "unknown", readFeed(t, n, "eu", nil, plenty).Rows, rows...)
	wantFeed(t, "known", readFeed(t, n, "eu", cursors{us0: rows[0].Cursor()}, plenty).Rows, rows[1:]...)
	wantFeed(t, "own", ownRows(t, n, us0), rows...)
}

// Now and WrittenAt must come from the same clock, whichever that is.
func testReadClock(t *testing.T, n Feed) {
	before := readFeed(t, n, "eu", nil, plenty).Now
	appendRows(t, n, feed(us0, 1))
	page := readFeed(t, n, "eu", nil, plenty)
	own := ownRows(t, n, us0)
	if len(own) != 1 {
		t.Fatalf("own: %v", describe(own))
	}
	if at := page.Rows[0].WrittenAt; at.Before(before) || at.After(page.Now) || !at.Equal(own[0].WrittenAt) {
		t.Errorf("written at %v and %v, read at %v and %v", at, own[0].WrittenAt, before, page.Now)
	}
	if d := time.Since(page.Now).Abs(); d > time.Hour {
		t.Errorf("the store's clock is %v from this one", d)
	}
}
