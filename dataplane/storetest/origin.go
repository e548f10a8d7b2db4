package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// TestOrigin runs the contract of store.Origin against what open returns: an
// origin that is empty when open returns it. open is called once for each subtest
// and no two run at once, so it may hand out one server again and again, emptied.
func TestOrigin(t *testing.T, open func(t testing.TB) store.Origin) {
	run := func(name string, f func(t *testing.T, o store.Origin)) {
		t.Run(name, func(t *testing.T) { f(t, open(t)) })
	}
	t.Run("Read", func(t *testing.T) {
		run := func(name string, f func(t *testing.T, o store.Origin)) {
			t.Run(name, func(t *testing.T) { f(t, open(t)) })
		}
		run("returns totals in the order of the cells and 0 where nobody has added", testReadOrder)
		run("creates nothing", testReadCreatesNothing)
		run("reads as many cells as a batch may ask for", testReadMany)
	})
	t.Run("Add", func(t *testing.T) {
		run := func(name string, f func(t *testing.T, o store.Origin)) {
			t.Run(name, func(t *testing.T) { f(t, open(t)) })
		}
		run("adds each cost to its cell and returns each cell's new total in order", testAddTotals)
		run("one increment may fail where others succeed", testAddOverflow)
		run("a cost that is not positive is not applied", testAddNotPositive)
		run("totals are exact for the largest costs", testAddBig)
		run("takes as many cells as it is given", testAddMany)
		run("may run concurrently and loses nothing", testAddConcurrently)
	})
	t.Run("Claim", func(t *testing.T) {
		run := func(name string, f func(t *testing.T, o store.Origin)) {
			t.Run(name, func(t *testing.T) { f(t, open(t)) })
		}
		run("adds each cost only up to AtMost and returns the total in either case", testClaimTotals)
		run("one that finds no room changes and creates nothing", testClaimRefusedChangesNothing)
		run("a cost that is not positive is not applied", testClaimNotPositive)
		run("is exact for the largest counts", testClaimBig)
		run("takes as many cells as it is given", testClaimMany)
		run("never exceeds AtMost and wastes no room, however many claim at once", testClaimConcurrently)
		run("does not lose what is added meanwhile", testClaimBesideAdds)
	})
	t.Run("Raise", func(t *testing.T) {
		run := func(name string, f func(t *testing.T, o store.Origin)) {
			t.Run(name, func(t *testing.T) { f(t, open(t)) })
		}
		run("lifts each cell's total to at least the given count", testRaiseLifts)
		run("never lowers", testRaiseNeverLowers)
		run("doing it twice is doing it once", testRaiseTwice)
		run("is exact for the largest counts", testRaiseBig)
		run("does not lose what is added meanwhile", testRaiseConcurrently)
	})
	run("a key has one shard, which is always the same", testShards)
	run("forgets a cell some time after it has expired", testOriginForgets)
	run("names with any bytes never collide", func(t *testing.T, o store.Origin) {
		testOriginDistinct(t, o, lookalikeCells(freshWorkspace()))
	})
	run("names of the longest lengths are kept whole", func(t *testing.T, o store.Origin) {
		testOriginDistinct(t, o, longestCells(freshWorkspace()))
	})
	run("durations and workspaces are apart, limits are not", testOriginIdentity)
	run("keeps no reference to its arguments", testOriginKeepsNothing)
	run("random histories equal the model", testOriginHistories)
	run("all methods obey ctx", testOriginContext)
}

func read(t reporter, o store.Origin, cells ...window.Cell) []int64 {
	t.Helper()
	totals, err := o.Read(t.Context(), cells)
	if err != nil {
		t.Fatalf("read %d cells: %v", len(cells), err)
	}
	if len(totals) != len(cells) {
		t.Fatalf("read %d cells: %d totals", len(cells), len(totals))
	}
	return totals
}

func wantTotals(t reporter, o store.Origin, cells []window.Cell, want ...int64) {
	t.Helper()
	if got := read(t, o, cells...); !slices.Equal(got, want) {
		t.Errorf("totals are %v, want %v", got, want)
	}
}

// add expects every increment to succeed, and returns the totals.
func add(t reporter, o store.Origin, adds ...store.Add) []int64 {
	t.Helper()
	added := o.Add(t.Context(), adds)
	if len(added) != len(adds) {
		t.Fatalf("add %d costs: %d answers", len(adds), len(added))
	}
	totals := make([]int64, len(added))
	for i, a := range added {
		if a.Err != nil {
			t.Fatalf("add %d to %v: %v", adds[i].Cost, adds[i].Cell, a.Err)
		}
		totals[i] = a.Total
	}
	return totals
}

