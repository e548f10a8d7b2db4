package storetest

import (
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/sender"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/window"
)

var originCellTests = map[string]func(*originTest){
	"have one shard, which is always the same": testShardsOf,
	"are forgotten some time after they have expired": func(h *originTest) {
		day := (24 * time.Hour).Milliseconds()
		alive := h.cells(1)[0]
		alive.Sequence-- // the previous cell still counts
		expired := alive
		expired.Duration = time.Second
		expired.Sequence = window.Sequence(suite.Began.UnixMilli()-day, 1000)
		for _, c := range []window.Cell{alive, expired} {
			s := sender.NewStream()
			sendTo(h, h, s.Chunk(h, store.Cost{Cell: c, Add: 3, Limit: 9}))
			h.send(store.Cost{Cell: c, Add: 1, AtMost: 9, Limit: 9})
			if h.Relayed == nil {
				continue
			}
			if _, err := h.Apply(h.Context(), h.ShardOf(&c.Key), []store.Foreign{{Cell: c, Count: 2}}); err != nil {
				h.Fatal(err)
			}
		}
		foreign := int64(0)
		if h.Relayed != nil {
			foreign = 2
		}
		got, gone := get(h, h, alive)[0], get(h, h, expired)[0]
		if got.Region != 4 || got.Foreign != foreign || gone.Region != 0 || gone.Foreign != 0 {
			h.Errorf("the previous cell is %+v, and one that expired a day ago %+v", got, gone)
		}
		h.wantChanges(store.Change{Cell: alive, Total: 4, Limit: 9})
	},
	"with names of any bytes never collide": func(h *originTest) { testOriginDistinct(h, suite.LookalikeCells("w")) },
	"with names of the longest lengths are kept whole": func(h *originTest) {
		testOriginDistinct(h, suite.LongestCells("w"))
	},
	"of two durations, workspaces, modes, generations and sequences are apart": func(h *originTest) {
		testOriginDistinct(h, suite.LikeCells())
	},
}

// testOriginDistinct gives each cell its own count and expects each count back.
func testOriginDistinct(h *originTest, cells []window.Cell) {
	h.Helper()
	byShard := make(map[int][]store.Cost)
	want := make(map[window.Cell]int64)
	for i, c := range cells {
		shard := h.ShardOf(&c.Key)
		byShard[shard] = append(byShard[shard], store.Cost{Cell: c, Add: int64(i + 1)})
		want[c] = int64(i + 1)
	}
	for _, costs := range byShard {
		s := sender.NewStream()
		for i, total := range sendTo(h, h, s.Chunk(h, costs...)) {
			if c := costs[i].Cell; total.Region != want[c] {
				h.Errorf("%v/%d: total %d after the first %d; another cell counts here", c, c.Sequence, total.Region, want[c])
			}
		}
		for _, cost := range costs {
			if got := get(h, h, cost.Cell)[0].Region; got != cost.Add {
				h.Errorf("%v/%d: got %d, want %d", cost.Cell, cost.Cell.Sequence, got, cost.Add)
			}
		}
	}
}

// 0 <= n < Shards(), always the same, on every connection and wherever the key lies.
func testShardsOf(h *originTest) {
	shards := h.Shards()
	if shards < 1 {
		h.Fatalf("%d shards", shards)
	}
	cells := append(suite.LookalikeCells("w"), suite.LongestCells("w")...)
	cells = append(cells, suite.LiveCells(1000)...)
	first := make([]int, len(cells))
	for i := range cells {
		first[i] = h.ShardOf(&cells[i].Key)
		if first[i] < 0 || first[i] >= shards {
			h.Fatalf("%v is in shard %d of %d", cells[i], first[i], shards)
		}
	}
	for i, c := range cells {
		c.Sequence++
		if got := h.ShardOf(&c.Key); got != first[i] {
			h.Fatalf("%v was in shard %d and is in shard %d", c, first[i], got)
		}
	}
	if got := h.Shards(); got != shards {
		h.Errorf("%d shards have become %d", shards, got)
	}
}
