package storetest

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/sender"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/window"
)

var originSendTests = map[string]func(*originTest){
	"adds each cost to its cell and answers each cell's region total in order": func(h *originTest) {
		c := h.cells(3)
		for i, step := range []struct {
			costs []store.Cost
			want  []int64
		}{
			{[]store.Cost{{Cell: c[0], Add: 1}}, []int64{1}},
			{[]store.Cost{{Cell: c[1], Add: 10}, {Cell: c[0], Add: 2}}, []int64{10, 3}},
			{[]store.Cost{{Cell: c[0], Add: 3}, {Cell: c[0], Add: 4}, {Cell: c[2], Add: 100}}, []int64{6, 10, 100}},
			{[]store.Cost{{Cell: c[0]}}, []int64{10}},
		} {
			if got := regions(h.send(step.costs...)); !slices.Equal(got, step.want) {
				h.Errorf("step %d: totals %v, want %v", i, got, step.want)
			}
		}
		h.wantRegions(c, 10, 10, 100)
	},
	"a chunk is applied at most once, repeated, reordered or late":      testChunksOnce,
	"so is a chunk of ChunkMax costs":                                   testLargeChunksOnce,
	"two streams are apart":                                             testStreamsAreApart,
	"one cost may be refused where others are applied":                  testBadCosts,
	"counts end at CountMax":                                            testCountsEnd,
	"without costs it reports the shard's Now":                          testEmptyChunk,
	"refuses a chunk without a stream or a number, and one of no shard": testBadChunks,
	"may run concurrently and loses nothing":                            testSendConcurrently,
	"random chunks, sent and repeated in any way, equal the model":      testSendHistories,
	"keeps no reference to its argument":                                testSendKeepsNothing,
}

func testChunksOnce(h *originTest) {
	c := h.cells(2)
	other := h.Client(h)
	first := h.stream.Chunk(h, h.adds(c, 1, 10)...)
	second := h.stream.Chunk(h, h.adds(c, 100, 1000)...)
	third := h.stream.Chunk(h, h.adds(c, 10_000)...)
	want := func(what string, got []store.Total, want ...int64) {
		h.Helper()
		if !slices.Equal(regions(got), want) {
			h.Errorf("%s: totals %v, want %v", what, regions(got), want)
		}
	}
	want("sent", sendTo(h, h, first), 1, 10)
	want("repeated", sendTo(h, h, first), 1, 10)
	h.sendLost(second)
	want("after a lost reply", sendTo(h, h, second), 101, 1010)
	want("out of order", sendTo(h, h, first), 101, 1010)
	h.sendLost(third)
	want("late, over another connection", sendTo(h, other, second), 10_101, 1010)
	h.sendLost(third)
	want("after two lost replies", sendTo(h, h, third), 10_101)
	want("late", sendTo(h, other, first), 10_101, 1010)
	h.wantRegions(c, 10_101, 1010)
}

func testLargeChunksOnce(h *originTest) {
	cells := h.cells(store.ChunkMax)
	costs := make([]store.Cost, len(cells))
	want := make([]int64, len(cells))
	epochs := get(h, h, cells...)
	for i, c := range cells {
		costs[i] = store.Cost{Cell: c, Epoch: epochs[i].Epoch, Add: int64(i + 1)}
		want[i] = int64(i + 1)
	}
	chunk := h.stream.Chunk(h, costs...)
	h.sendLost(chunk)
	for range 2 {
		if got := regions(sendTo(h, h, chunk)); !slices.Equal(got, want) {
			h.Errorf("totals are out of order or wrong")
		}
	}
	h.send(costs[:2]...)
	want[0], want[1] = 2, 4
	if got := regions(sendTo(h, h, chunk)); !slices.Equal(got, want) {
		h.Errorf("late, after a smaller chunk: totals are out of order or wrong")
	}
	h.wantRegions(cells, want...)
}

func testStreamsAreApart(h *originTest) {
	c := h.cells(1)
	for i := range int64(3) {
		for range 2 {
			s := sender.NewStream()
			sendTo(h, h, s.Chunk(h, h.adds(c, 1)...))
		}
		h.wantRegions(c, 2*(i+1))
	}
}