func raise(t reporter, o store.Origin, totals ...store.Add) {
	t.Helper()
	if err := o.Raise(t.Context(), totals); err != nil {
		t.Fatalf("raise %d cells: %v", len(totals), err)
	}
}

// notApplied expects an error that says that the increment was certainly not applied.
func notApplied(t *testing.T, what string, a store.Added) {
	t.Helper()
	if a.Err == nil || errors.Is(a.Err, store.ErrMaybeApplied) || a.Total != 0 {
		t.Errorf("%s: total %d, error %v; want a certain failure", what, a.Total, a.Err)
	}
}

func liveCells(n int) []window.Cell {
	cells := make([]window.Cell, n)
	for i := range cells {
		cells[i] = liveCell("w", fmt.Sprint("id-", i))
	}
	return cells
}

func testReadOrder(t *testing.T, o store.Origin) {
	c := liveCells(4)
	add(t, o, store.Add{Cell: c[2], Cost: 30}, store.Add{Cell: c[0], Cost: 1})
	wantTotals(t, o, []window.Cell{c[0], c[1], c[2], c[3]}, 1, 0, 30, 0)
	wantTotals(t, o, []window.Cell{c[3], c[2], c[2], c[0]}, 0, 30, 30, 1)
	wantTotals(t, o, nil)
	wantTotals(t, o, []window.Cell{})
}

func testReadCreatesNothing(t *testing.T, o store.Origin) {
	c := liveCells(1)
	wantTotals(t, o, c, 0)
	if got := add(t, o, store.Add{Cell: c[0], Cost: 5}); got[0] != 5 {
		t.Errorf("total after a read and 5: %d", got[0])
	}
}

func testReadMany(t *testing.T, o store.Origin) {
	cells := liveCells(2000) // current and previous of each item of the largest batch
	add(t, o, store.Add{Cell: cells[0], Cost: 1}, store.Add{Cell: cells[len(cells)-1], Cost: 2})
	want := make([]int64, len(cells))
	want[0], want[len(want)-1] = 1, 2
	wantTotals(t, o, cells, want...)
}

func testAddTotals(t *testing.T, o store.Origin) {
	c := liveCells(3)
	for i, step := range []struct {
		adds []store.Add
		want []int64
	}{
		{[]store.Add{{Cell: c[0], Cost: 1}}, []int64{1}},
		{[]store.Add{{Cell: c[1], Cost: 10}, {Cell: c[0], Cost: 2}}, []int64{10, 3}},
		{[]store.Add{{Cell: c[0], Cost: 3}, {Cell: c[0], Cost: 4}, {Cell: c[2], Cost: 100}}, []int64{6, 10, 100}},
		{nil, []int64{}},
	} {
		if got := add(t, o, step.adds...); !slices.Equal(got, step.want) {
			t.Errorf("step %d: totals %v, want %v", i, got, step.want)
		}
	}
	wantTotals(t, o, c, 10, 10, 100)
}

// "One increment may fail where others succeed, so each has its own error": here it
// fails because a total "only grows", and an int64 would not.
func testAddOverflow(t *testing.T, o store.Origin) {
	c := liveCells(3)
	raise(t, o, store.Add{Cell: c[1], Cost: math.MaxInt64 - 5})
	got := o.Add(t.Context(), []store.Add{{Cell: c[0], Cost: 1}, {Cell: c[1], Cost: 6}, {Cell: c[2], Cost: 2}, {Cell: c[1], Cost: 5}})
	if len(got) != 4 {
		t.Fatalf("%d answers to 4 increments", len(got))
	}
	notApplied(t, "past the largest integer", got[1])
	for i, want := range map[int]int64{0: 1, 2: 2, 3: math.MaxInt64} {
		if got[i] != (store.Added{Total: want}) {
			t.Errorf("beside the overflow: %+v, want total %d", got[i], want)
		}
	}
	wantTotals(t, o, c, 1, math.MaxInt64, 2)
}

