package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// queriesFeed remembers what was asked last.
type queriesFeed struct {
	store.Feed
	asked store.FeedQuery
}

func (n *queriesFeed) Read(ctx context.Context, q store.FeedQuery) (store.FeedPage, error) {
	n.asked = q
	return n.Feed.Read(ctx, q)
}

// A region whose rows were deleted is forgotten: no read asks for it for ever. One that comes back is read again.
func TestARemovedRegionIsForgotten(t *testing.T) {
	w := newWorld(t, "eu", "us")
	eu, us := w.regions[0], w.regions[1]
	feed := &queriesFeed{Feed: w.feed}
	eu.relay = eu.relayOver("first", eu.relayOrigin, feed, w.counts)
	w.run(time.Second)
	if n := len(feed.asked.After); n != 1 {
		t.Fatalf("eu follows %d streams, want that of us", n)
	}
	us.away = true
	w.feed.Lose(store.Stream{Region: "us"}, 0)
	w.run(6 * time.Second)
	if n := len(feed.asked.After); n != 0 {
		t.Errorf("eu follows %d streams, and there are none", n)
	}
	us.away = false
	c := us.cell("k", time.Hour)
	us.accept(c, 50, 100)
	w.run(2 * time.Second)
	w.wantKnown(c)
}
