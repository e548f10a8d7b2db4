package dataplane_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// Behaviours 29 to 36 and 38 of the exact mode: regions.

// A takes 6 of 10 and flushes 6; B imports: cost 1 passes, then cost 4 is denied.
func TestAnotherRegionsCountIsSeen(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("us", "b")
	a.take("k", 6, 10)
	a.flush()
	if got := w.published("eu", w.cell("k")); got != 6 {
		t.Fatalf("eu published %d", got)
	}
	b.imports()
	wantAllowed(t, "cost 1", b.take("k", 1, 10), true, 3)
	wantAllowed(t, "cost 4", b.take("k", 4, 10), false, 3)
}

// Two regions with two nodes each, 6 in A, 4 in B → the next in B is denied.
func TestTwoRegionsOfTwoNodes(t *testing.T) {
	w := newWorld(t)
	eu := []*node{w.node("eu", "e1"), w.node("eu", "e2")}
	us := []*node{w.node("us", "u1"), w.node("us", "u2")}
	for i := range 6 {
		eu[i%2].take("k", 1, 10)
	}
	for i := range 4 {
		us[i%2].take("k", 1, 10)
	}
	all := append(eu, us...)
	for range 2 {
		for _, n := range all {
			n.replay()
		}
	}
	w.clock.advance(6 * time.Second) // stale: nodes read before they decide
	for _, n := range all {
		n.Peek(t.Context(), ask("k", 0, 10))
	}
	for _, n := range all {
		n.flush()
	}
	for _, n := range all {
		n.imports()
	}
	for i, n := range all {
		wantAllowed(t, fmt.Sprintf("node %d", i), n.take("k", 1, 10), false, 0)
	}
}

// The own row never enters the global count; it may raise the regional count; it
// does not make an entry fresh.
func TestOwnRowIsALowerBound(t *testing.T) {
	w := newWorld(t)
	a := w.node("eu", "a")
	a.take("k", 6, 10)
	a.flush()
	b := w.node("eu", "b") // e.g. after its region's origin was wiped
	b.imports()
	if s := b.Cell(w.cell("k")); s.Global != 0 || s.Count != 6 || s.Unsent != 0 {
		t.Fatalf("%+v", s)
	}
	reads := w.origin("eu").Stats().Reads
	wantAllowed(t, "own row counts", b.take("k", 4, 10), true, 0)
	if w.origin("eu").Stats().Reads != reads+1 {
		t.Error("the own row made the entry fresh")
	}
	a.imports()
	if s := a.Cell(w.cell("k")); s.Count != 6 || s.Global != 0 {
		t.Errorf("a imported its own row: %+v", s)
	}
}

// Below floor: not flushed. Two nodes with 1 each converged to 2 by the origin at
// floor 0.2 of 10 → flushed.
func TestFloor(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("eu", "b")
	a.take("k", 1, 10)
	b.take("k", 1, 10)
	a.flush()
	b.flush()
	if rows := w.counts.Rows(); len(rows) != 0 {
		t.Fatalf("below the floor: %v", rows)
	}
	a.replay()
	b.replay() // hears a's 1
	b.take("k", 0, 10)
	b.flush()
	if got := w.published("eu", w.cell("k")); got != 2 {
		t.Errorf("published %d, want 2", got)
	}
}

// Import alone writes no row; after an import of the cell one local request
// flushes below the floor.
func TestARemoteRowSeenMeansMineIsFlushedToo(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("us", "b")
	a.take("k", 6, 10)
	a.flush()
	b.imports()
	b.flush()
	if got := w.published("us", w.cell("k")); got != 0 {
		t.Fatalf("import alone wrote %d", got)
	}
	b.take("k", 1, 10)
	b.flush()
	if got := w.published("us", w.cell("k")); got != 1 {
		t.Errorf("published %d, want 1", got)
	}

	// The other way round: what was below the floor goes out once the row is seen.
	b.take("late", 1, 10)
	b.flush()
	a.take("late", 6, 10)
	a.flush()
	b.imports()
	b.flush()
	if got := w.published("us", w.cell("late")); got != 1 {
		t.Errorf("published %d after the import, want 1", got)
	}
}

