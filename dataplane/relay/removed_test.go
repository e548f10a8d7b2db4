package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// queriesFeed records the last query.
type queriesFeed struct {
	store.Feed
	asked store.FeedQuery
}

func (n *queriesFeed) Read(ctx context.Context, q store.FeedQuery) (store.FeedPage, error) {
	n.asked = q
	return n.Feed.Read(ctx, q)
}

// A region whose rows were deleted is forgotten, so that reads stop asking for its streams. If the region comes back,
// it is read again.
func TestARemovedRegionIsForgotten(t *testing.T) {
	w, eu, us := newPair(t)
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
