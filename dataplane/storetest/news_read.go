package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

func testReadOthers(t *testing.T, n News) {
	if page := readNews(t, n, "eu", nil, plenty); len(page.Rows) != 0 || page.More {
		t.Errorf("an empty store has %v, more %t", describe(page.Rows), page.More)
	}
	all := slices.Concat(upTo(us1, 11), upTo(us0, 2), upTo(ap0, 3), upTo(eu0, 1))
	appendRows(t, n, all...)
	for _, region := range []string{"eu", "us", "ap", "EU", "u", "zz"} {
		others := slices.DeleteFunc(slices.Clone(all), func(r store.NewsRow) bool { return r.Region == region })
		wantNews(t, "as "+region, readNews(t, n, region, nil, plenty).Rows, others...)
	}
}

func testReadAfter(t *testing.T, n News) {
	appendRows(t, n, slices.Concat(upTo(us0, 2), upTo(us1, 1), upTo(ap0, 1))...)
	after := cursors{}
	after.follow(readNews(t, n, "eu", after, plenty).Rows)
	wantNews(t, "once all is read", readNews(t, n, "eu", after, plenty).Rows)
	more := []store.NewsRow{news(us0, 3), news(us0, 4), news(ap0, 2)}
	appendRows(t, n, more...)
	wantNews(t, "after more", readNews(t, n, "eu", after, plenty).Rows, more...)
	after.follow(more[:1])
	wantNews(t, "after one of them", readNews(t, n, "eu", after, plenty).Rows, more[1:]...)
	after[eu0] = store.NewsCursor{} // of the own region: nothing comes of it
	wantNews(t, "with a cursor of one's own", readNews(t, n, "eu", after, plenty).Rows, more[1:]...)
}

// snapshots are a stream with two whole snapshots and one that is not.
func snapshots(s store.Stream) (all, fromWhole []store.NewsRow) {
	all = []store.NewsRow{
		news(s, 1), part(s, 2, 2, true), news(s, 3),
		part(s, 4, 4, false), news(s, 5), part(s, 6, 4, true), news(s, 7),
		part(s, 8, 8, false), news(s, 9),
	}
	return all, all[3:]
}

func testReadSnapshot(t *testing.T, n News) {
	all, whole := snapshots(us0)
	appendRows(t, n, slices.Concat(all, upTo(us1, 2))...)
	wantNews(t, "unknown", readNews(t, n, "eu", nil, plenty).Rows, slices.Concat(whole, upTo(us1, 2))...)
	appendRows(t, n, part(us0, 10, 8, true))
	want := slices.Concat(all[7:], []store.NewsRow{part(us0, 10, 8, true)}, upTo(us1, 2))
	wantNews(t, "unknown, once the last one is whole", readNews(t, n, "eu", nil, plenty).Rows, want...)
	after := cursors{us1: store.NewsCursor{}}
	after.follow(all[:1])
	want = withoutSnapshots(slices.Concat(all[1:], []store.NewsRow{part(us0, 10, 8, true)}, upTo(us1, 2)))
	wantNews(t, "known", readNews(t, n, "eu", after, plenty).Rows, want...)
}

func testReadParts(t *testing.T, n News) {
	all, _ := snapshots(us0)
	appendRows(t, n, all...)
	for _, prove := range []bool{false, true} {
		after := cursors{}
		after.follow(all[:1])
		page, err := n.Read(t.Context(), store.NewsQuery{Region: "eu", After: after, Prove: prove, Parts: true,
			MaxBytes: plenty})
		if err != nil {
			t.Fatal(err)
		}
		wantNews(t, fmt.Sprint("with proof: ", prove), page.Rows, all[1:]...)
	}
}

// withoutSnapshots are rows as a reader gets them that has read what is before them.
func withoutSnapshots(rows []store.NewsRow) []store.NewsRow {
	for i := range rows {
		if rows[i].Snapshot != 0 {
			rows[i].Payload = nil
		}
	}
	return rows
}