// A second flush without traffic writes nothing. A failed flush is repeated on
// the next tick with everything it missed.
func TestFlushWritesWhatChangedAndRepeatsWhatFailed(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("k", 5, 10)
	n.flush()
	calls := w.counts.Stats().Publishes
	n.flush()
	if got := w.counts.Stats().Publishes; got != calls {
		t.Errorf("a flush without traffic published")
	}
	w.counts.Faults.Fail(errDown)
	n.take("k", 1, 10)
	n.take("other", 7, 10)
	for range 3 {
		if err := n.FlushOnce(t.Context()); !errors.Is(err, errDown) {
			t.Fatalf("flush: %v", err)
		}
	}
	n.take("k", 1, 10)
	w.counts.Faults.Fail(nil)
	n.flush()
	if k, other := w.published("eu", w.cell("k")), w.published("eu", w.cell("other")); k != 7 || other != 7 {
		t.Errorf("published %d and %d, want 7 and 7", k, other)
	}
}

// A cold oversized denial leaves no row. A denial caused by the previous window's
// weight publishes nothing punitive.
func TestDenialsPublishNothing(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("cold", 100, 10)
	n.take("k", 10, 10)
	n.flush()
	w.clock.set(time.Minute)
	n.take("k", 1, 10)
	n.flush()
	rows := w.counts.Rows()
	if len(rows) != 1 || rows[0].Count != 10 || rows[0].Cell.Sequence != w.cell("k").Sequence-1 {
		t.Errorf("rows %v, want the 10 of the previous window alone", rows)
	}
}

// Import creates the entry that is missing here, counted apart from traffic's.
func TestImportCreatesEntries(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("us", "b")
	a.take("k", 9, 10)
	a.flush()
	b.imports()
	if traffic, imported := b.Created(); traffic != 0 || imported != 1 {
		t.Errorf("created by traffic %d, by import %d", traffic, imported)
	}
	wantAllowed(t, "first contact", b.take("k", 2, 10), false, 1)
}

// GREATEST: an older count never lowers a row; the same flush twice changes nothing.
func TestAnOlderCountLowersNothing(t *testing.T) {
	w := newWorld(t)
	a, late := w.node("eu", "a"), w.node("eu", "late")
	late.take("k", 5, 10)
	a.take("k", 2, 10)
	late.replay()
	a.replay() // knows 7
	a.flush()
	late.flush() // knows 5
	if got := w.published("eu", w.cell("k")); got != 7 {
		t.Errorf("row is %d, want 7", got)
	}
}

// A cell is flushed again once it has grown by at least step*limit, or at all within the limit's last step.
func TestStepBoundsHowOftenACellIsWritten(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	writes := func() int64 { return w.counts.Stats().RowsPublished }
	n.take("k", 50, 100)
	n.flush()
	n.take("k", 4, 100)
	n.flush()
	if writes() != 1 {
		t.Errorf("%d writes: 4 %% is less than a step", writes())
	}
	n.take("k", 1, 100)
	n.flush()
	if got := w.published("eu", w.cell("k")); got != 55 {
		t.Errorf("a step was not published: %d", got)
	}
	n.take("k", 42, 100)
	n.flush()
	n.take("k", 1, 100) // 98: within the last step
	n.flush()
	if got := w.published("eu", w.cell("k")); got != 98 {
		t.Errorf("growth in the last step was not published: %d", got)
	}
}

// Only windows of at least min_global_duration (60 s) are shared.
func TestShortWindowsStayInTheirRegion(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	r := ask("k", 9, 10)
	r.Duration = 59 * time.Second
	n.Allow(t.Context(), r)
	n.flush()
	if rows := w.counts.Rows(); len(rows) != 0 {
		t.Errorf("published %v", rows)
	}
}

func TestHotKeysArePublishedAtTheFastInterval(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("warm", 5, 10)
	n.take("hot", 8, 10)
	if err := n.FlushHot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if hot, warm := w.published("eu", w.cell("hot")), w.published("eu", w.cell("warm")); hot != 8 || warm != 0 {
		t.Errorf("fast turn: hot %d, warm %d", hot, warm)
	}
	n.flush()
	if got := w.published("eu", w.cell("warm")); got != 5 {
		t.Errorf("slow turn: %d", got)
	}
}

