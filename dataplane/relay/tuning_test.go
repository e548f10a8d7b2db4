package relay_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/relay"
)

// R5: when the floor is lowered, counts that it kept back are published and stored at once.
func TestR5AFloorLoweredAtRunTime(t *testing.T) {
	w, eu, us := newPair(t)
	w.tuning.Floor = 0.5
	w.run(time.Second)
	c := eu.cell("k", time.Hour)
	for _, cost := range []int64{1, 19} {
		eu.accept(c, cost, 100)
		w.run(5 * time.Second)
	}
	if got := us.total(c).Foreign; got != 1 {
		t.Fatalf("below its floor %d are told, want the first cost", got)
	}
	w.tuning.Floor = 0.1
	w.run(2 * interval)
	w.wantKnown(c)
	w.run(10 * time.Second)
	if got := w.counts.Totals()[c]; got != 20 {
		t.Errorf("%d of 20 are stored", got)
	}
}

// A lower step also applies to cells that other regions use.
func TestAStepLoweredAtRunTime(t *testing.T) {
	w, eu, _ := newPair(t)
	w.tuning.Step = 0.5
	w.run(time.Second)
	c := eu.cell("k", time.Hour)
	for _, r := range w.regions {
		r.accept(c, 200, 1000)
	}
	w.run(10 * time.Second)
	eu.accept(c, 40, 1000)
	w.run(10 * time.Second)
	if got := w.counts.Totals()[c]; got != 400 {
		t.Fatalf("%d are stored, want the 400 of before", got)
	}
	w.tuning.Step = 0.04
	w.run(10 * time.Second)
	if got := w.counts.Totals()[c]; got != 440 {
		t.Errorf("%d of 440 are stored", got)
	}
}

// Windows shorter than MinGlobalDuration stay in their region. Once MinGlobalDuration is lowered, their counts are
// published, including counts from before.
func TestTheShortestWindowChangesAtRunTime(t *testing.T) {
	w, eu, us := newPair(t)
	w.tuning.MinGlobalDuration = time.Hour
	w.run(time.Second)
	c := eu.cell("k", time.Minute)
	accept := func() {
		for _, r := range w.regions {
			r.accept(c, 15, 100)
		}
		w.run(5 * interval)
	}
	accept()
	if got := us.total(c).Foreign; got != 0 {
		t.Fatalf("of a window that is too short %d are told", got)
	}
	w.tuning.MinGlobalDuration = time.Minute
	w.run(5 * interval)
	w.wantKnown(c)
	accept()
	w.wantKnown(c)
	w.tuning.MinGlobalDuration = time.Hour
	w.run(5 * interval)
	accept()
	if got := us.total(c).Foreign; got != 30 {
		t.Errorf("too short again: us knows %d, want the 30 of before", got)
	}
	if s := relay.Sizes(eu.relay); s.Due > 0 {
		t.Errorf("%+v", s)
	}
}
