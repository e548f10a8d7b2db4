package storetest

import (
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// testOriginDistinct gives each cell a total of its own and expects each one back.
// Conformance 6: "Names with any characters … never collide … in Redis".
func testOriginDistinct(t *testing.T, o store.Origin, cells []window.Cell) {
	t.Helper()
	var adds []store.Add
	for i, c := range cells {
		adds = append(adds, store.Add{Cell: c, Cost: int64(i + 1)})
	}
	for i, total := range add(t, o, adds...) {
		if total != int64(i+1) {
			t.Errorf("%v/%d: total %d after the first %d; another cell counts here", cells[i], cells[i].Sequence, total, i+1)
		}
	}
	for i, total := range read(t, o, cells...) {
		if total != int64(i+1) {
			t.Errorf("%v/%d: read %d, want %d", cells[i], cells[i].Sequence, total, i+1)
		}
	}
}

// Conformance 5: "Same identifier, other duration → independent." Conformance 6:
// "The same namespace in two workspaces → isolated." And two modes never share cells,
// nor do two generations, which share their key's shard.
func testOriginIdentity(t *testing.T, o store.Origin) {
	hour, other, day, next := liveCell("w", "x"), liveCell("w2", "x"), liveCell("w", "x"), liveCell("w", "x")
	day.Duration, day.Sequence = 24*time.Hour, sequenceNow(24*time.Hour)
	next.Sequence++
	estimate := hour
	estimate.Mode = window.Estimate
	reset, again := hour, estimate
	reset.Generation, again.Generation = 1, window.GenerationMax
	if n := o.ShardOf(&hour.Key); o.ShardOf(&reset.Key) != n {
		t.Errorf("a reset moves the key from shard %d", n)
	}
	add(t, o, store.Add{Cell: hour, Cost: 1}, store.Add{Cell: other, Cost: 2}, store.Add{Cell: day, Cost: 4}, store.Add{Cell: next, Cost: 8},
		store.Add{Cell: estimate, Cost: 16}, store.Add{Cell: reset, Cost: 32}, store.Add{Cell: again, Cost: 64})
	wantTotals(t, o, []window.Cell{hour, other, day, next, estimate, reset, again}, 1, 2, 4, 8, 16, 32, 64)
}

func testOriginKeepsNothing(t *testing.T, o store.Origin) {
	c := liveCells(2)
	adds := []store.Add{{Cell: c[0], Cost: 1}, {Cell: c[1], Cost: 2}}
	totals := add(t, o, adds...)
	adds[0], adds[1], totals[0] = adds[1], adds[0], 99
	raised := []store.Add{{Cell: c[0], Cost: 4}}
	raise(t, o, raised...)
	raised[0].Cost = 77
	claims := []store.Claim{{Cell: c[0], Cost: 1, AtMost: 5}, {Cell: c[1], Cost: 1, AtMost: 2}}
	claimed := claim(t, o, claims...)
	claims[0], claims[1], claimed[0] = claims[1], claims[0], store.Claimed{}
	cells := slices.Clone(c)
	got := read(t, o, cells...)
	cells[0], got[1] = c[1], 99
	wantTotals(t, o, c, 5, 2)
}

// Random calls leave, and answer, what a map of integers would.
func testOriginHistories(t *testing.T, o store.Origin) {
	rapid.Check(t, func(rt *rapid.T) {
		cell := drawCell(freshWorkspace())
		cells := rapid.SliceOfN(cell, 0, 8)
		adds := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) store.Add {
			return store.Add{Cell: cell.Draw(rt, "cell"), Cost: rapid.Int64Range(1, window.LimitMax).Draw(rt, "cost")}
		}), 0, 8)
		model := make(map[window.Cell]int64)

		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				adds := adds.Draw(rt, "adds")
				for i, got := range add(rt, o, adds...) {
					model[adds[i].Cell] += adds[i].Cost
					if want := model[adds[i].Cell]; got != want {
						rt.Fatalf("total %d of %v is %d, want %d", i, adds[i].Cell, got, want)
					}
				}
			},
			"claim": func(rt *rapid.T) {
				var claims []store.Claim
				for _, a := range adds.Draw(rt, "claims") {
					claims = append(claims, store.Claim{Cell: a.Cell, Cost: a.Cost,
						AtMost: model[a.Cell] + rapid.Int64Range(-window.LimitMax, 2*window.LimitMax).Draw(rt, "room")})
				}
				for i, got := range claim(rt, o, claims...) {
					c := claims[i]
					fits := model[c.Cell]+c.Cost <= c.AtMost
					if fits {
						model[c.Cell] += c.Cost
					}
					if want := (store.Claimed{Total: model[c.Cell], Added: fits}); got != want {
						rt.Fatalf("claim %d of %v: %+v, want %+v", i, c, got, want)
					}
				}
			},
			"raise": func(rt *rapid.T) {
				adds := adds.Draw(rt, "raises")
				raise(rt, o, adds...)
				for _, a := range adds {
					model[a.Cell] = max(model[a.Cell], a.Cost)
				}
			},
			"read": func(rt *rapid.T) {
				cells := cells.Draw(rt, "cells")
				for i, got := range read(rt, o, cells...) {
					if want := model[cells[i]]; got != want {
						rt.Fatalf("total %d of %v is %d, want %d", i, cells[i], got, want)
					}
				}
			},
		})
	})
}

// Every increment is answered with a total of its own, and none is missing: so each
// caller learns exactly what the others have added before it.
func testAddConcurrently(t *testing.T, o store.Origin) {
	const (
		callers = 16
		calls   = 40
	)
	cells := liveCells(3)
	var mu sync.Mutex
	answers := make(map[window.Cell][]int64)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			last := make(map[window.Cell]int64)
			for range calls {
				var adds []store.Add
				for i := range cells { // each caller in an order of its own
					adds = append(adds, store.Add{Cell: cells[(i+caller)%len(cells)], Cost: 1})
				}
				for i, a := range o.Add(t.Context(), adds) {
					if a.Err != nil {
						t.Errorf("caller %d: %v", caller, a.Err)
						return
					}
					c := adds[i].Cell
					if a.Total <= last[c] {
						t.Errorf("caller %d: total %d after %d", caller, a.Total, last[c])
					}
					last[c] = a.Total
					mu.Lock()
					answers[c] = append(answers[c], a.Total)
					mu.Unlock()
				}
				if totals, err := o.Read(t.Context(), cells[:1]); err != nil || totals[0] < last[cells[0]] {
					t.Errorf("caller %d: read %v, %v after total %d", caller, totals, err, last[cells[0]])
				}
			}
		})
	}
	wg.Wait()
	for _, c := range cells {
		slices.Sort(answers[c])
		for i, total := range answers[c] {
			if total != int64(i+1) {
				t.Fatalf("%v: the totals answered are not 1 to %d, each once: %d at place %d", c, callers*calls, total, i)
			}
		}
	}
	wantTotals(t, o, cells, callers*calls, callers*calls, callers*calls)
}
