package relay_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// queriesNews remembers what was asked last.
type queriesNews struct {
	store.News
	asked store.NewsQuery
}

func (n *queriesNews) Read(ctx context.Context, q store.NewsQuery) (store.NewsPage, error) {
	n.asked = q
	return n.News.Read(ctx, q)
}

// A region whose rows were deleted is forgotten: no read asks for it for ever. One that comes back is read again.
func TestARemovedRegionIsForgotten(t *testing.T) {
	w := newWorld(t, "eu", "us")
	eu, us := w.regions[0], w.regions[1]
	news := &queriesNews{News: w.news}
	eu.relay = eu.relayOver("first", eu.relayOrigin, news, w.counts)
	w.run(time.Second)
	if n := len(news.asked.After); n != 1 {
		t.Fatalf("eu follows %d streams, want that of us", n)
	}
	us.away = true
	w.news.Lose(store.Stream{Region: "us"}, 0)
	w.run(6 * time.Second)
	if n := len(news.asked.After); n != 0 {
		t.Errorf("eu follows %d streams, and there are none", n)
	}
	us.away = false
	c := us.cell("k", time.Hour)
	us.accept(c, 50, 100)
	w.run(2 * time.Second)
	w.wantKnown(c)
}
