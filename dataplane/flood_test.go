//go:build !race

package dataplane_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Cap 10,000 entries, 1,000,000 one-shot identifiers → memory stays bounded, every request is answered, and a key at
// its limit before the flood is still denied after it.
func TestAFloodOfOneShotIdentifiers(t *testing.T) {
	const entriesMax, identifiers = 10_000, 1_000_000
	w := newWorld(t)
	before := heapInUse()
	n := w.alone(func(c *dataplane.Config) {
		c.EntriesMax, c.Clock = entriesMax, func() time.Time { return epoch }
	})
	for i := range 100 {
		n.take(fmt.Sprint("full", i), 10, 10)
	}
	r := ask("", 1, 100)
	for i := range identifiers {
		r.Identifier = strconv.Itoa(i)
		if d := n.Allow(context.Background(), r); !d.Allowed {
			t.Fatalf("identifier %d: %+v", i, d)
		}
		if got := n.Entries(); got > entriesMax {
			t.Fatalf("%d entries after %d identifiers", got, i)
		}
	}
	for i := range 100 {
		wantAllowed(t, "a key at its limit before the flood", n.take(fmt.Sprint("full", i), 1, 10), false, 0)
	}
	// "about EntriesMax * (200 B + the identifiers' bytes)"; these have 14 bytes. And a sketch of 4 * 16,384 counts.
	if grown := heapInUse() - before; grown > entriesMax*(200+14+2)+4*16_384*8 {
		t.Errorf("%d bytes for %d entries", grown, n.Entries())
	} else {
		t.Logf("%d bytes an entry", grown/int64(n.Entries()))
	}
	runtime.KeepAlive(n)
}

// At most 200 B per identifier in addition to its own bytes, with both cells and all bookkeeping. This also holds for
// a node in a fleet, when its keys have been read, sent and confirmed.
func TestBytesAnIdentifier(t *testing.T) {
	const keys = 20_000
	for name, config := range map[string]dataplane.Config{
		"alone":      {},
		"in a fleet": {Region: "eu", Origin: emptyOrigin{}},
	} {
		t.Run(name, func(t *testing.T) {
			config.EntriesMax, config.Clock = keys, func() time.Time { return epoch }
			before := heapInUse()
			l, err := dataplane.New(config)
			if err != nil {
				t.Fatal(err)
			}
			r, own := ask("", 1, 100), 0
			for i := range 19 * keys / 20 { // otherwise some parts would be full, and evict
				r.Identifier = fmt.Sprintf("user_%d", i)
				own += 16 // the allocated size of such a name
				l.Allow(context.Background(), r)
			}
			if config.Origin != nil {
				l.AwaitCalls()
				if err := l.ReplayOnce(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			each := (heapInUse() - before - int64(own)) / int64(l.Entries())
			t.Logf("%d bytes", each)
			if each > 200 {
				t.Errorf("%d bytes an identifier besides its own", each)
			}
			runtime.KeepAlive(l)
		})
	}
}

// emptyOrigin answers at once and stores nothing.
type emptyOrigin struct{ store.Origin }

func (emptyOrigin) Shards() int             { return 1 }
func (emptyOrigin) ShardOf(*window.Key) int { return 0 }
func (emptyOrigin) Read(_ context.Context, cells []window.Cell) (store.Reply, error) {
	return store.Reply{Totals: make([]store.Total, len(cells))}, nil
}
func (emptyOrigin) Send(_ context.Context, c store.Chunk) (store.Reply, error) {
	totals := make([]store.Total, len(c.Costs))
	for i, cost := range c.Costs {
		totals[i].Region = cost.Add
	}
	return store.Reply{Totals: totals}, nil
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // frees memory that a pool held
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A request counts as soon as its cost is added, before the steps that follow: its key is at its limit by its count.
func TestAKeyIsDeniedByItsCount(t *testing.T) {
	for name, n := range map[string]*node{
		"alone": newWorld(t).alone(func(c *dataplane.Config) { c.EntriesMax = 10 }),
		"fleet": newWorld(t).node("eu", "a", func(c *dataplane.Config) { c.EntriesMax = 10; c.Origin = nil }),
	} {
		n.CountOnly(ask("k", 10, 10))
		for i := range 40 {
			n.take(fmt.Sprint("flood", i), 1, 1000)
		}
		if d := n.take("k", 10, 10); d.Allowed {
			t.Errorf("%s: counted to its limit, and washed away before it was marked: %+v", name, d)
		}
	}
}
