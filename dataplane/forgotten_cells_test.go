package dataplane_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// wasAhead sets the clock of the region's origin ahead and back. The origin forgets the cells that are over meanwhile,
// and the nodes have answers from before, in between and after.
func (w *world) wasAhead(by time.Duration, nodes ...*node) {
	w.t.Helper()
	answers := func() {
		for _, n := range nodes {
			if n.take("another", 1, 1000); n.ReplayOnce(w.t.Context()) != nil {
				w.t.Fatal("no answer")
			}
			n.AwaitCalls()
		}
	}
	answers()
	w.clock.advance(2 * store.KeepFor) // otherwise nodes send the last chunks again, because the origin forgot these too
	w.clock.step(by)
	answers()
	chunk := store.Chunk{Stream: 1, Number: w.clock.Now().UnixMilli()}
	for i := range store.ChunkMax { // so many that memstore looks for cells that are over
		c := window.Cell{Key: window.Key{Workspace: "acme", Namespace: "others", Identifier: fmt.Sprint(i),
			Duration: time.Second}, Sequence: w.clock.Now().Unix()}
		chunk.Costs = append(chunk.Costs, store.Cost{Cell: c, Add: 1})
	}
	for range 4 {
		chunk.Number++
		for i := range chunk.Costs {
			chunk.Costs[i].Cell.Sequence++
		}
		if _, err := w.origin("eu").Client().Send(w.t.Context(), chunk); err != nil {
			w.t.Fatal(err)
		}
	}
	w.clock.step(-by)
	w.clock.advance(time.Second)
	answers()
	for _, n := range nodes { // not earlier: while the clock is ahead, a sweep evicts the keys
		n.Sweep()
	}
}

// givingBack has the ways to give cost back: an allowance is settled, or a cost is refunded by its key.
var givingBack = map[string]func(t *testing.T, n *node, accepted, spent int64) (give func()){
	"settled": func(t *testing.T, n *node, accepted, spent int64) func() {
		r := n.reserve("k", accepted, 1000)
		return func() { settle(t, r, spent, spent-accepted) }
	},
	"refunded": func(t *testing.T, n *node, accepted, spent int64) func() {
		wantAllowed(t, "before", n.take("k", accepted, 1000), true, 1000-accepted)
		return func() {
			if got, err := n.Refund(ask("k", accepted-spent, 1000)); err != nil || got != accepted-spent {
				t.Errorf("refunded %d, %v; want %d", got, err, accepted-spent)
			}
		}
	},
}

// While an origin's clock was ahead, the origin has forgotten the cell in which a cost was accepted and given back.
// Credit of that cost pays for nothing: all cost that the node accepts from then on reaches its origin and other nodes,
// which admit no more than the limit together.
func TestCreditForCostThatItsOriginForgotPaysForNothing(t *testing.T) {
	for how, accept := range givingBack {
		for _, late := range []bool{false, true} {
			for _, view := range []store.Window{store.WindowCells, store.WindowPrecise} {
				for _, ahead := range []time.Duration{5 * time.Minute, 24 * time.Hour} {
					t.Run(fmt.Sprintf("%s/late %v/%s/%v", how, late, view, ahead), func(t *testing.T) {
						w := newWorld(t)
						w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Window: view})
						a, b := w.node("eu", "a"), w.node("eu", "b")
						give := accept(t, a, 700, 1)
						a.replay()
						if !late {
							give()
						}
						w.wasAhead(ahead, a, b)
						if late {
							give()
						}
						w.wantTotal("k", 0)
						wantAllowed(t, "after", a.take("k", 30, 1000), true, 969)
						a.replay()
						w.wantTotal("k", 30)
						got := int64(30)
						for range 40 {
							w.clock.advance(time.Second / 2)
							for _, n := range []*node{b, a} {
								if n.take("k", 40, 1000).Allowed {
									got += 40
								}
								n.replay()
							}
						}
						if got > 1000 {
							t.Errorf("%d of 1000 were admitted after the clock was right", got)
						}
						if ahead > store.StreamKeptFor {
							got += 700 // the origin has forgotten the stream too, and has the last claim sent again
						}
						w.wantTotal("k", got)
					})
				}
			}
		}
	}
}

// Without credit, nodes admit the limit once more at most after their origin has forgotten a cell, and less if they
// have counts of it.
func TestAForgottenCellIsSpentOnceMoreAtMost(t *testing.T) {
	for _, before := range []int64{0, 100, 600, 1000} {
		w := newWorld(t)
		nodes := []*node{w.node("eu", "a"), w.node("eu", "b"), w.node("eu", "c")}
		for spent := int64(0); spent < before; spent += 20 {
			if d := nodes[spent/20%3].take("k", 20, 1000); !d.Allowed {
				t.Fatalf("%+v", d)
			}
			for range 2 {
				for _, n := range nodes {
					n.replay()
				}
				w.clock.advance(100 * time.Millisecond)
			}
		}
		w.wantTotal("k", before)
		w.wasAhead(5*time.Minute, nodes...)
		got := int64(0)
		for i := range 200 {
			w.clock.advance(100 * time.Millisecond)
			for _, n := range nodes[i%3:] {
				if n.take("k", 20, 1000).Allowed {
					got += 20
				}
				n.replay()
			}
		}
		w.wantTotal("k", got)
		if got > 1000 {
			t.Errorf("%d of 1000 were admitted, after %d that the origin has forgotten", got, before)
		}
	}
}

// wantTotal checks the region's total of a key's current cell.
func (w *world) wantTotal(identifier string, want int64) {
	w.t.Helper()
	if got := w.origin("eu").Totals()[w.cell(identifier)].Region; got != want {
		w.t.Errorf("the origin has %d of %s, want %d", got, identifier, want)
	}
}
