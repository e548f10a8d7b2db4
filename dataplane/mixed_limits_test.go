package dataplane_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// A batch can have several limits for the same key. Each limit is exact across nodes, in any order: the batch reads
// the origin by the room that the tightest limit leaves.
func TestEachLimitOfABatchIsExactAcrossNodes(t *testing.T) {
	for name, c := range map[string]struct {
		items     []dataplane.Request
		cost, max int64
	}{
		"a small limit before a large one": {[]dataplane.Request{ask("k", 1, 2), ask("k", 60, 100)}, 61, 61},
		"a large limit before a small one": {[]dataplane.Request{ask("k", 1, 1000), ask("k", 6, 10)}, 7, 7},
		"what a small limit leaves":        {[]dataplane.Request{ask("k", 3, 1000), ask("k", 2, 10), ask("k", 1, 1000)}, 6, 6},
		"shadow, over its limit": {[]dataplane.Request{{Workspace: "acme", Namespace: "api", Identifier: "k", Limit: 1,
			Duration: time.Minute, Cost: 2, Shadow: true}, ask("k", 60, 100)}, 60, 60},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := memstore.NewOrigin(memstore.OriginOptions{})
				origin.Faults.Delay(time.Millisecond)
				nodes := waiting(t, 5, origin, 1000, store.NamespaceRow{Outage: "closed"})
				defer stopAll(nodes)
				time.Sleep(100 * time.Millisecond)
				var admitted atomic.Int64
				together(len(nodes), func(i int) {
					if nodes[i].AllowMany(context.Background(), c.items).Allowed {
						admitted.Add(c.cost)
					}
				})
				if got := admitted.Load(); got > c.max {
					t.Errorf("%d were admitted of a limit that leaves room for one batch of %d", got, c.cost)
				}
			})
		})
	}
}

// A batch reads the origin first if a cost is more than a share of the room that its own limit leaves, at any
// position in the batch, and not because another item's limit is small.
func TestABatchAsksFirstByEachLimit(t *testing.T) {
	shadow := ask("k", 500, 10)
	shadow.Shadow = true
	for name, c := range map[string]struct {
		items []dataplane.Request
		asks  bool
	}{
		"a large cost of a small limit, last":         {[]dataplane.Request{ask("k", 1, 1000), ask("k", 2, 4)}, true},
		"a large cost of a small limit, first":        {[]dataplane.Request{ask("k", 2, 4), ask("k", 1, 1000)}, true},
		"a large cost of a large limit, last":         {[]dataplane.Request{ask("k", 1, 10), ask("k", 250, 1000)}, true},
		"costs that are large together":               {[]dataplane.Request{ask("k", 130, 1000), ask("k", 121, 1000)}, true},
		"costs within their shares, small limit last": {[]dataplane.Request{ask("k", 1, 1000), ask("k", 1, 8)}, false},
		"costs within their shares, a small limit":    {[]dataplane.Request{ask("k", 1, 10), ask("k", 50, 1000)}, false},
		"a peek at a small limit":                     {[]dataplane.Request{ask("k", 50, 1000), ask("k", 0, 100)}, false},
		"a large cost that shadow mode leaves out":    {[]dataplane.Request{shadow, ask("k", 50, 1000)}, false},
	} {
		w := newWorld(t)
		w.flushes()
		n := w.node("eu", "a", func(c *dataplane.Config) { c.RegionNodes = 2 })
		n.take("k", 0, 1000)
		w.clock.advance(201 * time.Millisecond)
		before := w.origin("eu").Stats().Gets
		if b := n.AllowMany(t.Context(), c.items); !b.Allowed {
			t.Errorf("%s: %+v", name, b)
		}
		if reads := w.origin("eu").Stats().Gets - before; (reads == 1) != c.asks || reads > 1 {
			t.Errorf("%s: %d reads", name, reads)
		}
	}
}
