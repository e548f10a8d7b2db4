package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weirhq/weir/shared/window"
)

// 0 <= n < Shards(), always the same, on every connection and wherever the key lies.
func testShardsOf(t *testing.T, o interface {
	Shards() int
	ShardOf(*window.Key) int
}) {
	shards := o.Shards()
	if shards < 1 {
		t.Fatalf("%d shards", shards)
	}
	cells := lookalikeCells("w")
	cells = append(cells, longestCells("w")...)
	for i := range 1000 {
		cells = append(cells, liveCell("w", fmt.Sprint("id-", i)))
	}
	first := make([]int, len(cells))
	for i := range cells {
		first[i] = o.ShardOf(&cells[i].Key)
		if first[i] < 0 || first[i] >= shards {
			t.Fatalf("%v is in shard %d of %d", cells[i], first[i], shards)
		}
	}
	for i, c := range slices.Clone(cells) {
		c.Sequence++
		if got := o.ShardOf(&c.Key); got != first[i] {
			t.Fatalf("%v was in shard %d and is in shard %d", c, first[i], got)
		}
	}
	if got := o.Shards(); got != shards {
		t.Errorf("%d shards have become %d", shards, got)
	}
}
