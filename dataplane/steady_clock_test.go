package dataplane_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
)

// "Cells are numbered, and weighed, by wall time. Durations are measured by a second reading": a key rests after a
// failed read for the configured time, whatever the wall clock does meanwhile.
func TestARestOutlastsNoClockStep(t *testing.T) {
	for _, step := range []time.Duration{-30 * time.Minute, 0, 30 * time.Minute} {
		w := newWorld(t)
		w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Outage: "closed"})
		n := w.node("eu", "a")
		w.origin("eu").Faults.Fail(errDown)
		n.take("k", 1, 10)
		w.origin("eu").Faults.Fail(nil)
		w.clock.advance(299 * time.Millisecond)
		w.clock.step(step)
		if d := n.take("k", 1, 10); d.Allowed || d.RetryAfter != time.Millisecond {
			t.Errorf("step %v: a millisecond before the end of its rest: %+v", step, d)
		}
		w.clock.advance(time.Millisecond)
		if d := n.take("k", 1, 10); !d.Allowed || d.Source != dataplane.SourceOrigin {
			t.Errorf("step %v: at the end of its rest: %+v", step, d)
		}
	}
}

// A warm key that was not read for five seconds is refreshed, whatever the wall clock shows.
func TestAClockSetBackLeavesNoKeyStale(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("eu", "b")
	r := ask("k", 1, 10)
	r.Duration = time.Hour
	w.clock.advance(50 * time.Minute)
	a.Allow(context.Background(), r)
	a.replay()
	w.clock.step(-30 * time.Minute)
	r.Cost = 8
	b.Allow(context.Background(), r)
	b.replay()
	w.clock.advance(5 * time.Second)
	r.Cost = 2
	if d := a.Allow(context.Background(), r); d.Allowed || d.Source != dataplane.SourceOrigin {
		t.Errorf("idle for 5 s while b has taken 8 of 10: %+v", d)
	}
}

// A clock set ahead makes no key of an hour's window stale, and ends no strict deadline.
func TestAClockSetAheadEndsNoStrictness(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	r := ask("k", 5, 10)
	r.Duration = time.Hour
	n.Allow(context.Background(), r)
	before := w.origin("eu").Stats().Gets
	w.clock.step(10 * time.Minute)
	n.Allow(context.Background(), r)
	if got := w.origin("eu").Stats().Gets; got != before {
		t.Errorf("read %d times, warm by its steady clock", got-before)
	}
	n.Allow(context.Background(), r) // denied: strict for an hour
	w.clock.step(50 * time.Minute)   // into the next window, whose previous window is full
	r.Cost, r.ZeroCost = 0, true
	n.Allow(context.Background(), r)
	if got := w.origin("eu").Stats().Gets; got != before+1 {
		t.Errorf("read %d times, strict for an hour", got-before)
	}
}

// In the estimate mode a level drains, and a sync becomes due, as time passes: a step back must freeze neither.
func TestAClockSetBackFreezesNoLevel(t *testing.T) {
	w := newWorld(t)
	w.estimates(`{"preset":"posthog"}`)
	n := w.node("eu", "a")
	r := ask("k", 6, 10)
	r.Duration = time.Hour
	w.clock.advance(30 * time.Minute)
	n.Allow(context.Background(), r)
	if err := n.SyncOnce(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.Cost = 5
	if d := n.Allow(context.Background(), r); d.Allowed {
		t.Fatalf("6 and 5 of 10: %+v", d)
	}
	w.clock.step(-20 * time.Minute)
	w.clock.advance(59 * time.Minute) // drains some 10 of an hour's 10
	r.Cost, r.ZeroCost = 0, true
	if d := n.Allow(context.Background(), r); d.Current > 5.1 {
		t.Errorf("level %v: of the 6 that were known none is left, of the 5 offered since all", d.Current)
	}
}

// An embedder's clock without a monotonic reading measures durations by its forward steps.
func TestAGivenClockIsSteadyByWhatItMovesForwards(t *testing.T) {
	w := newWorld(t)
	w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Outage: "closed"})
	n := w.node("eu", "a")
	n.SetSteady(nil)
	w.origin("eu").Faults.Fail(errDown)
	n.take("k", 1, 10)
	w.origin("eu").Faults.Fail(nil)
	w.clock.step(-30 * time.Minute)
	if d := n.take("k", 1, 10); d.Allowed || d.RetryAfter != 300*time.Millisecond {
		t.Errorf("it rests: %+v", d)
	}
	w.clock.advance(300 * time.Millisecond)
	if d := n.take("k", 1, 10); !d.Allowed {
		t.Errorf("at the end of its rest: %+v", d)
	}
}