func testBadCosts(h *originTest) {
	c := h.cells(3)
	costs := h.adds([]window.Cell{c[0], c[1], c[1], c[1], c[1], c[2]}, 1, -1, 5, 5, 5, 2)
	costs[2].Restore, costs[3].Known, costs[4].Limit = -1, math.MinInt64, -1
	chunk := h.stream.Chunk(h, costs...)
	for range 2 {
		for i, total := range sendAny(h, h, chunk) {
			if bad := i > 0 && i < 5; bad != (total.Err != nil) || bad && (total.Region != 0 || total.Epoch == 0) {
				h.Errorf("cost %d: %+v", i, total)
			}
		}
	}
	h.wantRegions(c, 1, 0, 2)
}

func testCountsEnd(h *originTest) {
	c := h.cells(3)
	h.send(store.Cost{Cell: c[0], Add: store.CountMax - 2}, store.Cost{Cell: c[1], Restore: store.CountMax - 1},
		store.Cost{Cell: c[2], Known: math.MaxInt64})
	h.wantRegions(c, store.CountMax-2, store.CountMax-1, store.CountMax)
	h.send(store.Cost{Cell: c[0], Add: 1}, store.Cost{Cell: c[1], Add: math.MaxInt64}, store.Cost{Cell: c[2], Add: 1})
	h.wantRegions(c, store.CountMax-1, store.CountMax, store.CountMax)
	h.send(store.Cost{Cell: c[0], Add: math.MaxInt64}, store.Cost{Cell: c[1], Restore: math.MaxInt64},
		store.Cost{Cell: c[0], Add: 1})
	h.wantRegions(c[:2], store.CountMax, store.CountMax)
}

func testEmptyChunk(h *originTest) {
	for shard := range h.Shards() {
		for range 2 {
			h.stream.Number++
			before := h.Clock(h)
			reply, err := h.Send(h.Context(), store.Chunk{Shard: shard, Stream: h.stream.ID, Number: h.stream.Number})
			if after := h.Clock(h); err != nil || len(reply.Totals) != 0 || reply.Now.Before(before) || reply.Now.After(after) {
				h.Errorf("a chunk without costs: %+v, between %v and %v: %v", reply, before, after, err)
			}
		}
	}
}

func testBadChunks(h *originTest) {
	c := h.cells(1)
	good := h.stream.Chunk(h, h.adds(c, 1)...)
	for name, spoil := range map[string]func(*store.Chunk){
		"no stream": func(c *store.Chunk) { c.Stream = 0 }, "no number": func(c *store.Chunk) { c.Number = 0 },
		"a negative number": func(c *store.Chunk) { c.Number = -1 },
		"a shard too many":  func(c *store.Chunk) { c.Shard = h.Shards() },
		"a negative shard":  func(c *store.Chunk) { c.Shard = -1 },
	} {
		bad := good
		spoil(&bad)
		if reply, err := h.Send(h.Context(), bad); err == nil {
			h.Errorf("%s: %+v", name, reply)
		}
	}
	h.wantRegions(c, 0)
}

func testSendConcurrently(h *originTest) {
	const nodes, chunks = 8, 30
	cells := h.cells(3)
	var wg sync.WaitGroup
	for node := range nodes {
		s, costs := sender.NewStream(), h.adds(cells, 1, 2, 3)
		wg.Go(func() {
			last := make([]int64, len(cells))
			for range chunks {
				chunk := s.Chunk(h, costs...)
				for range 2 { // each is sent twice
					reply, err := h.Send(h.Context(), chunk)
					if err != nil {
						h.Errorf("node %d: %v", node, err)
						return
					}
					for i, total := range reply.Totals {
						if total.Err != nil || total.Region < last[i] {
							h.Errorf("node %d: %+v after %d", node, total, last[i])
						}
						last[i] = total.Region
					}
				}
			}
		})
	}
	wg.Wait()
	h.wantRegions(cells, nodes*chunks, 2*nodes*chunks, 3*nodes*chunks)
}

func testSendKeepsNothing(h *originTest) {
	c := h.cells(2)
	costs := h.adds(c, 1, 2)
	chunk := h.stream.Chunk(h, costs...)
	h.Origin = keeping(h.Origin)
	rollback := func(testing.TB) {}
	if h.State != nil {
		rollback = h.State(h)
	}
	totals := sendTo(h, h, chunk)
	costs[0].Add, costs[1].Cell, totals[0].Region = 50, c[0], 60
	rollback(h)
	h.send(store.Cost{Cell: c[0]}, store.Cost{Cell: c[1]}) // lost chunks are applied again, unchanged
	h.wantRegions(c, 1, 2)
}