func testReadCursorGone(t *testing.T, n News) {
	all, whole := snapshots(us0)
	appendRows(t, n, slices.Concat(all, upTo(us1, 2))...)
	after := cursors{us0: {Sequence: 7, Writer: 8}}
	after.follow(upTo(us1, 2))
	wantNews(t, "written by another", readNews(t, n, "eu", after, plenty).Rows, whole...)
	after[us0] = store.NewsCursor{Sequence: 10, Writer: 7}
	wantNews(t, "not there yet", readNews(t, n, "eu", after, plenty).Rows, whole...)
	after.follow(all)
	n.Lose(t, us0, 6)
	wantNews(t, "lost", readNews(t, n, "eu", after, plenty).Rows, all[1:5]...)
	wantNews(t, "lost, and not proved", readUnproved(t, n, after).Rows)
	again := news(us0, 6)
	again.Writer++
	appendRows(t, n, again)
	after[us0] = all[5].Cursor()
	wantNews(t, "lost and written anew", readNews(t, n, "eu", after, plenty).Rows, append(all[1:5:5], again)...)
	wantNews(t, "lost, written anew and not proved", readUnproved(t, n, after).Rows)
	n.Lose(t, us0, 0)
	page := readNews(t, n, "eu", after, plenty)
	wantNews(t, "all lost", page.Rows)
	if !slices.Equal(page.Gone, []store.Stream{us0}) {
		t.Errorf("all lost: gone are %v, want %v", page.Gone, us0)
	}
	appendRows(t, n, news(us0, 1))
	after.follow(all[:1])
	if _, err := n.Prune(t.Context(), us1, 9, 9); err != nil {
		t.Fatal(err)
	}
	after[us1] = news(us1, 1).Cursor()
	wantNews(t, "pruned", readNews(t, n, "eu", after, plenty).Rows, news(us1, 2))
}

// A reader that does not prove its cursors is told what is new, and finds a gap behind a cursor.
func testReadUnproved(t *testing.T, n News) {
	all, whole := snapshots(us0)
	appendRows(t, n, slices.Concat(all, upTo(us1, 5))...)
	after := cursors{us0: all[2].Cursor(), us1: news(us1, 3).Cursor()}
	want := slices.Concat(withoutSnapshots(slices.Clone(all[3:])), upTo(us1, 5)[3:])
	wantNews(t, "what is new", readUnproved(t, n, after).Rows, want...)
	if _, err := n.Prune(t.Context(), us1, 4, 9); err != nil {
		t.Fatal(err)
	}
	wantNews(t, "what is new behind a cursor that was pruned", readUnproved(t, n, after).Rows, want...)
	if _, err := n.Prune(t.Context(), us0, 4, 9); err != nil {
		t.Fatal(err)
	}
	after[us0] = all[0].Cursor()
	page := readUnproved(t, n, after)
	wantNews(t, "from the snapshot on behind a gap", page.Rows, slices.Concat(whole, upTo(us1, 5)[3:])...)
	if len(page.Gone) > 0 {
		t.Errorf("gone are %v", page.Gone)
	}
	after = cursors{us1: news(us1, 5).Cursor()}
	wantNews(t, "an unknown stream", readUnproved(t, n, after).Rows, whole...)
}

// More rows than fit come in their order, a page after the other, with cursors that are proved and without.
func testReadPages(t *testing.T, n News) {
	const rows = 700
	all := slices.Concat(upTo(ap0, rows), upTo(us0, rows))
	appendRows(t, n, all...)
	for _, prove := range []bool{false, true} {
		after := cursors{ap0: all[0].Cursor(), us0: all[rows].Cursor()}
		var got []store.NewsRow
		for more := true; more; {
			page, err := n.Read(t.Context(), store.NewsQuery{Region: "eu", After: after, Prove: prove, MaxBytes: plenty})
			if err != nil || len(page.Gone) > 0 {
				t.Fatalf("%v, gone %v", err, page.Gone)
			}
			after.follow(page.Rows)
			got, more = append(got, page.Rows...), page.More
		}
		slices.SortStableFunc(got, compareNews)
		wantNews(t, "in all", got, slices.Concat(all[1:rows], all[rows+1:])...)
	}
}

