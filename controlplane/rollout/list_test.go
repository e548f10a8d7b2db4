package rollout

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
)

func line(id string, phase Phase, startedMs, epoch int64) Summary {
	s := Summary{ID: id, Phase: phase, StartedMs: startedMs, Epoch: epoch}
	if phase.Over() {
		s.EndedMs = startedMs + 1
	}
	return s
}

// The lock is given back by the outcome, and not by word of an earlier one: a rollout
// that is done may be rolled back before the list has heard that it was done.
func TestTheLockIsGivenBackOnce(t *testing.T) {
	l := List{List: []Summary{line("one", Done, 1, 9)}}
	l.lock(line("two", Measuring, 2, 1))
	if l.Ended(line("one", Done, 1, 9)); l.Active != "two" {
		t.Error("another one's outcome gave the lock back")
	}
	l.lock(line("two", RollingBack, 2, 8)) // taken back
	if l.Ended(line("two", Done, 2, 7)); l.Active != "two" || l.List[0].Phase != RollingBack {
		t.Errorf("an outcome of before gave the lock back: %+v", l)
	}
	if l.Ended(line("two", RolledBack, 2, 9)); l.Active != "" || l.List[0].Phase != RolledBack {
		t.Errorf("the outcome did not give the lock back: %+v", l)
	}
}

// One that is taken back after it fell off the list holds the lock until it says how that
// ended, too.
func TestTheLockOfARolloutThatIsOffTheList(t *testing.T) {
	var l List
	for i := range ListMax {
		l.note(line(fmt.Sprint("newer-", i), RolledBack, int64(100+i), 5))
	}
	l.lock(line("old", RollingBack, 1, 8))
	if l.Active != "old" || len(l.List) != ListMax || l.List[0].ID != "newer-99" {
		t.Errorf("%s has the lock, %d lines, first %s", l.Active, len(l.List), l.List[0].ID)
	}
	if l.Ended(line("old", Done, 1, 7)); l.Active != "old" {
		t.Error("an outcome of before gave the lock back")
	}
	if l.Ended(line("old", RolledBack, 1, 9)); l.Active != "" {
		t.Error("the lock stays")
	}
}

// The list and the lock follow from the rollouts themselves, and from what they wrote where
// their state is lost.
func TestRepairOfTheList(t *testing.T) {
	l := List{Active: "gone", Since: 3, List: []Summary{line("gone", Baking, 5, 3)}}
	l.List[0].By = controltest.Ann
	l.lost(Trace{ID: "gone", StartedMs: 4, Newest: 7})
	if l.Active != "" || l.List[0].Phase != Lost || l.List[0].EndedMs == 0 || l.List[0].By != controltest.Ann || l.List[0].StartedMs != 5 ||
		l.List[0].Why != "neither Restate nor MySQL has a state of it; the versions of the tuning that it wrote are there, up to 7" {
		t.Errorf("%+v", l)
	}
	l.lost(Trace{ID: "older", StartedMs: 2, Newest: 1, By: controlplane.By{Actor: "ann", Reason: "r"}})
	l.found(line("finished", Done, 3, 6))
	l.found(line("lives", Baking, 9, 4))
	var got []string
	for _, s := range l.List {
		got = append(got, s.ID+" "+string(s.Phase))
	}
	if want := []string{"lives baking", "gone lost", "finished done", "older lost"}; !slices.Equal(got, want) || l.Active != "lives" || l.Since != 4 {
		t.Errorf("%q, want %q; %s has the lock since %d", got, want, l.Active, l.Since)
	}
	l.lost(Trace{ID: "finished", StartedMs: 3, Newest: 2})
	if ended := l.List[2]; ended.Phase != Done || ended.Why != "" {
		t.Errorf("how one ended is not known any more: %+v", ended)
	}
	l.found(line("beside", Baking, 8, 2))
	if l.Active != "lives" || l.List[1].ID != "beside" {
		t.Errorf("another one took the lock: %+v", l)
	}
	l.found(line("lives", Done, 9, 5))
	if l.Active != "" || l.List[0].Phase != Done {
		t.Errorf("%+v", l)
	}
}

