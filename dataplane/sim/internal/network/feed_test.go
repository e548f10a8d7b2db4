package network

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

func farFeed() (Feed, *memstore.Feed) {
	stored := memstore.NewFeed(memstore.FeedOptions{})
	way := &Statements{Link: testLink(Profile{Delay: 100 * time.Millisecond}), Database: &Database{}, Meters: &MySQLMeters{}}
	return Feed{stored, way}, stored
}

func feedRow(region string, sequence int64) store.FeedRow {
	return store.FeedRow{Stream: store.Stream{Region: region}, Sequence: sequence, Writer: 7, Payload: make([]byte, 36)}
}

// If the request with a row is lost, the row is stored when it is repeated. If the reply is lost, or the caller gives
// up while MySQL is slow, the row is stored already.
func TestRowsOfTheFeedAreStoredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, stored := farFeed()
		fail := func(row store.FeedRow, rows int) {
			t.Helper()
			if err := n.Append(within(t, time.Second), row); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("append: %v", err)
			}
			time.Sleep(time.Minute)
			if got := len(stored.Rows(row.Stream)); got != rows {
				t.Errorf("%d rows are stored, want %d", got, rows)
			}
		}
		n.Link.Set(func(l *Link) { l.Cut = true })
		fail(feedRow("eu", 1), 0)
		n.Link.Set(func(l *Link) { l.Cut = false })
		if err := n.Append(t.Context(), feedRow("eu", 1)); err != nil {
			t.Error(err)
		}
		n.Link.Set(func(l *Link) { l.Parts = map[int]Part{0: {Mute: 1}} })
		fail(feedRow("eu", 2), 2)
		n.Link.Set(func(l *Link) { l.Parts = nil })
		n.Database.Set(3*time.Second, 0)
		fail(feedRow("eu", 3), 3)
		for sequence := range int64(3) {
			if err := n.Append(t.Context(), feedRow("eu", sequence+1)); err != nil {
				t.Errorf("repeated: %v", err)
			}
		}
	})
}

// Statements, rows and bytes are counted as mysqlcounts causes them.
func TestFeedIsMetered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := farFeed()
		ctx := t.Context()
		type figures struct{ statements, rowsRead, rowsWritten, bytesRead, bytesWritten int64 }
		var before figures
		since := func() (f figures) {
			m := n.Meters
			now := figures{m.Statements.Load(), m.RowsRead.Load(), m.RowsWritten.Load(), m.BytesRead.Load(), m.BytesWritten.Load()}
			f = figures{now.statements - before.statements, now.rowsRead - before.rowsRead, now.rowsWritten - before.rowsWritten,
				now.bytesRead - before.bytesRead, now.bytesWritten - before.bytesWritten}
			before = now
			return f
		}
		after := map[store.Stream]store.FeedCursor{}
		for _, step := range []struct {
			what string
			do   func() error
			want figures
		}{
			{"append two", func() error { return errors.Join(n.Append(ctx, feedRow("eu", 1)), n.Append(ctx, feedRow("eu", 2))) }, figures{2, 0, 2, 0, 200}},
			{"read both", func() error {
				page, err := n.Read(ctx, store.FeedQuery{Region: "us", After: after, Prove: true, MaxBytes: 1 << 20})
				for _, row := range page.Rows {
					after[row.Stream] = row.Cursor()
				}
				return err
			}, figures{2, 2, 0, 200, 0}},
			{"read nothing new", func() error {
				_, err := n.Read(ctx, store.FeedQuery{Region: "us", After: after, Prove: true, MaxBytes: 1 << 20})
				return err
			}, figures{1, 1, 0, 64, 0}},
			{"read the own", func() error {
				return n.Own(ctx, store.Stream{Region: "eu"}, func(store.FeedRow) {})
			}, figures{1, 2, 0, 200, 0}},
			{"prune one", func() error { _, err := n.Prune(ctx, store.Stream{Region: "eu"}, 2, 10); return err }, figures{2, 2, 1, 0, 0}},
		} {
			if err := step.do(); err != nil {
				t.Errorf("%s: %v", step.what, err)
			}
			if got := since(); got != step.want {
				t.Errorf("%s: %+v, want %+v", step.what, got, step.want)
			}
		}
	})
}
