package counttest

import (
	"context"
	"errors"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
)

func wantOwn(t testing.TB, n Feed, s store.Stream, want ...store.FeedRow) {
	t.Helper()
	wantFeed(t, "own rows of "+s.Region, ownRows(t, n, s), want...)
}

func ownRows(t testing.TB, n Feed, s store.Stream) (rows []store.FeedRow) {
	t.Helper()
	if err := n.Own(t.Context(), s, func(row store.FeedRow) { rows = append(rows, row) }); err != nil {
		t.Fatal(err)
	}
	return rows
}

func testOwn(t *testing.T, n Feed) {
	wantOwn(t, n, us0)
	all, whole := snapshots(us0)
	appendRows(t, n, append(upTo(us1, 3), upTo(ap0, 3)...)...)
	for i, row := range all {
		appendRows(t, n, row)
		from := 0
		switch {
		case i >= 5:
			from = 3
		case i >= 1:
			from = 1
		}
		wantOwn(t, n, us0, all[from:i+1]...)
	}
	wantOwn(t, n, us1, upTo(us1, 3)...)
	prune(t, n, us0, whole[1].Sequence, 99, 4) // into the snapshot
	wantOwn(t, n, us0, whole[1:]...)
	n.Lose(t, us0, 6)
	wantOwn(t, n, us0, all[4])
}

func prune(t testing.TB, n Feed, s store.Stream, sequence int64, max, want int) {
	t.Helper()
	if got, err := n.Prune(t.Context(), s, sequence, max); err != nil || got != want {
		t.Errorf("prune %v below %d, at most %d: %d, %v, want %d", s, sequence, max, got, err, want)
	}
}

func testPruneMax(t *testing.T, n Feed) {
	rows := upTo(us0, 9)
	appendRows(t, n, rows...)
	prune(t, n, us0, 6, 3, 3)
	wantRows(t, n, rows[3:]...)
	prune(t, n, us0, 6, 3, 2)
	prune(t, n, us0, 6, 3, 0)
	prune(t, n, us0, 9, 0, 0)
	prune(t, n, us0, 0, 9, 0)
	wantRows(t, n, rows[5:]...)
}

func testPruneLast(t *testing.T, n Feed) {
	prune(t, n, us0, 9, 9, 0)
	rows := upTo(us0, 3)
	appendRows(t, n, rows...)
	prune(t, n, us0, 9, 9, 2)
	prune(t, n, us0, 9, 9, 0)
	wantTaken(t, n, feed(us0, 1))
	wantTaken(t, n, feed(us0, 2)) // its writer can no longer get the answer
	appendRows(t, n, rows[2], feed(us0, 4))
	wantRows(t, n, rows[2], feed(us0, 4))
}

func testPruneStream(t *testing.T, n Feed) {
	appendRows(t, n, append(append(upTo(us0, 3), upTo(us1, 3)...), upTo(ap0, 3)...)...)
	prune(t, n, us0, 9, 9, 2)
	wantRows(t, n, append(append(upTo(us1, 3), upTo(ap0, 3)...), feed(us0, 3))...)
}

func testFeedNames(t *testing.T, n Feed) {
	var rows []store.FeedRow
	for _, name := range suite.Lookalikes {
		if len(name) == 0 || len(name) > store.RegionBytesMax {
			continue
		}
		for _, shard := range []int{0, 1, 10, 11} {
			rows = append(rows, feed(store.Stream{Region: name, Shard: shard}, 1))
		}
	}
	appendRows(t, n, rows...)
	wantRows(t, n, rows...)
	after := cursors{}
	after.follow(rows)
	wantFeed(t, "once all are known", readFeed(t, n, "other", after, plenty).Rows)
	wantOwn(t, n, store.Stream{Region: "alice"}, feed(store.Stream{Region: "alice"}, 1))
	wantOwn(t, n, store.Stream{Region: "none"})
}

func testFeedContext(t *testing.T, n Feed) {
	appendRows(t, n, upTo(us0, 2)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range map[string]error{
		"Append": n.Append(ctx, feed(us0, 3)),
		"Read":   errOf(n.Read(ctx, store.FeedQuery{Region: "eu", MaxBytes: plenty})),
		"Own":    n.Own(ctx, us0, func(store.FeedRow) {}),
		"Prune":  errOf(n.Prune(ctx, us0, 2, 9)),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want Canceled", name, err)
		}
	}
	wantRows(t, n, upTo(us0, 2)...)
}
