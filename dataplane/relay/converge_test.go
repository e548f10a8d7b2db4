package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func tenRegions() (names []string) {
	for i := range 10 {
		names = append(names, fmt.Sprint("r", i))
	}
	return names
}

// R2: a caller who goes from region to region, 2 s apart, gets the limit once, whatever share of it each region
// accepts.
func TestR2RegionsInTurn(t *testing.T) {
	for _, share := range []int{1, 5, 9, 10, 50, 200} {
		w := newWorld(t, tenRegions()...)
		w.run(time.Second)
		c := w.regions[0].cell("k", time.Hour)
		for admitted := true; admitted; {
			admitted = false
			for _, r := range w.regions {
				for range share {
					admitted = r.ask(c, 100) || admitted
				}
				w.run(2 * time.Second)
			}
		}
		if got := w.fleet(c); got != 100 {
			t.Errorf("%d at a time: %d of 100 were admitted", share, got)
		}
	}
}

// R2: all origins have a count of at least 10 % of the limit within two intervals, and a lower count within four
// intervals after a second region uses the cell.
func TestR2WithinIntervals(t *testing.T) {
	for _, c := range []struct {
		what          string
		first, second int64
		apart         time.Duration
		intervals     int
	}{
		{"10 % of the limit", 10, 0, 0, 2},
		{"the whole limit at once", 100, 0, 0, 2},
		{"a second region, 1 and 1", 1, 1, 5 * time.Second, 4},
		{"a second region, 9 and 1", 9, 1, 5 * time.Second, 4},
		{"a second region, 9 and 10", 9, 10, 5 * time.Second, 4},
		{"two regions at the same time", 2, 3, 0, 4},
	} {
		w := newWorld(t, "eu", "us", "ap")
		w.run(time.Second)
		eu, us := w.regions[0], w.regions[1]
		cell := eu.cell("k", time.Minute)
		eu.accept(cell, c.first, 100)
		if c.second > 0 {
			w.run(c.apart)
			us.accept(cell, c.second, 100)
		}
		if n := w.intervalsUntilKnown(cell); n > c.intervals {
			t.Errorf("%s: known after %d intervals, want %d", c.what, n, c.intervals)
		}
	}
}

// R2: a caller of a key that has reached its limit in another region is denied in a region that has not used the key.
func TestR2ASilentKeyAtItsLimit(t *testing.T) {
	w := newWorld(t, "eu", "us")
	w.run(time.Second)
	c := w.regions[0].cell("k", time.Hour)
	w.regions[0].accept(c, 100, 100)
	w.run(5 * time.Minute)
	if w.regions[1].ask(c, 100) {
		t.Error("the limit is spent in eu, and us allows one more")
	}
}

// Counts of windows of 2 s and more are published. Shorter windows are not published, and their counts are not reported
// as waiting.
func TestShortWindows(t *testing.T) {
	w := newWorld(t, "eu", "us")
	w.run(time.Second)
	for _, r := range w.regions {
		shared, short := r.cell("k", 2*time.Second), r.cell("k", time.Second)
		r.accept(shared, 60, 100)
		r.accept(short, 60, 100)
		w.run(2 * interval)
		for _, other := range w.regions {
			if other == r {
				continue
			}
			if got := other.total(shared).Foreign; got != 60 {
				t.Errorf("of the window of 2 s %s knows %d", other.name, got)
			}
			if got := other.total(short).Foreign; got != 0 {
				t.Errorf("of the window of 1 s %s knows %d", other.name, got)
			}
		}
		w.run(5 * time.Second)
	}
	for _, r := range w.regions {
		if changes, err := r.relayOrigin.Changes(t.Context(), 0, 10); err != nil || len(changes.Cells) > 0 {
			t.Errorf("%s: left in the changes: %v, %v", r.name, changes, err)
		}
	}
}

