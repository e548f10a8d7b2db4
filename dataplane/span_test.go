package dataplane_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// This test bounds the cost that a process admits in any span of time, whole cells or not. In y of a duration, y <=
// 1, it is at most (1 + y) * limit, rounded up. In a cell, whose carry is never negative, it is at most the limit.
//
// A span of y durations begins at most y before the end of a cell. Let p be the total that this cell admitted; at
// most p of it is in the span. At e <= y after the start of the next cell, the carry is at least p*(1-e) - 1 +
// 1/duration, so that cell has admitted at most limit - p*(1-e) + 1 by then, less a little. The sum is at most limit
// + p*e + 1, less a little, and p <= limit.
func TestWhatASpanOfTimeAdmits(t *testing.T) {
	const durationMs = 60_000
	type accepted struct{ atMs, cost int64 }
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		n := w.alone()
		limit := rapid.Int64Range(1, 200).Draw(rt, "limit")
		var history []accepted
		for range rapid.IntRange(1, 120).Draw(rt, "requests") {
			ms := rapid.OneOf(rapid.Int64Range(0, 2), rapid.Int64Range(0, 700), rapid.Int64Range(0, 40_000)).Draw(rt, "pause")
			w.clock.advance(time.Duration(ms) * time.Millisecond)
			cost := rapid.OneOf(rapid.Int64Range(1, 3), rapid.Int64Range(1, limit)).Draw(rt, "cost")
			if n.take("k", cost, limit).Allowed {
				history = append(history, accepted{w.clock.Now().Sub(epoch).Milliseconds(), cost})
			}
		}
		inCell := map[int64]int64{}
		for from, first := range history {
			inCell[first.atMs/durationMs] += first.cost
			total := int64(0)
			for _, a := range history[from:] {
				span := a.atMs - first.atMs
				if span > durationMs {
					break
				}
				total += a.cost
				if most := (limit*(durationMs+span) + durationMs - 1) / durationMs; total > most {
					rt.Fatalf("%d accepted of %d from %d ms to %d ms, at most %d", total, limit, first.atMs, a.atMs, most)
				}
			}
		}
		for cell, total := range inCell {
			if total > limit {
				rt.Fatalf("%d accepted of %d in cell %d", total, limit, cell)
			}
		}
	})
}

// The bound is reached: a limit spent in the last moment of a cell becomes free again as the cell's weight falls.
// This window allows nearly twice the limit in nearly one duration.
func TestALimitSpentAtTheEndOfACellComesBackInTheNext(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	w.clock.set(59_900 * time.Millisecond)
	wantAllowed(t, "100 at 59.9 s", n.take("k", 100, 100), true, 0)
	accepted := 0
	for at := 60 * time.Second; at < 119_800*time.Millisecond; at += 100 * time.Millisecond {
		w.clock.set(at)
		for n.take("k", 1, 100).Allowed {
			accepted++
		}
	}
	if accepted != 100 {
		t.Errorf("%d more of 100 in the 59.9 s that follow, want 100", accepted)
	}
}
