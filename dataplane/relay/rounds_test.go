package relay_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A single interval publishes everything that is due, even if there are more changes than a batch has, and more counts
// than a row has room for.
func TestAnIntervalTellsSeveralRows(t *testing.T) {
	for what, c := range map[string]struct {
		cells int
		name  string
	}{
		"more than a batch":       {6_000, "k"},
		"more than fits in a row": {4_000, strings.Repeat("x", 200)},
	} {
		w, eu, _ := newPair(t)
		w.run(time.Second)
		var cells []window.Cell
		for i := range c.cells {
			cells = append(cells, eu.cell(fmt.Sprint(c.name, i), time.Hour))
			eu.accept(cells[i], 50, 100)
		}
		before := len(w.feed.Rows(store.Stream{Region: "eu"}))
		w.run(interval)
		if rows := len(w.feed.Rows(store.Stream{Region: "eu"})) - before; rows < 2 {
			t.Errorf("%s: %d rows", what, rows)
		}
		w.wantKnown(cells...)
		if changes, err := eu.relayOrigin.Changes(t.Context(), 0, 1); err != nil || len(changes.Cells) > 0 {
			t.Errorf("%s: left in the changes: %v, %v", what, changes.Cells, err)
		}
	}
}

// rowsFeed returns a single row in each page.
type rowsFeed struct{ store.Feed }

func (n rowsFeed) Read(ctx context.Context, q store.FeedQuery) (store.FeedPage, error) {
	q.MaxBytes = 1
	return n.Feed.Read(ctx, q)
}

// A single interval reads all pages.
func TestAnIntervalReadsSeveralPages(t *testing.T) {
	w, eu, us := newPair(t)
	us.relay = us.relayOver("first", us.relayOrigin, rowsFeed{w.feed}, w.counts)
	w.run(time.Second)
	us.away = true
	var cells []window.Cell
	for i := range 10 {
		c := eu.cell(fmt.Sprint("k", i), time.Hour)
		cells = append(cells, c)
		eu.accept(c, 50, 100)
		w.run(interval)
	}
	us.away = false
	w.run(interval)
	w.wantKnown(cells...)
}
