package storetest

import (
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func testRaiseLifts(t *testing.T, o store.Origin) {
	c := liveCells(3)
	add(t, o, store.Add{Cell: c[0], Cost: 4})
	raise(t, o, store.Add{Cell: c[0], Cost: 6}, store.Add{Cell: c[1], Cost: 9})
	wantTotals(t, o, c, 6, 9, 0)
	if got := add(t, o, store.Add{Cell: c[1], Cost: 1}, store.Add{Cell: c[0], Cost: 1}); !slices.Equal(got, []int64{10, 7}) {
		t.Errorf("totals after raising to 9 and 6, and 1 more: %v", got)
	}
	raise(t, o)
	wantTotals(t, o, c, 7, 10, 0)
}

func testRaiseNeverLowers(t *testing.T, o store.Origin) {
	c := liveCells(3)
	add(t, o, store.Add{Cell: c[0], Cost: 10}, store.Add{Cell: c[1], Cost: 10}, store.Add{Cell: c[2], Cost: 10})
	raise(t, o, store.Add{Cell: c[0], Cost: 9}, store.Add{Cell: c[1], Cost: 11}, store.Add{Cell: c[2], Cost: 10})
	wantTotals(t, o, c, 10, 11, 10)
}

func testRaiseTwice(t *testing.T, o store.Origin) {
	c := liveCells(2)
	add(t, o, store.Add{Cell: c[0], Cost: 3})
	for range 2 {
		raise(t, o, store.Add{Cell: c[0], Cost: 5}, store.Add{Cell: c[1], Cost: 5}, store.Add{Cell: c[1], Cost: 4})
		wantTotals(t, o, c, 5, 5)
	}
}

// Neighbours that a float64 cannot tell apart.
func testRaiseBig(t *testing.T, o store.Origin) {
	c := liveCells(1)
	for _, step := range []struct{ to, want int64 }{
		{window.LimitMax, window.LimitMax},
		{1<<60 + 1, 1<<60 + 1},
		{1 << 60, 1<<60 + 1},
		{1<<60 + 2, 1<<60 + 2},
		{999_999_999_999_999_999, 1<<60 + 2}, // one digit less, larger ones
		{math.MaxInt64 - 1, math.MaxInt64 - 1},
		{math.MaxInt64, math.MaxInt64},
		{9, math.MaxInt64},
	} {
		raise(t, o, store.Add{Cell: c[0], Cost: step.to})
		wantTotals(t, o, c, step.want)
	}
}

// Raises race with increments: no total ever falls, and every increment counts on
// top of whatever total it met.
func testRaiseConcurrently(t *testing.T, o store.Origin) {
	const (
		callers = 4
		calls   = 100
		most    = 50 // less than the increments alone reach
	)
	c := liveCell("w", "x")
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			last := int64(0)
			for i := range int64(calls) {
				a := o.Add(t.Context(), []store.Add{{Cell: c, Cost: 1}})[0]
				if a.Err != nil || a.Total <= last {
					t.Errorf("caller %d: total %d, %v after %d", caller, a.Total, a.Err, last)
				}
				last = a.Total
				if err := o.Raise(t.Context(), []store.Add{{Cell: c, Cost: i % most}}); err != nil {
					t.Errorf("caller %d: %v", caller, err)
				}
			}
		})
	}
	wg.Wait()
	got := read(t, o, c)[0]
	if got < callers*calls || got > callers*calls+most {
		t.Errorf("total after %d increments and raises to %d at most: %d", callers*calls, most, got)
	}
}