// What is wrong with the list is told before it is asked to mend itself.
func TestWhatIsWrongWithTheList(t *testing.T) {
	of := func(active string, lines ...Summary) List {
		return List{Active: active, List: lines}
	}
	known := map[string]Rollout{
		"bakes": {ID: "bakes", Phase: Baking, MovedMs: 1000},
		"done":  {ID: "done", Phase: Done, MovedMs: 1000},
		"moves": {ID: "moves", Phase: Baking, MovedMs: 10_000},
	}
	look := func(id string) (Rollout, error) {
		r, ok := known[id]
		if id == "unread" {
			return r, controlplane.ErrUnavailable
		}
		if !ok {
			return r, fmt.Errorf("%w: no rollout", controlplane.ErrNotFound)
		}
		return r, nil
	}
	wrote := Trace{ID: "wrote", StartedMs: 50, Newest: 3}
	full := of("")
	for i := range ListMax {
		full.List = append(full.List, line(fmt.Sprint("r", i), Done, int64(1000-i), 1))
	}
	for name, c := range map[string]struct {
		standing List
		traces   []Trace
		want     []string
	}{
		"all is well":                       {of("bakes", line("bakes", Measuring, 60, 1), line("wrote", Done, 50, 1)), []Trace{wrote}, nil},
		"the lock is that of none":          {of("nobody"), nil, []string{"nobody"}},
		"a line is that of none":            {of("", line("nobody", Baking, 60, 1)), nil, []string{"nobody"}},
		"one is under way without the lock": {of("", line("bakes", Measuring, 60, 1)), nil, []string{"bakes"}},
		"word of one may be on its way":     {of("", line("moves", Measuring, 60, 1)), nil, nil},
		"another one has the lock":          {of("moves", line("bakes", Measuring, 60, 1)), nil, nil},
		"one that wrote has no line":        {of(""), []Trace{wrote}, []string{"wrote"}},
		"one that wrote fell off the list":  {full, []Trace{wrote}, nil},
		"what wrote is no rollout":          {of(""), []Trace{{ID: "a b"}}, nil},
		// reviveRollouts sends it again
		"its outcome is on its way": {of("done", line("done", Baking, 60, 1)), nil, nil},
	} {
		wrong, err := c.standing.Wrongs(c.traces, 20_000, 10_000, look)
		var got []string
		for _, w := range wrong {
			got = append(got, w.ID)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
	unread := of("unread")
	if wrong, err := unread.Wrongs([]Trace{wrote}, 20_000, 10_000, look); !errors.Is(err, controlplane.ErrUnavailable) || wrong != nil {
		t.Errorf("one that cannot be read: %+v, %v", wrong, err)
	}
}

// A rollout that has written no version yet is found by its row, so that another does not start beside it.
func TestALostListFindsARolloutThatWroteNothing(t *testing.T) {
	w := newWorld(search{})
	w.deliver(letter{to: wholeFleet, what: "Start", start: startsOf[0]}, -1, false)
	if w.rollouts["a"] == nil || len(w.rows) > 0 {
		t.Fatalf("a has begun: %v, and wrote %d versions", w.rollouts["a"] != nil, len(w.rows))
	}
	w.list = List{}
	w.deliver(letter{to: wholeFleet, what: "Start", start: startsOf[1]}, -1, false)
	if w.rollouts["b"] != nil || w.list.Active != "a" {
		t.Errorf("b has begun: %v; %q has the lock", w.rollouts["b"] != nil, w.list.Active)
	}
}

// A rollout that was saved, and whose start was given up before Restate had it, is under way: it has the lock before
// another one starts, and started once more it answers how it stands.
func TestARowWithoutARolloutIsRestored(t *testing.T) {
	w := newWorld(search{})
	w.giveUp(letter{to: wholeFleet, what: "Start", start: startsOf[0]})
	if w.rollouts["a"] != nil || len(w.saves) != 1 {
		t.Fatalf("a has begun: %v, with %d rows", w.rollouts["a"] != nil, len(w.saves))
	}
	again := w.clone()
	w.deliver(letter{to: wholeFleet, what: "Start", start: startsOf[1]}, -1, false)
	if w.rollouts["b"] != nil || w.list.Active != "a" || w.rollouts["a"] == nil || w.rollouts["a"].Phase != Awaiting {
		t.Errorf("b has begun: %v; %+v", w.rollouts["b"] != nil, w.list)
	}
	if r, err := again.list.Start((&run{world: again, stopAt: -1}).on(), startsOf[0]); err != nil || r.Phase != Awaiting {
		t.Errorf("a starts once more: %s, %v", r.Phase, err)
	}
	if again.list.Active != "a" {
		t.Errorf("%q has the lock", again.list.Active)
	}
}

// A line, or the lock, of a rollout that Restate has lost does not spare a start the look at what is under way.
func TestALostRolloutIsAdmittedLikeAnyOther(t *testing.T) {
	w := newWorld(search{})
	w.deliver(letter{to: wholeFleet, what: "Start", start: startsOf[1]}, -1, false)
	w.list.note(line("a", Lost, 1, 1))
	if _, err := w.list.Start((&run{world: w, stopAt: -1}).on(), startsOf[0]); !errors.Is(err, controlplane.ErrConflict) || w.list.Active != "b" {
		t.Errorf("%v, and %q has the lock", err, w.list.Active)
	}
}