// Whatever is sent, lost, repeated and late, the totals equal a map's.
func testSendHistories(h *originTest) {
	rapid.Check(h.T, func(rt *rapid.T) {
		s := newSendHistory(rt, h)
		rt.Repeat(map[string]func(*rapid.T){"send": s.send, "late": s.late})
		for _, chunk := range s.pending {
			if chunk != nil {
				sendTo(rt, h, *chunk)
			}
		}
		for i, total := range get(rt, h, s.cells...) {
			if want := s.model[s.cells[i]]; total.Region != want {
				rt.Fatalf("total of %v is %d, want %d", s.cells[i], total.Region, want)
			}
		}
	})
}

// sendErr returns the error of a chunk, or of its first cell.
func sendErr(reply store.Reply, err error) error {
	if err == nil && len(reply.Totals) > 0 {
		err = reply.Totals[0].Err
	}
	return err
}

// sendHistory holds the chunks that two streams have sent to an origin, with a model of its totals.
type sendHistory struct {
	*originTest
	cells   []window.Cell
	epochs  map[window.Cell]store.Epoch
	model   map[window.Cell]int64
	streams []sender.Stream
	sent    [][]store.Chunk
	pending []*store.Chunk // whose reply was lost
	other   store.Origin
}

func newSendHistory(rt *rapid.T, h *originTest) *sendHistory {
	s := &sendHistory{originTest: h, epochs: make(map[window.Cell]store.Epoch), model: make(map[window.Cell]int64)}
	s.cells, s.other = originCells(h, suite.FreshWorkspace(), 3), h.Client(h)
	for i, total := range get(rt, h, s.cells...) {
		s.epochs[s.cells[i]] = total.Epoch
	}
	s.streams = []sender.Stream{sender.NewStream(), sender.NewStream()}
	s.sent, s.pending = make([][]store.Chunk, len(s.streams)), make([]*store.Chunk, len(s.streams))
	return s
}

func (s *sendHistory) draw(rt *rapid.T) (stream int) {
	return rapid.IntRange(0, len(s.streams)-1).Draw(rt, "stream")
}

// send sends a stream's next chunk, or its last chunk again if the reply was lost.
func (s *sendHistory) send(rt *rapid.T) {
	n := s.draw(rt)
	if s.pending[n] == nil {
		chunk := s.streams[n].Chunk(s.originTest, drawCosts(rt, s.cells, s.epochs)...)
		for _, c := range chunk.Costs {
			s.model[c.Cell] += c.Add
		}
		s.pending[n] = &chunk
		s.sent[n] = append(s.sent[n], chunk)
	}
	if rapid.Bool().Draw(rt, "the reply is lost") {
		s.sendLost(*s.pending[n])
		return
	}
	s.check(rt, "sent", *s.pending[n], sendTo(rt, s.originTest, *s.pending[n]))
	s.pending[n] = nil
}

// late delivers a chunk again after a later chunk of its stream, by another client.
func (s *sendHistory) late(rt *rapid.T) {
	n := s.draw(rt)
	if all := len(s.sent[n]); all > 1 {
		chunk := s.sent[n][rapid.IntRange(0, all-2).Draw(rt, "chunk")]
		s.check(rt, "late", chunk, sendTo(rt, s.other, chunk))
	}
}

func (s *sendHistory) check(rt *rapid.T, what string, chunk store.Chunk, totals []store.Total) {
	for i, total := range totals {
		if c := chunk.Costs[i].Cell; total.Region > s.model[c] || total.Epoch != s.epochs[c] {
			rt.Fatalf("%s: %v is %+v, want at most %d", what, c, total, s.model[c])
		}
	}
}

func drawCosts(rt *rapid.T, cells []window.Cell, epochs map[window.Cell]store.Epoch) []store.Cost {
	var costs []store.Cost
	for i := range rapid.IntRange(1, 4).Draw(rt, "costs") {
		c := rapid.SampledFrom(cells).Draw(rt, fmt.Sprint("cell ", i))
		costs = append(costs, store.Cost{
			Cell:  c,
			Epoch: epochs[c],
			Add:   rapid.Int64Range(0, 1000).Draw(rt, fmt.Sprint("add ", i)),
		})
	}
	return costs
}
