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
)

// 42: "Cap 10,000 entries, 1,000,000 one-shot identifiers → memory stays bounded, every
// request is answered, a key at its limit before the flood is still denied after it."
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
		if d := n.Allow(context.Background(), r); !d.Allowed || d.Remaining != 99 {
			t.Fatalf("identifier %d: %+v", i, d)
		}
		if got := n.Entries(); got > entriesMax {
			t.Fatalf("%d entries after %d identifiers", got, i)
		}
	}
	for i := range 100 {
		wantAllowed(t, "a key at its limit before the flood", n.take(fmt.Sprint("full", i), 1, 10), false, 0)
	}
	// "about EntriesMax * (300 B + the names' bytes)"; these have 14 bytes.
	if grown := heapInUse() - before; grown > entriesMax*(300+14) {
		t.Errorf("%d bytes for %d entries", grown, n.Entries())
	} else {
		t.Logf("%d bytes an entry", grown/int64(n.Entries()))
	}
	runtime.KeepAlive(n)
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what a pool held
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