// The last counts of a window still weigh in the next one, elsewhere too.
func TestTheClosedCellIsPublishedToo(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("us", "b")
	a.take("k", 9, 10)
	cell := w.cell("k")
	w.clock.set(time.Minute)
	a.take("k", 1, 10)
	a.flush()
	if got := w.published("eu", cell); got != 9 {
		t.Fatalf("closed cell published as %d", got)
	}
	b.imports()
	d := b.take("k", 2, 10)
	wantAllowed(t, "with eu's previous cell at weight 1", d, false, 1)
}

// One row that the database refuses blocks no other row: bisect the chunk, count and
// log the culprit once.
func TestARefusedRowBlocksNoOther(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	w.counts.Faults.RefuseRow(func(c store.Count) bool { return strings.HasSuffix(c.Cell.Identifier, "bad") })
	const rows = 1200
	for i := range rows {
		n.take(fmt.Sprintf("k%04d", i), 9, 10)
	}
	n.take("k0333bad", 9, 10)
	n.take("k0999bad", 9, 10)
	n.flush()
	if got := len(w.counts.Rows()); got != rows {
		t.Errorf("%d rows of %d", got, rows)
	}
	if got := n.Health().RefusedRows; got != 2 {
		t.Errorf("%d refused rows counted, want 2", got)
	}
	n.take("k0333bad", 1, 10)
	n.flush()
	if got := n.Health().RefusedRows; got != 2 {
		t.Errorf("the culprit was tried again: %d", got)
	}
}

// A window that ended 10 minutes ago (60 s) is gone, the current one is kept;
// past strict deadlines go, future ones stay.
func TestSweep(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	n.take("old", 1, 10)
	w.counts.SetTuning("", 1, []byte(`{"strict_for_ms":3600000}`))
	strict := w.node("eu", "s", func(c *dataplane.Config) { c.Origin = nil })
	strict.take("k", 10, 10)
	strict.take("k", 1, 10)
	w.clock.set(10*time.Minute + time.Minute)
	n.take("new", 1, 10)
	n.Sweep()
	if n.Cell(w.cell("new")).Count != 1 || n.Entries() != 1 {
		t.Errorf("%d entries, want the new one alone", n.Entries())
	}
	strict.flush()
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

// A row of a sequence that is not current anywhere near must not create entries, and
// nonsense in the table must not stop an import.
func TestImportTakesOnlyWhatMatters(t *testing.T) {
	w := newWorld(t)
	n := w.node("us", "a")
	now := w.cell("k")
	var rows []store.Count
	for _, off := range []int64{-1, 0, 1, 5} {
		c := now
		c.Sequence += off
		rows = append(rows, store.Count{Cell: c, Count: 7})
	}
	if err := w.counts.Publish(t.Context(), "eu", rows); err != nil {
		t.Fatal(err)
	}
	n.imports()
	previous := window.Cell{Key: now.Key, Sequence: now.Sequence - 1}
	if cur, prev := n.Cell(now).Global, n.Cell(previous).Global; cur != 7 || prev != 7 || n.Entries() != 1 {
		t.Errorf("current %d, previous %d, %d entries", cur, prev, n.Entries())
	}
}

func TestRFCPresetPublishesEveryGrowthPastHalf(t *testing.T) {
	w := newWorld(t)
	w.tune(func(set *tuning.Tuning) { *set = tuning.RFC() })
	n := w.node("eu", "a")
	n.take("k", 49, 100)
	n.flush()
	if len(w.counts.Rows()) != 0 {
		t.Fatal("published below half")
	}
	for i := range int64(3) {
		n.take("k", 1, 100)
		n.flush()
		if got := w.published("eu", w.cell("k")); got != 50+i {
			t.Errorf("row %d, want %d", got, 50+i)
		}
	}
}

// An idle key of a long window leaves memory, and comes back whole: the origin has it.
func TestIdleKeysLeaveAndComeBack(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	day := func(identifier string, cost int64) dataplane.Decision {
		r := ask(identifier, cost, 10)
		r.Duration = 24 * time.Hour
		return n.Allow(t.Context(), r)
	}
	day("idle", 4)
	day("pressed", 6)
	n.replay()
	n.flush()
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