func testAddNotPositive(t *testing.T, o store.Origin) {
	c := liveCells(2)
	add(t, o, store.Add{Cell: c[0], Cost: 7})
	for _, cost := range []int64{0, -1, math.MinInt64} {
		got := o.Add(t.Context(), []store.Add{{Cell: c[0], Cost: cost}, {Cell: c[1], Cost: 1}})
		if len(got) != 2 {
			t.Fatalf("%d answers to 2 increments", len(got))
		}
		notApplied(t, fmt.Sprint("cost ", cost), got[0])
		if got[1].Err != nil {
			t.Errorf("beside cost %d: %v", cost, got[1].Err)
		}
	}
	wantTotals(t, o, c, 7, 3)
}

func testAddBig(t *testing.T, o store.Origin) {
	c := liveCells(1)
	for i := range int64(20) {
		if got := add(t, o, store.Add{Cell: c[0], Cost: window.LimitMax}); got[0] != (i+1)*window.LimitMax {
			t.Fatalf("total after %d times %d: %d", i+1, int64(window.LimitMax), got[0])
		}
	}
	wantTotals(t, o, c, 20*window.LimitMax)
}

func testAddMany(t *testing.T, o store.Origin) {
	cells := liveCells(1700)
	var adds []store.Add
	var want []int64
	for i, c := range cells {
		adds = append(adds, store.Add{Cell: c, Cost: int64(i + 1)})
		want = append(want, int64(i+1))
	}
	if got := add(t, o, adds...); !slices.Equal(got, want) {
		t.Errorf("totals are out of order or wrong")
	}
	wantTotals(t, o, cells, want...)
	if err := o.Raise(t.Context(), adds); err != nil {
		t.Errorf("raise %d cells: %v", len(adds), err)
	}
}

// "forgets itself some time after its cell has expired": a day after, at the latest.
func testOriginForgets(t *testing.T, o store.Origin) {
	day := (24 * time.Hour).Milliseconds()
	alive, expired := liveCell("w", "alive"), liveCell("w", "expired")
	alive.Sequence -= 1 // the previous cell still counts
	expired.Duration = time.Second
	expired.Sequence = window.Sequence(began.UnixMilli()-day, 1000)
	add(t, o, store.Add{Cell: alive, Cost: 3}, store.Add{Cell: expired, Cost: 3})
	wantTotals(t, o, []window.Cell{alive, expired}, 3, 0)
	raise(t, o, store.Add{Cell: alive, Cost: 4}, store.Add{Cell: expired, Cost: 4})
	wantTotals(t, o, []window.Cell{alive, expired}, 4, 0)
	claim(t, o, store.Claim{Cell: alive, Cost: 1, AtMost: 9}, store.Claim{Cell: expired, Cost: 1, AtMost: 9})
	wantTotals(t, o, []window.Cell{alive, expired}, 5, 0)
}

func testOriginContext(t *testing.T, o store.Origin) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancelLate()
	c := liveCells(2)
	adds := []store.Add{{Cell: c[0], Cost: 1}, {Cell: c[1], Cost: 2}}
	claims := []store.Claim{{Cell: c[0], Cost: 1, AtMost: 9}, {Cell: c[1], Cost: 2, AtMost: 9}}

	for _, ended := range []struct {
		name string
		ctx  context.Context
		want error
	}{{"a cancelled ctx", cancelled, context.Canceled}, {"a ctx past its deadline", late, context.DeadlineExceeded}} {
		if totals, err := o.Read(ended.ctx, c); !errors.Is(err, ended.want) || totals != nil {
			t.Errorf("Read with %s: %v, %v", ended.name, totals, err)
		}
		if err := o.Raise(ended.ctx, adds); !errors.Is(err, ended.want) {
			t.Errorf("Raise with %s: %v", ended.name, err)
		}
		added := o.Add(ended.ctx, adds)
		if len(added) != len(adds) {
			t.Fatalf("Add with %s: %d answers to %d increments", ended.name, len(added), len(adds))
		}
		for _, a := range added {
			notApplied(t, "Add with "+ended.name, a)
			if !errors.Is(a.Err, ended.want) {
				t.Errorf("Add with %s: %v", ended.name, a.Err)
			}
		}
		claimed := o.Claim(ended.ctx, claims)
		if len(claimed) != len(claims) {
			t.Fatalf("Claim with %s: %d answers to %d claims", ended.name, len(claimed), len(claims))
		}
		for _, a := range claimed {
			notClaimed(t, "Claim with "+ended.name, a)
			if !errors.Is(a.Err, ended.want) {
				t.Errorf("Claim with %s: %v", ended.name, a.Err)
			}
		}
	}
	wantTotals(t, o, c, 0, 0)
}
