package relay_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// When a region's clock was ahead and is corrected, no counts stay in cells that have not begun: neither in its own
// origin nor in another region's. A relay that starts later finds none in the change feed or in MySQL.
func TestARegionThatWasAheadLeavesNoCounts(t *testing.T) {
	for _, ahead := range []time.Duration{10 * time.Minute, time.Hour, 24 * time.Hour} {
		for _, d := range []time.Duration{10 * time.Second, time.Minute, 24 * time.Hour} {
			w := newWorld(t, "eu")
			eu, by := w.regions[0], time.Duration(0)
			us := w.addRegion("us", func() time.Time { return w.now.Add(by) }, 1)
			if d == 24*time.Hour {
				w.now = w.now.Truncate(d).Add(d - ahead/2) // so that the region that is ahead counts in the next day
			}
			w.run(time.Second)
			by = ahead
			var cells []window.Cell
			for range 3 {
				c := us.cell("k", d)
				cells = append(cells, c)
				us.accept(c, 100, 100)
				w.run(10 * time.Second)
			}
			by = 0
			w.run(2 * time.Second)
			now := us.cell("now", d)
			us.accept(now, 60, 100)
			eu.accept(eu.cell("here", d), 60, 100)
			w.run(10 * time.Second)
			if got := eu.total(now).Foreign; got != 60 {
				t.Errorf("%v ahead, %v: eu knows %d of 60 in the cell of now", ahead, d, got)
			}
			for i, c := range cells {
				start := time.UnixMilli(window.Start(c.Sequence, d.Milliseconds()))
				if !start.After(w.now.Add(5 * time.Second)) {
					continue // its window has begun meanwhile
				}
				w.now = start.Add(time.Second)
				w.run(time.Second)
				for _, r := range w.regions { // another relay takes over in each region
					r.relay = r.newRelay("another")
				}
				w.run(10 * time.Second)
				for _, r := range w.regions {
					if got := r.total(c); got.Region+got.Foreign != 0 {
						t.Errorf("%v ahead, %v, cell %d: %s has %+v", ahead, d, i, r.name, got)
					}
				}
				us.accept(c, 70, 100)
				w.run(4 * time.Second)
				if got := eu.total(c).Foreign; got != 70 {
					t.Errorf("%v ahead, %v, cell %d: eu knows %d of 70", ahead, d, i, got)
				}
			}
		}
	}
}

// After the clock of a relay's origin was ahead and is corrected, the relay has the counts that other regions published
// meanwhile.
func TestARelayReadsAnewWhenItsClockIsSetRight(t *testing.T) {
	w := newWorld(t, "eu")
	w.tuning.StoreFloor = 0.5
	eu, by := w.regions[0], time.Hour
	us := w.addRegion("us", func() time.Time { return w.now.Add(by) }, 1)
	w.run(time.Second)
	c := eu.cell("k", time.Minute)
	eu.accept(c, 20, 100)
	w.run(5 * time.Second)
	by = 0
	w.run(5 * time.Second)
	if got := us.total(c).Foreign; got != 20 {
		t.Errorf("us knows %d of 20", got)
	}
}

// A region's clock was some seconds ahead and is corrected, so it has counts in cells that have not begun. If its
// origin is emptied then, the relay raises the origin to none of them, whether the relay has seen the step or starts
// later.
func TestAnEmptiedOriginIsRaisedToNoCellThatWasAhead(t *testing.T) {
	for _, another := range []bool{false, true} {
		w := newWorld(t, "eu")
		by := time.Duration(0)
		us := w.addRegion("us", func() time.Time { return w.now.Add(by) }, 1)
		w.run(time.Second)
		by = 40 * time.Second
		c := us.cell("k", 5*time.Second)
		us.accept(c, 100, 100)
		w.run(2 * time.Second)
		by = 0
		w.run(2 * time.Second)
		if another {
			us.relay = us.newRelay("another")
		}
		us.origin.Wipe()
		w.run(10 * time.Second)
		if got := us.total(c).Region; got != 0 {
			t.Errorf("another relay: %t: us has %d in a cell that has not begun", another, got)
		}
	}
}
