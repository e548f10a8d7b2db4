package storetest

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/holdmodel"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/window"
)

// testHoldModel makes drawn calls about two cells of a key. After each call it compares the answers and totals with a
// model.
func testHoldModel(h *holdTest) {
	rapid.Check(h.T, func(rt *rapid.T) {
		c := suite.LiveCell(suite.FreshWorkspace(), "id")
		w := &holdWorld{origin: h, cells: []*modelCell{{cell: c}, {cell: later(c, 5)}}}
		rt.Repeat(map[string]func(*rapid.T){"hold": w.hold, "hold more": w.hold, "add": w.add, "": w.check})
	})
}

// holdWorld is an origin and its model.
type holdWorld struct {
	origin *holdTest
	cells  []*modelCell
}

type modelCell struct {
	holdmodel.Cell
	cell window.Cell
}

// draw draws a statement. An owner's HoldNew is always the same, as a call that is made again has it.
func (c *modelCell) draw(rt *rapid.T, owner int64) store.Hold {
	switch rapid.IntRange(0, 4).Draw(rt, "statement") {
	case 0:
		amount := rapid.Int64Range(0, 40).Draw(rt, "amount")
		return states(fmt.Sprint(owner), c.cell, amount, rapid.Int64Range(0, amount).Draw(rt, "after"))
	case 1:
		return ends(fmt.Sprint(owner), c.cell, rapid.Int64Range(0, 40).Draw(rt, "after"))
	case 2:
		return as(store.HoldForced, states(fmt.Sprint(owner), c.cell, 3*owner, owner))
	}
	h := opens(fmt.Sprint(owner), c.cell, 5*owner, 60)
	h.After, h.Optional, h.Tentative = owner, owner%3 == 0, owner%2 == 0
	return h
}

// hold makes a call with one to four statements, about different holds.
func (w *holdWorld) hold(rt *rapid.T) {
	var call store.HoldCall
	var of []*holdmodel.Cell
	for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, 15), 1, 4, rapid.ID[int]).Draw(rt, "holds") {
		c := w.cells[n%2]
		of = append(of, &c.Cell)
		call.Holds = append(call.Holds, c.draw(rt, int64(n/2)))
	}
	call.Group, call.Stream = call.Holds[0].Cell.Key, w.origin.stream.ID
	held, refused := holdmodel.Call(of, call.Holds)
	reply, err := w.origin.Hold(rt.Context(), call)
	if err != nil || reply.Refused != refused {
		rt.Fatalf("%+v: %+v, %v; want that it is refused: %v", call, reply, err, refused)
	}
	for i, a := range reply.Answers {
		total := of[i].Total()
		if a.Total.Region != total || !refused && a.Held != held[i] {
			rt.Fatalf("%+v: %+v, want that it is held: %v, and a total of %d", call.Holds[i], a, held[i], total)
		}
	}
}

// add counts some cost.
func (w *holdWorld) add(rt *rapid.T) {
	c, cost := rapid.SampledFrom(w.cells).Draw(rt, "cell"), rapid.Int64Range(1, 5).Draw(rt, "cost")
	c.Add(cost)
	sendTo(rt, w.origin, w.origin.stream.Chunk(w.origin, store.Cost{Cell: c.cell, Add: cost}))
}

// check requests holds that never fit, which shows the used cost.
func (w *holdWorld) check(rt *rapid.T) {
	call := store.HoldCall{Group: w.cells[0].cell.Key, Stream: w.origin.stream.ID}
	for _, c := range w.cells {
		call.Holds = append(call.Holds, opens("probe", c.cell, 1, 0))
	}
	reply, err := w.origin.Hold(rt.Context(), call)
	if err != nil || !reply.Refused {
		rt.Fatalf("%+v, %v", reply, err)
	}
	for i, c := range w.cells {
		if a := reply.Answers[i]; a.Used != c.Used() || a.Total.Region != c.Total() {
			rt.Fatalf("%+v; want %d used and a total of %d", a, c.Used(), c.Total())
		}
	}
}
