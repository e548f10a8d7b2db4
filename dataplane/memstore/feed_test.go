package memstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/counttest"
)

func TestFeedKeepsTheContract(t *testing.T) {
	counttest.TestFeed(t, func(testing.TB) counttest.Feed {
		n := memstore.NewFeed(memstore.FeedOptions{})
		return counttest.Feed{
			Feed: n,
			Hold: func(t testing.TB, row store.FeedRow) (commit, rollback func()) {
				commit, rollback, err := n.Hold(row)
				if err != nil {
					t.Fatal(err)
				}
				return commit, rollback
			},
			Lose: func(_ testing.TB, stream store.Stream, from int64) { n.Lose(stream, from) },
		}
	})
}

var us = store.Stream{Region: "us"}

func feedRow(sequence int64) store.FeedRow {
	return store.FeedRow{Stream: us, Sequence: sequence, Writer: 1, Payload: []byte("x")}
}

func TestFeedThatIsDownStoresNothing(t *testing.T) {
	n := memstore.NewFeed(memstore.FeedOptions{})
	n.Faults.Fail(errDown)
	if err := n.Append(t.Context(), feedRow(1)); !errors.Is(err, errDown) {
		t.Errorf("append: %v", err)
	}
	for _, call := range feedCalls(n) {
		if err := call(t.Context()); !errors.Is(err, errDown) {
			t.Errorf("while down: %v", err)
		}
	}
	n.Faults.Fail(nil)
	if rows := n.Rows(us); len(rows) != 0 {
		t.Errorf("stored while down: %v", rows)
	}
	for _, call := range feedCalls(n) {
		if err := call(t.Context()); err != nil {
			t.Errorf("after it: %v", err)
		}
	}
}

func feedCalls(n *memstore.Feed) []func(context.Context) error {
	return []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := n.Read(ctx, store.FeedQuery{Region: "eu", MaxBytes: 1})
			return err
		},
		func(ctx context.Context) error { return n.Own(ctx, us, func(store.FeedRow) {}) },
		func(ctx context.Context) error { _, err := n.Prune(ctx, us, 1, 1); return err },
	}
}

func TestRowWhoseReplyWasLostIsStored(t *testing.T) {
	n := memstore.NewFeed(memstore.FeedOptions{})
	n.Faults.LoseReplies(true)
	if err := n.Append(t.Context(), feedRow(1)); err == nil || errors.Is(err, store.ErrTaken) {
		t.Errorf("a lost reply: %v", err)
	}
	n.Faults.LoseReplies(false)
	if err := n.Append(t.Context(), feedRow(1)); err != nil {
		t.Errorf("the same row again: %v", err)
	}
	if rows := n.Rows(us); len(rows) != 1 {
		t.Errorf("stored %v", rows)
	}
}

// A row is invisible until it is committed, and is committed although its caller has gone.
func TestFeedCommitsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memstore.NewFeed(memstore.FeedOptions{})
		n.Faults.SlowCommits(func() time.Duration { return time.Second })
		done := make(chan error, 1)
		go func() { done <- n.Append(t.Context(), feedRow(1)) }()
		time.Sleep(999 * time.Millisecond)
		if rows := n.Rows(us); len(rows) != 0 {
			t.Errorf("visible before it is committed: %v", rows)
		}
		if err := <-done; err != nil || len(n.Rows(us)) != 1 {
			t.Errorf("after a second: %v, %v", n.Rows(us), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := n.Append(ctx, feedRow(2)); !errors.Is(err, context.DeadlineExceeded) || len(n.Rows(us)) != 2 {
			t.Errorf("given up: %v, %v", n.Rows(us), err)
		}
	})
}

func TestFeedStampsByItsClock(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	n := memstore.NewFeed(memstore.FeedOptions{Clock: func() time.Time { return now }})
	if err := n.Append(t.Context(), feedRow(1)); err != nil {
		t.Fatal(err)
	}
	page, err := n.Read(t.Context(), store.FeedQuery{Region: "eu", MaxBytes: 1})
	if err != nil || !page.Now.Equal(now) || !page.Rows[0].WrittenAt.Equal(now) {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestFeedForgetsWhatIsLost(t *testing.T) {
	n := memstore.NewFeed(memstore.FeedOptions{})
	for sequence := range int64(3) {
		if err := n.Append(t.Context(), feedRow(sequence+1)); err != nil {
			t.Fatal(err)
		}
	}
	commit, _, err := n.Hold(feedRow(4))
	if err != nil {
		t.Fatal(err)
	}
	n.Wipe()
	commit()
	if rows := n.Rows(us); len(rows) != 0 {
		t.Errorf("after a wipe: %v", rows)
	}
	want := memstore.FeedStats{Appends: 3, RowsStored: 3, BytesStored: 3}
	if got := n.Stats(); got != want {
		t.Errorf("stats are %+v, want %+v", got, want)
	}
}
