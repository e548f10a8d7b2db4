package dataplane_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/shared/window"
)

// The publication of counts to other regions, in histories in which a count is easily overlooked.

// Cost that two nodes of a region accept at the same moment is published as their sum, whether or not other regions
// use the key.
func TestWhatTwoNodesAcceptIsToldAsTheirSum(t *testing.T) {
	for _, shared := range []bool{false, true} {
		w := newWorld(t)
		a, b, us := w.node("eu", "a"), w.node("eu", "b"), w.node("us", "u")
		if shared {
			us.take("k", 1, 1000)
			us.replay()
			w.converge()
		}
		a.take("k", 500, 1000)
		b.take("k", 400, 1000)
		a.replay()
		w.relay()
		b.replay()
		w.converge()
		us.take("k", 0, 1000)
		if got := us.Cell(w.cell("k")).Foreign; got != 900 {
			t.Errorf("shared before %v: us knows of %d of 900", shared, got)
		}
	}
}

// If a key is at its limit in other regions, none of this region's nodes lets anything pass from its first request
// on.
func TestAFirstContactKnowsWhatOthersHaveTold(t *testing.T) {
	w := newWorld(t)
	eu, us1, us2 := w.node("eu", "a"), w.node("us", "u1"), w.node("us", "u2")
	w.converge()
	eu.take("k", 100, 100)
	eu.replay()
	w.converge()
	for _, n := range []*node{us1, us2} {
		if got := n.drain("k", 1, 100); got != 0 {
			t.Errorf("%d of 100 passed after another region had taken all", got)
		}
	}
}

// A region whose clock is ahead counts in a cell that has not begun elsewhere: the published cost is there when the
// cell begins.
func TestARegionAheadAtTheTurnOfAWindowIsHeard(t *testing.T) {
	w := newWorld(t)
	w.flushes() // no loop runs here, so a decision must not wait for a flush
	ahead := func() time.Time { return w.clock.Now().Add(2 * time.Second) }
	w.origin("eu") // its place in the order of regions
	w.origins["eu"] = memstore.NewOrigin(memstore.OriginOptions{Clock: ahead})
	eu, us := w.node("eu", "a"), w.node("us", "u")
	us.take("k", 1, 100)
	eu.take("k", 1, 100) // the answer has eu's clock
	us.replay()
	eu.replay()
	w.converge()
	w.clock.set(58500 * time.Millisecond)
	eu.take("k", 90, 100)
	eu.replay()
	w.converge() // in eu it is 61.5 s
	w.clock.set(62 * time.Second)
	if got := us.drain("k", 1, 100); got > 10 {
		t.Errorf("%d more passed of 100, of which eu had taken 90 in the same cell", got)
	}
	next := w.cell("k")
	if next.Sequence != window.Sequence(epoch.UnixMilli(), 60_000)+1 || us.Cell(next).Foreign != 90 {
		t.Errorf("us knows of %d of 90 in cell %d", us.Cell(next).Foreign, next.Sequence)
	}
}

// However many keys were published before, a further key is published just as soon.
func TestManyToldKeysKeepNoneBack(t *testing.T) {
	w := newWorld(t)
	eu, us := w.node("eu", "a"), w.node("us", "u")
	for i := range 2000 {
		eu.take(fmt.Sprint("n", i), 50, 100)
	}
	eu.replay()
	w.converge()
	us.take("k", 1, 100)
	us.replay()
	w.converge()
	eu.take("k", 90, 100)
	eu.replay()
	w.converge()
	if got := us.Cell(w.cell("k")).Foreign; got != 90 {
		t.Errorf("us knows of %d of 90", got)
	}
}

// A region that is down takes nothing from the counts that the others publish.
func TestARegionThatIsGoneHoldsUpNoOther(t *testing.T) {
	w := newWorld(t)
	eu, us, ap := w.node("eu", "a"), w.node("us", "u"), w.node("ap", "p")
	ap.take("k", 1, 100)
	ap.replay()
	w.converge()
	w.names = w.names[:2] // ap's relay stops
	for minute := range 10 {
		key := fmt.Sprint("k", minute)
		us.take(key, 1, 100)
		us.replay()
		w.converge()
		eu.take(key, 80, 100)
		eu.replay()
		w.converge()
		if got := us.Cell(w.cell(key)).Foreign; got != 80 {
			t.Errorf("minute %d: us knows of %d of 80", minute, got)
		}
		w.clock.advance(time.Minute)
	}
}

// Cost that is accepted at the end of a cell, and sent after it, is published for that cell.
func TestAClosedCellIsToldToo(t *testing.T) {
	w := newWorld(t)
	eu, us := w.node("eu", "a"), w.node("us", "u")
	us.take("k", 1, 100)
	us.replay()
	w.converge()
	w.clock.set(59_900 * time.Millisecond)
	closed := w.cell("k")
	eu.take("k", 70, 100)
	w.clock.set(60_500 * time.Millisecond)
	eu.take("k", 1, 100)
	eu.replay()
	w.converge()
	us.take("k", 0, 100)
	if got := us.Cell(closed).Foreign; got != 70 {
		t.Errorf("us knows of %d of the 70 of the closed cell", got)
	}
}

// A window shorter than the shortest shared window stays in its region.
func TestShortWindowsStayInTheirRegion(t *testing.T) {
	for duration, want := range map[time.Duration]int64{1999 * time.Millisecond: 0, 2 * time.Second: 7} {
		w := newWorld(t)
		n := w.node("eu", "a")
		r := ask("k", 7, 10)
		r.Duration = duration
		n.Allow(t.Context(), r)
		n.replay()
		c := w.cell("k")
		c.Duration = duration
		c.Sequence = window.Sequence(w.clock.Now().UnixMilli(), c.DurationMs())
		if got := totals(w.origin("eu"))[c]; got != 7 {
			t.Errorf("%v: the origin has %d of 7", duration, got)
		}
		if got := w.published("eu", c); got != want {
			t.Errorf("%v: the relay is told of %d, want %d", duration, got, want)
		}
	}
}