func readUnproved(t *testing.T, n News, after cursors) store.NewsPage {
	t.Helper()
	page, err := n.Read(t.Context(), store.NewsQuery{Region: "eu", After: after, MaxBytes: plenty})
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// A new stream may lie before, between and behind those that are known, in a region that is known or another.
func testReadNewStreams(t *testing.T, n News) {
	s := func(region string, shard int) store.Stream { return store.Stream{Region: region, Shard: shard} }
	known := []store.Stream{s("c", 2), s("c", 3), s("c", 6), s("x", 0)}
	own := []store.Stream{s("k", 0), s("k", 1)}
	after := cursors{}
	for _, s := range slices.Concat(known, own) {
		appendRows(t, n, news(s, 1))
		after.follow([]store.NewsRow{news(s, 1)})
	}
	delete(after, own[1])
	found := []store.Stream{
		s("\x00", 5), s("b", 0), s("c", 0), s("c", 1), s("c", 5), s("c", 7), s("c", store.NewsShardsMax-1), s("c\x00", 0),
		s("j", 0), s("l", 0), s("x", 1), s("y", 0), s(strings.Repeat("\xff", store.RegionBytesMax), store.NewsShardsMax-1),
	}
	for _, s := range found {
		appendRows(t, n, news(s, 1))
		wantNews(t, "with a new stream", readNews(t, n, "k", after, plenty).Rows, news(s, 1))
		after.follow([]store.NewsRow{news(s, 1)})
	}
	wantNews(t, "once all are known", readNews(t, n, "k", after, plenty).Rows)
}

func testReadStreamsMax(t *testing.T, n News) {
	s := func(region string, shard int) store.Stream { return store.Stream{Region: region, Shard: shard} }
	after := cursors{}
	for _, known := range []store.Stream{s("c", 2), s("x", 0)} {
		appendRows(t, n, news(known, 1))
		after.follow([]store.NewsRow{news(known, 1)})
	}
	appendRows(t, n, news(s("x", 0), 2))
	for _, other := range []store.Stream{s("a", 0), s("c", 1), s("k", 0), s("y", 0)} {
		appendRows(t, n, news(other, 1))
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
			page, err := n.Read(t.Context(), store.NewsQuery{Region: "k", After: after, Prove: prove, MaxBytes: plenty,
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

func testReadBytes(t *testing.T, n News) {
	const rowBytes = 1000
	var all []store.NewsRow
	for _, s := range []store.Stream{ap0, us0, us1} {
		for sequence := range int64(5) {
			row := news(s, sequence+1)
			row.Payload = make([]byte, rowBytes-store.NewsRowBytes)
			all = append(all, row)
		}
	}
	appendRows(t, n, all...)
	for _, after := range []cursors{{}, {ap0: all[0].Cursor(), us0: all[5].Cursor(), us1: all[10].Cursor()}} {
		want := len(all) - len(after)
		for got := 0; got < want; {
			page := readNews(t, n, "eu", after, 3*rowBytes)
			after.follow(page.Rows)
			if got += len(page.Rows); len(page.Rows) != min(3, want-got+len(page.Rows)) || page.More != (got < want) {
				t.Fatalf("%d rows in a page, more %t, after %d of %d", len(page.Rows), page.More, got, want)
			}
		}
		for _, last := range []store.NewsRow{all[4], all[9], all[14]} {
			if after[last.Stream] != last.Cursor() {
				t.Errorf("%v was read up to %v", last.Stream, after[last.Stream])
			}
		}
	}
}

func testReadAtLeastOne(t *testing.T, n News) {
	appendRows(t, n, upTo(us0, 2)...)
	after := cursors{}
	for sequence := range int64(2) {
		page := readNews(t, n, "eu", after, 0)
		wantNews(t, "of 0 bytes", page.Rows, news(us0, sequence+1))
		if page.More != (sequence == 0) {
			t.Errorf("after row %d more is %t", sequence+1, page.More)
		}
		after.follow(page.Rows)
	}
}

func testReadCountsRows(t *testing.T, n News) {
	for sequence := range int64(9) {
		appendRows(t, n, store.NewsRow{Stream: us0, Sequence: sequence + 1})
	}
	if page := readNews(t, n, "eu", nil, 4*store.NewsRowBytes); len(page.Rows) != 4 || !page.More {
		t.Errorf("%d rows, more %t, want 4 of 9", len(page.Rows), page.More)
	}
}

func testReadHeld(t *testing.T, n News) {
	appendRows(t, n, slices.Concat(upTo(us0, 1), upTo(us1, 1), upTo(ap0, 1))...)
	after := cursors{}
	after.follow(readNews(t, n, "eu", after, plenty).Rows)
	commit, _ := n.Hold(t, news(us0, 2))
	first, _ := n.Hold(t, news(store.Stream{Region: "aa"}, 1)) // a stream's first row
	for sequence := int64(2); sequence < 5; sequence++ {
		later := []store.NewsRow{news(us1, sequence), news(ap0, sequence)}
		appendRows(t, n, later...)
		page := readNews(t, n, "eu", after, plenty)
		wantNews(t, "while one is held back", page.Rows, later...)
		after.follow(page.Rows)
	}
	commit()
	first()
	late := []store.NewsRow{news(store.Stream{Region: "aa"}, 1), news(us0, 2)}
	wantNews(t, "once it is committed", readNews(t, n, "eu", after, plenty).Rows, late...)
}

// A reader that follows several writers has each of their rows, once and in order.
func testReadConcurrently(t *testing.T, n News) {
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
	var got []store.NewsRow
	after := cursors{}
	for last := false; !last; {
		select {
		case <-done:
			last = true
		default:
		}
		page := readNews(t, n, "eu", after, plenty)
		after.follow(page.Rows)
		got = append(got, page.Rows...)
	}
	slices.SortStableFunc(got, func(a, b store.NewsRow) int { // by stream: numbers stay as they came
		a.Sequence, b.Sequence = 0, 0
		return compareNews(a, b)
	})
	wantNews(t, "in all", got, slices.Concat(upTo(us0, rows), upTo(us1, rows), upTo(ap0, rows))...)
}

func testReadWhole(t *testing.T, n News) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	rows := []store.NewsRow{
		{Stream: us0, Sequence: 1, Writer: 0, Payload: nil},
		{Stream: us0, Sequence: 2, Writer: 1<<64 - 1, Payload: every},
		{Stream: us0, Sequence: 3, Writer: 1 << 63, Payload: []byte("alice ")},
		{Stream: us0, Sequence: 4, Writer: 1, Payload: make([]byte, store.NewsBytesMax), Snapshot: 0},
	}
	appendRows(t, n, rows...)
	wantNews(t, "unknown", readNews(t, n, "eu", nil, plenty).Rows, rows...)
	wantNews(t, "known", readNews(t, n, "eu", cursors{us0: rows[0].Cursor()}, plenty).Rows, rows[1:]...)
	wantNews(t, "own", ownRows(t, n, us0), rows...)
}

// Now and WrittenAt are of one clock, whichever that is.
func testReadClock(t *testing.T, n News) {
	before := readNews(t, n, "eu", nil, plenty).Now
	appendRows(t, n, news(us0, 1))
	page := readNews(t, n, "eu", nil, plenty)
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
