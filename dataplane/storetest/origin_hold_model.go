package storetest

import (
	"fmt"
	"maps"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/window"
)

// testHoldModel makes drawn calls about two cells of a key. After each call it compares the answers and totals with a
// model that goes through all holds each time. No hold ends by its time.
func testHoldModel(h *originTest) {
	rapid.Check(h.T, func(rt *rapid.T) {
		c := suite.LiveCell(suite.FreshWorkspace(), "id")
		w := &holdWorld{origin: h, cells: []*modelCell{newModelCell(c), newModelCell(later(c, 5))}}
		rt.Repeat(map[string]func(*rapid.T){"hold": w.hold, "hold more": w.hold, "add": w.add, "": w.check})
	})
}

// holdWorld is an origin and its model.
type holdWorld struct {
	origin *originTest
	cells  []*modelCell
}

// modelCell is a cell of the model: the added cost, its holds, and the largest sum of these.
type modelCell struct {
	cell        window.Cell
	added, most int64
	holds       map[string]modelHold
}

type modelHold struct {
	amount, after    int64
	tentative, final bool
	void             bool // it ended before the origin received it
}

func newModelCell(c window.Cell) *modelCell {
	return &modelCell{cell: c, holds: make(map[string]modelHold)}
}

// sums returns the cost that all holds count, and the cost that holds count that are not tentative.
func (c *modelCell) sums() (all, firm int64) {
	for _, h := range c.holds {
		counts := h.amount
		if h.final {
			counts = h.after
		}
		if all += counts; !h.tentative {
			firm += counts
		}
	}
	return all, firm
}

func (c *modelCell) used() int64 {
	all, _ := c.sums()
	return c.added + all
}

// state applies a statement. It reports whether the hold is there then, and whether the call may be applied.
func (c *modelCell) state(h store.Hold) (held, ok bool) {
	was, known := c.holds[h.Owner]
	if was.void && h.As >= store.HoldForced {
		was, known = modelHold{}, false
	}
	switch {
	case h.As == store.HoldNew && known:
		return !was.final, !was.final || h.Optional
	case h.As == store.HoldNew && c.used()+h.Amount > h.Limit:
		return false, h.Optional
	case h.As == store.HoldNew:
		c.holds[h.Owner] = modelHold{amount: h.Amount, after: h.After, tentative: h.Tentative}
	case known && was.final, !known && h.As == store.HoldState && h.TTL > 0:
		return false, true
	case !known && h.As == store.HoldState:
		c.holds[h.Owner] = modelHold{final: true, void: true}
	default:
		c.holds[h.Owner] = modelHold{amount: max(was.amount, h.Amount), after: max(was.after, h.After)}
		if h.TTL == 0 {
			c.holds[h.Owner] = modelHold{amount: h.Amount, after: h.After, final: true}
		}
	}
	return !c.holds[h.Owner].final, true
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
	var of []*modelCell
	for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, 15), 1, 4, rapid.ID[int]).Draw(rt, "holds") {
		c := w.cells[n%2]
		of = append(of, c)
		call.Holds = append(call.Holds, c.draw(rt, int64(n/2)))
	}
	call.Group, call.Stream = of[0].cell.Key, w.origin.stream.id
	earlier := []map[string]modelHold{maps.Clone(w.cells[0].holds), maps.Clone(w.cells[1].holds)}
	held, refused := make([]bool, len(of)), false
	for i, c := range of {
		var ok bool
		held[i], ok = c.state(call.Holds[i])
		refused = refused || !ok
	}
	for i, c := range w.cells {
		if refused {
			c.holds = earlier[i]
		}
		_, firm := c.sums()
		c.most = max(c.most, firm)
	}
	reply, err := w.origin.Hold(rt.Context(), call)
	if err != nil || reply.Refused != refused {
		rt.Fatalf("%+v: %+v, %v; want that it is refused: %v", call, reply, err, refused)
	}
	for i, a := range reply.Answers {
		total := of[i].added + of[i].most
		if a.Total.Region != total || !refused && a.Held != held[i] {
			rt.Fatalf("%+v: %+v, want that it is held: %v, and a total of %d", call.Holds[i], a, held[i], total)
		}
	}
}

// add counts some cost.
func (w *holdWorld) add(rt *rapid.T) {
	c, cost := rapid.SampledFrom(w.cells).Draw(rt, "cell"), rapid.Int64Range(1, 5).Draw(rt, "cost")
	c.added += cost
	sendTo(rt, w.origin, w.origin.stream.chunk(w.origin, store.Cost{Cell: c.cell, Add: cost}))
}

// check requests holds that never fit, which shows the used cost.
func (w *holdWorld) check(rt *rapid.T) {
	call := store.HoldCall{Group: w.cells[0].cell.Key, Stream: w.origin.stream.id}
	for _, c := range w.cells {
		call.Holds = append(call.Holds, opens("probe", c.cell, 1, 0))
	}
	reply, err := w.origin.Hold(rt.Context(), call)
	if err != nil || !reply.Refused {
		rt.Fatalf("%+v, %v", reply, err)
	}
	for i, c := range w.cells {
		if a := reply.Answers[i]; a.Used != c.used() || a.Total.Region != c.added+c.most {
			rt.Fatalf("%+v; want %d used and a total of %d", a, c.used(), c.added+c.most)
		}
	}
}