// A region whose servers are 2 s ahead publishes counts of a window that has not begun in other regions.
func TestTheNextCellIsKept(t *testing.T) {
	w := newWorld(t, "us")
	ahead := w.addRegion("eu", func() time.Time { return w.now.Add(2 * time.Second) }, 1)
	us := w.regions[0]
	w.now = w.now.Add(time.Minute).Truncate(time.Minute).Add(-time.Second)
	w.step()
	c := ahead.cell("k", time.Minute)
	if c.Sequence != us.cell("k", time.Minute).Sequence+1 {
		t.Fatal("the cell has begun")
	}
	ahead.accept(c, 90, 100)
	w.run(3 * time.Second)
	w.wantKnown(c)
	if total := us.total(us.cell("k", time.Minute)); total.Foreign != 90 {
		t.Errorf("when the window has turned us knows %d of 90", total.Foreign)
	}
}

// R2, R5: a region without its relay or without MySQL for an hour receives and publishes counts afterwards as before.
func TestR2ARegionAwayForAnHour(t *testing.T) {
	w := newWorld(t, "eu", "us", "ap")
	w.run(time.Second)
	us := w.regions[1]
	c := us.cell("k", 24*time.Hour)
	for _, r := range w.regions {
		r.accept(c, 20, 1000)
	}
	w.run(2 * time.Second)
	us.away = true
	for range 60 {
		w.run(time.Second)
		w.now = w.now.Add(59 * time.Second)
		w.regions[0].accept(c, 1, 1000)
		us.accept(c, 2, 1000)
	}
	us.away = false
	w.run(2 * time.Second)
	w.wantKnown(c)
}

// A relay of many shards keeps each cell's counts with the cell's shard, and keeps nothing of the rows that it has
// read.
func TestSeveralShards(t *testing.T) {
	w := newWorld(t)
	eu, us := w.addRegion("eu", w.clock, 3), w.addRegion("us", w.clock, 5)
	w.run(time.Second)
	var cells []window.Cell
	for i := range 40 {
		c := eu.cell(fmt.Sprint("k", i), time.Minute)
		cells = append(cells, c)
		eu.accept(c, 5, 100)
		us.accept(c, int64(i), 100)
	}
	w.run(2 * time.Second)
	w.wantKnown(cells[1:]...)
	for _, r := range w.regions {
		if n := relay.Parted(r.relay); n > 0 {
			t.Errorf("%s holds %d identifiers of the last rows that it read", r.name, n)
		}
	}
}

// A region that has not counted in a cell publishes nothing for it. It does not repeat counts of other regions, so rows
// do not grow with the number of regions.
func TestARegionRepeatsNothing(t *testing.T) {
	w := newWorld(t, "eu", "us", "ap")
	w.run(time.Second)
	c := w.regions[0].cell("k", time.Hour)
	rows := func(region string) int { return len(w.feed.Rows(store.Stream{Region: region})) }
	eu, us, ap := rows("eu"), rows("us"), rows("ap")
	w.regions[0].accept(c, 50, 100)
	w.run(5 * time.Second)
	w.wantKnown(c)
	if eu, us, ap = rows("eu")-eu, rows("us")-us, rows("ap")-ap; eu != 1 || us != 0 || ap != 0 {
		t.Errorf("eu has told of its cell in %d rows, and the others, who do not use it, in %d and %d", eu, us, ap)
	}
}

// R5: if callers use a key with two limits, the floor of the lower limit decides when the total is published.
func TestR5ALowerLimitTellsACount(t *testing.T) {
	w, eu, us := newPair(t)
	w.run(time.Second)
	c := eu.cell("k", time.Hour)
	eu.accept(c, 1, 1000)
	w.run(time.Second)
	eu.accept(c, 39, 1000) // below the floor of 100
	w.run(time.Second)
	eu.accept(c, 1, 100)
	w.run(2 * interval)
	if got := us.total(c).Foreign; got != 41 {
		t.Errorf("us knows %d of 41, which are 41 %% of the limit", got)
	}
}
