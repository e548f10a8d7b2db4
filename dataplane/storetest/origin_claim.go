package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/sender"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/window"
)

var originClaimTests = map[string]func(*originTest){
	"adds each cost only up to AtMost, and answers the total in either case": func(h *originTest) {
		c := h.cells(3)
		h.claim([]store.Cost{{Cell: c[0], Add: 4, AtMost: 10}}, yes(4))
		h.send(store.Cost{Cell: c[0], Add: 2})
		// "Costs of one cell are decided in the order", each on the room that the costs before left.
		h.claim([]store.Cost{
			{Cell: c[0], Add: 5, AtMost: 10}, {Cell: c[1], Add: 5, AtMost: 5}, {Cell: c[0], Add: 3, AtMost: 10},
			{Cell: c[0], Add: 2, AtMost: 10}, {Cell: c[0], Add: 1, AtMost: 10}, {Cell: c[2], Add: 6, AtMost: 5},
		}, no(6), yes(5), yes(9), no(9), yes(10), no(0))
		h.claim([]store.Cost{{Cell: c[0], Add: 1, AtMost: 3}, {Cell: c[0], Add: 1, AtMost: 11}}, no(10), yes(11))
		h.wantRegions(c, 11, 5, 0)
	},
	"counts what was restored": func(h *originTest) {
		c := h.cells(1)
		h.send(store.Cost{Cell: c[0], Add: 1, Restore: 5, Known: 7})
		h.claim([]store.Cost{{Cell: c[0], Add: 3, AtMost: 10}, {Cell: c[0], Add: 2, AtMost: 10}}, no(8), yes(10))
	},
	"one that finds no room changes and creates nothing": func(h *originTest) {
		c := h.cells(2)
		h.send(store.Cost{Cell: c[0], Add: 7})
		for _, atMost := range []int64{math.MinInt64, -1, 1, 2} {
			h.claim([]store.Cost{
				{Cell: c[0], Add: 3, AtMost: atMost, Limit: 5}, {Cell: c[1], Add: 3, AtMost: atMost, Limit: 5},
			}, no(7), no(0))
		}
		h.wantChanges()
	},
	"a cost that is not positive is not applied": func(h *originTest) {
		c := h.cells(2)
		h.send(store.Cost{Cell: c[0], Add: 7})
		for i, cost := range []int64{0, -1, math.MinInt64} {
			totals := sendAny(h, h, h.stream.Chunk(h, store.Cost{Cell: c[0], Add: cost, AtMost: 9},
				store.Cost{Cell: c[1], Add: 1, AtMost: 9}))
			if bad := totals[0]; bad.Err == nil || bad.Region != 0 || bad.Added || bad.Epoch == 0 {
				h.Errorf("cost %d: %+v", cost, bad)
			}
			if !totals[1].Added || totals[1].Region != int64(i+1) {
				h.Errorf("beside cost %d: %+v", cost, totals[1])
			}
		}
		h.wantRegions(c, 7, 3)
	},
	"is exact up to CountMax": func(h *originTest) {
		c := h.cells(2)
		h.send(store.Cost{Cell: c[0], Add: store.CountMax - 5}, store.Cost{Cell: c[1], Add: 1 << 52})
		h.claim([]store.Cost{
			{Cell: c[0], Add: 6, AtMost: math.MaxInt64}, {Cell: c[0], Add: math.MaxInt64, AtMost: math.MaxInt64},
			{Cell: c[0], Add: 5, AtMost: math.MaxInt64}, {Cell: c[1], Add: 2, AtMost: 1<<52 + 1},
			{Cell: c[1], Add: 1, AtMost: 1<<52 + 1},
		}, no(store.CountMax-5), no(store.CountMax-5), yes(store.CountMax), no(1<<52), yes(1<<52+1))
	},
	"takes as many cells as it is given":                                  testOriginClaimMany,
	"never exceeds AtMost and wastes no room, however many claim at once": testOriginClaimConcurrently,
	"a lost reply leaves it applied":                                      testClaimLost,
	"the same again finds out what was added, and adds nothing":           testClaimAgain,
	"one that comes late is refused":                                      testClaimLate,
	"bounded costs and others may go together":                            testMixed,
	"does not lose what is sent meanwhile":                                testOriginClaimBesideSends,
}

