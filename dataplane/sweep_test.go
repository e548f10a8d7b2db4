package dataplane_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// The sweep removes keys whose cells have ended, unless they are strict.
func TestSweep(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	n.take("old", 1, 10)
	w.counts.SetTuning("", 1, []byte(`{"strict_for_ms":3600000}`))
	strict := w.node("eu", "s")
	strict.take("k", 10, 10)
	strict.take("k", 1, 10)
	strict.replay()
	w.clock.set(10*time.Minute + time.Minute)
	n.take("new", 1, 10)
	n.Sweep()
	if n.Cell(w.cell("new")).Count != 1 || n.Entries() != 1 {
		t.Errorf("%d entries, want the new one alone", n.Entries())
	}
	strict.Sweep()
	if strict.Entries() != 1 {
		t.Error("a strict deadline in the future was swept")
	}
	w.clock.set(2 * time.Hour)
	strict.Sweep()
	if strict.Entries() != 0 {
		t.Error("a strict deadline in the past was kept")
	}
}

// A key that was not read for 10 minutes is removed before its window ends, unless it is past half its limit. If it
// is used again, it is read again.
func TestIdleKeysLeaveAndComeBack(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	day := func(identifier string, cost int64) dataplane.Decision {
		r := ask(identifier, cost, 10)
		r.Duration = 24 * time.Hour
		return n.Allow(t.Context(), r)
	}
	day("idle", 4)
	day("denied", 6)
	n.replay()
	w.clock.advance(9 * time.Minute)
	n.Sweep()
	if n.Entries() != 2 {
		t.Fatal("gone too early")
	}
	w.clock.advance(time.Minute)
	n.Sweep()
	if n.Entries() != 1 {
		t.Errorf("%d entries, want the one past half its limit", n.Entries())
	}
	wantAllowed(t, "comes back", day("idle", 1), true, 5)
}