// originClaimForeignTests are for origins that are Relayed.
var originClaimForeignTests = map[string]func(*originTest){
	"answers with the foreign total": testClaimForeign,
}

// claimed is how a bounded cost is answered: the region's total, and whether it was added.
type claimed struct {
	total int64
	added bool
}

func yes(total int64) claimed { return claimed{total, true} }
func no(total int64) claimed  { return claimed{total, false} }

// claim sends bounded costs and expects them to be answered like this.
func (h *originTest) claim(costs []store.Cost, want ...claimed) {
	h.Helper()
	h.wantClaimed(h.stream.Chunk(h, costs...), want...)
}

func testOriginClaimMany(h *originTest) {
	cells := h.cells(store.ChunkMax)
	costs, want := make([]store.Cost, len(cells)), make([]claimed, len(cells))
	for i, c := range cells {
		costs[i], want[i] = store.Cost{Cell: c, Add: int64(i + 1), AtMost: 300}, no(0)
		if i < 300 {
			want[i] = yes(int64(i + 1))
		}
	}
	h.claim(costs, want...)
}

func testOriginClaimConcurrently(h *originTest) {
	rapid.Check(h.T, func(rt *rapid.T) {
		atMost := rapid.Int64Range(1, 60).Draw(rt, "at most")
		callers := rapid.SliceOfN(rapid.SliceOfN(rapid.Int64Range(1, 9), 1, 8), 2, 6).Draw(rt, "costs of each caller")
		cell := suite.LiveCell(suite.FreshWorkspace(), "x")
		var mu sync.Mutex
		added, leastRefused := int64(0), int64(math.MaxInt64)
		var problems []string
		var wg sync.WaitGroup
		for _, costs := range callers {
			stream := sender.NewStream()
			wg.Go(func() {
				for _, cost := range costs {
					r, err := h.Send(rt.Context(), stream.Chunk(h, store.Cost{Cell: cell, Add: cost, AtMost: atMost}))
					if err != nil {
						r.Totals = []store.Total{{Err: err}}
					}
					total := r.Totals[0]
					mu.Lock()
					if total.Err != nil || total.Region > atMost || !total.Added && total.Region+cost <= atMost {
						problems = append(problems, fmt.Sprintf("cost %d: %+v", cost, r))
					}
					if total.Added {
						added += cost
					} else {
						leastRefused = min(leastRefused, cost)
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		total := get(rt, h, cell)[0].Region
		if len(problems) > 0 || total != added || total > atMost || leastRefused <= atMost-total {
			rt.Fatalf("at most %d: the total is %d, %d were added, %d was refused; %v",
				atMost, total, added, leastRefused, problems)
		}
	})
}

func testClaimLost(h *originTest) {
	c := h.cells(1)
	h.epoch(c[0])
	h.sendLost(h.stream.Chunk(h, store.Cost{Cell: c[0], Add: 3, AtMost: 9}))
	h.wantRegions(c, 3)
}

// again returns a chunk that adds nothing: it finds out the outcome of the same chunk, if that was decided.
func again(chunk store.Chunk) store.Chunk {
	chunk.Costs = slices.Clone(chunk.Costs)
	for i := range chunk.Costs {
		chunk.Costs[i].AtMost = -1
	}
	return chunk
}

// wantClaimed expects a chunk of bounded costs to be answered like this.
func (h *originTest) wantClaimed(chunk store.Chunk, want ...claimed) {
	h.Helper()
	for i, total := range sendAny(h, h, chunk) {
		if total.Err != nil || total.Region != want[i].total || total.Added != want[i].added || total.Epoch == 0 {
			h.Errorf("chunk %d, %+v: %+v; want %+v", chunk.Number, chunk.Costs[i], total, want[i])
		}
	}
}

func testClaimAgain(h *originTest) {
	c := h.cells(store.ChunkMax)
	get(h, h, c...) // all epochs are drawn
	costs, first, second := make([]store.Cost, len(c)), make([]claimed, len(c)), make([]claimed, len(c))
	for i := range c {
		costs[i] = store.Cost{Cell: c[i], Add: 3, AtMost: 2 + int64(i%2)}
	}
	arrived := h.stream.Chunk(h, costs...)
	h.sendLost(arrived)
	sum := int64(0)
	for i, total := range sendAny(h, h, again(arrived)) { // some parts may not have arrived, and never will now
		first[i], second[i] = claimed{total.Region, total.Added}, claimed{total.Region, false}
		if total.Err != nil || total.Added != (total.Region == 3) {
			h.Errorf("cost %d: %+v", i, total)
		}
		sum += total.Region
	}
	if sum == 0 || sum > 3*store.ChunkMax/2 {
		h.Fatalf("%d was added", sum)
	}
	for range 2 {
		h.wantClaimed(again(arrived), first...)
		h.wantClaimed(arrived, first...)
	}
	h.wantClaimed(h.stream.Chunk(h, again(arrived).Costs...), second...)

	missing := h.stream.Chunk(h, store.Cost{Cell: c[0], Add: 1, AtMost: 9}) // this chunk has not arrived yet
	h.wantClaimed(again(missing), no(0))
	h.wantClaimed(missing, no(0))
	h.Wipe(h)
	h.wantClaimed(again(arrived), make([]claimed, len(c))...) // added cost is lost with its epoch
}

func testClaimLate(h *originTest) {
	c := h.cells(2)
	late := h.stream.Chunk(h, store.Cost{Cell: c[0], Add: 1, AtMost: 9})
	h.claim([]store.Cost{{Cell: c[0], Add: 2, AtMost: 9}}, yes(2))
	other := h.Client(h)
	wantLate := func(way store.Origin, chunk store.Chunk) {
		h.Helper()
		err := sendErr(way.Send(h.Context(), chunk))
		if err == nil || errors.Is(err, store.ErrNotApplied) {
			h.Errorf("chunk %d is late: %v", chunk.Number, err)
		}
	}
	wantLate(h, late)
	wantLate(other, late)
	h.send(h.adds(c, 5)...) // the stream's next chunk, without a bound
	late.Number = h.stream.Number - 1
	wantLate(other, late)
	h.wantRegions(c, 7, 0)
}

// testMixed sends bounded and other costs in the same chunk.
func testMixed(h *originTest) {
	c := h.cells(2)
	costs := append(h.adds(c, 4, 2), store.Cost{Cell: c[0], Add: 5, AtMost: 9}, store.Cost{Cell: c[0], Add: 1, AtMost: 9})
	costs = append(costs, h.adds(c[:1], 7)...)
	costs = append(costs, store.Cost{Cell: c[1], Add: 8, AtMost: 10})
	chunk := h.stream.Chunk(h, costs...)
	for _, want := range [][]int64{{4, 2, 9, 9, 16, 10}, {16, 10, 16, 16, 16, 10}} {
		totals := sendTo(h, h, chunk)
		if got := regions(totals); !slices.Equal(got, want) {
			h.Errorf("totals are %v, want %v", got, want)
		}
		if !totals[2].Added || totals[3].Added || !totals[5].Added {
			h.Errorf("bounded costs are answered %+v, want the first and the last to be added", totals)
		}
	}
}

func testClaimForeign(h *originTest) {
	c := h.cells(1)
	h.apply(store.Foreign{Cell: c[0], Count: 8})
	for _, cost := range []int64{1, 10} {
		total := sendTo(h, h, h.stream.Chunk(h, store.Cost{Cell: c[0], Add: cost, AtMost: 5}))[0]
		if total.Foreign != 8 || total.Region != 1 {
			h.Errorf("a bounded cost of %d: %+v", cost, total)
		}
	}
}

func testOriginClaimBesideSends(h *originTest) {
	const callers, calls = 4, 50
	c := h.cells(1)
	var wg sync.WaitGroup
	for range callers {
		s, costs := sender.NewStream(), h.adds(c, 1)
		wg.Go(func() {
			for range calls {
				if _, err := h.Send(h.Context(), s.Chunk(h, costs...)); err != nil {
					h.Errorf("send: %v", err)
				}
				r, err := h.Send(h.Context(), s.Chunk(h, store.Cost{Cell: c[0], Add: 1, AtMost: math.MaxInt64}))
				if err != nil || !r.Totals[0].Added {
					h.Errorf("a bounded cost: %+v, %v", r, err)
				}
			}
		})
	}
	wg.Wait()
	h.wantRegions([]window.Cell{c[0]}, 2*callers*calls)
}
