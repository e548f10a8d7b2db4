package rollout

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
)

func line(id string, phase Phase, epoch int64) Summary {
	return Summary{ID: id, Phase: phase, Epoch: epoch}
}

func trace(id string, phase Phase, saved int64) Trace {
	return Trace{Summary: Summary{ID: id, StartedMs: 1, Phase: phase}, Saved: saved}
}

// known are the rollouts that Restate has.
type known map[string]Rollout

func (k known) Status(id string) (Rollout, error) {
	r, ok := k[id]
	switch {
	case id == "unread":
		return r, controlplane.ErrUnavailable
	case !ok:
		return r, fmt.Errorf("%w: no rollout", controlplane.ErrNotFound)
	}
	return r, nil
}

func (k known) Restore(id string) (Rollout, error)                     { return k.Status(id) }
func (k known) Begin(id string, _ Begin) (Rollout, error)              { return k.Status(id) }
func (k known) RollBack(id string, _ controlplane.By) (Rollout, error) { return k.Status(id) }
func (k known) Forget(string)                                          {}

// The lock is given back by the outcome, and not by word of an earlier one: a rollout
// that is done may be rolled back before the lock has heard that it was done.
func TestTheLockIsGivenBackOnce(t *testing.T) {
	var l Lock
	l.take(line("two", Measuring, 1))
	if l.Ended(line("one", Done, 9)); l.Active != "two" {
		t.Error("another one's outcome gave the lock back")
	}
	l.take(line("two", RollingBack, 8)) // taken back
	if l.Ended(line("two", Done, 7)); l.Active != "two" {
		t.Errorf("an outcome of before gave the lock back: %+v", l)
	}
	if l.Ended(line("two", RolledBack, 9)); l.Active != "" {
		t.Errorf("the outcome did not give the lock back: %+v", l)
	}
}

// The lock follows from the rollouts themselves: one that is lost or over loses it, whatever its epoch, and one that is
// under way takes it where no other has it.
func TestRepairOfTheLock(t *testing.T) {
	restate := known{}
	for id, phase := range map[string]Phase{"finished": Done, "lives": Baking, "beside": Baking} {
		restate[id] = Rollout{ID: id, Phase: phase}
	}
	l := Lock{Active: "gone", Since: 3}
	for _, c := range []struct{ repair, active string }{
		{"finished", "gone"}, {"beside", "gone"}, {"gone", ""}, {"finished", ""}, {"lives", "lives"}, {"beside", "lives"},
	} {
		err := l.Repair(LockSteps{Objects: restate}, []Trace{{Summary: Summary{ID: c.repair}}})
		if err != nil || l.Active != c.active {
			t.Errorf("after %s: %+v, %v, want %q", c.repair, l, err, c.active)
		}
	}
	restate["lives"] = Rollout{ID: "lives", Phase: Done}
	l.Since = 9
	if err := l.Repair(LockSteps{Objects: restate}, []Trace{{Summary: Summary{ID: "lives"}}}); err != nil || l.Active != "" {
		t.Errorf("over, at a lower epoch: %+v, %v", l, err)
	}
	if err := l.Repair(LockSteps{Objects: restate}, []Trace{{Summary: Summary{ID: "unread"}}}); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("one that cannot be read: %v", err)
	}
}

// What is wrong with the lock, or with what Restate has, is told before anything is mended: where MySQL has another
// end, or a newer state, where Restate has none, and where the lock is that of none, or of what is over.
func TestWhatIsWrongWithTheLock(t *testing.T) {
	restate := known{
		"bakes": {Phase: Baking, Saved: 5}, "same": {Phase: Done, Saved: 5}, "old": {Phase: Baking, Saved: 3},
		"back": {Phase: RollingBack, Saved: 6}, "kept": {Phase: Done, Saved: 5},
		"just": {Phase: Baking, Saved: 3, MovedMs: 15_000}, "moves": {Phase: Baking, Saved: 5, MovedMs: 15_000},
	}
	for id, r := range restate {
		r.ID, r.Epoch = id, 4
		restate[id] = r
	}
	of := func(active string) Lock { return Lock{Active: active, Since: 4} }
	for name, c := range map[string]struct {
		lock  Lock
		trace Trace
		want  string
	}{
		"all is well":                            {of("bakes"), trace("bakes", Baking, 5), ""},
		"none is under way":                      {of(""), trace("same", Done, 5), ""},
		"the lock is that of none":               {of("nobody"), trace("same", Done, 5), "nobody"},
		"one is under way without the lock":      {of(""), trace("bakes", Baking, 5), "bakes"},
		"word of one may be on its way":          {of(""), trace("moves", Baking, 5), ""},
		"another one has the lock":               {of("moves"), trace("bakes", Baking, 5), ""},
		"it is under way, and Restate has none":  {of(""), trace("lost", Measuring, 1), "lost"},
		"it is over, and Restate has none":       {of(""), trace("lost", Done, 5), "lost"},
		"MySQL did not take its outcome":         {of(""), trace("same", Awaiting, 5), "same"},
		"MySQL has an older copy of its outcome": {of(""), trace("same", Awaiting, 3), "same"},
		"Restate has an older state":             {of(""), trace("old", Done, 5), "old"},
		"its state may be on its way":            {of(""), trace("just", Done, 5), ""},
		"it is being taken back":                 {of(""), trace("back", RollingBack, 6), "back"},
		"an older build wrote its row":           {of(""), trace("lost", "", 0), ""},
		"it is over, and the lock is kept":       {Lock{Active: "kept", Since: 9}, trace("kept", Done, 5), "kept"},
		"its outcome is on its way":              {of("kept"), trace("kept", Done, 5), ""}, // reviveRollout sends it again
		"it has the lock in an old state":        {of("old"), trace("old", Done, 5), "old"},
		"MySQL has no row of it":                 {of("bakes"), trace("same", Done, 5), ""},
	} {
		wrong, err := c.lock.Wrongs([]Trace{c.trace}, 20_000, 10_000, restate.Status)
		var got []string
		for _, w := range wrong {
			got = append(got, w.ID)
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
	unread := of("unread")
	if wrong, err := unread.Wrongs(nil, 20_000, 10_000, restate.Status); !errors.Is(err, controlplane.ErrUnavailable) || wrong != nil {
		t.Errorf("one that cannot be read: %+v, %v", wrong, err)
	}
}

// Of the rollouts that are over the newest are looked at, and all of them where Restate has lost one of those.
func TestHowManyRolloutsAreLookedAt(t *testing.T) {
	restate, looks := known{}, 0
	look := func(id string) (Rollout, error) { looks++; return restate.Status(id) }
	var traces []Trace
	for i := range ListMax {
		id := fmt.Sprint("r", i)
		traces, restate[id] = append(traces, trace(id, Done, 5)), Rollout{ID: id, Phase: Done, Saved: 5}
	}
	traces[50].Phase, restate["r50"] = Baking, Rollout{ID: "r50", Phase: Baking, Saved: 5}
	l := Lock{Active: "r50"}
	if wrong, err := l.Wrongs(traces, 20_000, 10_000, look); err != nil || len(wrong) > 0 || looks != looksMax+1 {
		t.Errorf("%d looks, %v, %v", looks, wrong, err)
	}
	clear(restate)
	if wrong, err := l.Wrongs(traces, 20_000, 10_000, look); err != nil || len(wrong) != ListMax {
		t.Errorf("all are lost: %d are wrong, %v", len(wrong), err)
	}
}

// A rollout that has written no version yet is found by its row, so that another does not start beside it.
func TestALostLockFindsARolloutThatWroteNothing(t *testing.T) {
	w := newWorld(search{})
	w.deliver(letter{to: wholeFleet, what: "Start", start: startsOf[0]}, -1, false)
	if w.rollouts["a"] == nil || len(w.rows) > 0 {
		t.Fatalf("a has begun: %v, and wrote %d versions", w.rollouts["a"] != nil, len(w.rows))
	}
	w.lock = Lock{}
	w.deliver(letter{to: wholeFleet, what: "Start", start: startsOf[1]}, -1, false)
	if w.rollouts["b"] != nil || w.lock.Active != "a" {
		t.Errorf("b has begun: %v; %q has the lock", w.rollouts["b"] != nil, w.lock.Active)
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
	if w.rollouts["b"] != nil || w.lock.Active != "a" || w.rollouts["a"] == nil || w.rollouts["a"].Phase != Awaiting {
		t.Errorf("b has begun: %v; %+v", w.rollouts["b"] != nil, w.lock)
	}
	if r, err := again.lock.Start((&run{world: again, stopAt: -1}).on(), startsOf[0]); err != nil || r.Phase != Awaiting {
		t.Errorf("a starts once more: %s, %v", r.Phase, err)
	}
	if again.lock.Active != "a" {
		t.Errorf("%q has the lock", again.lock.Active)
	}
}

// A row of a rollout that an older build wrote does not spare a start the look at what is under way.
func TestALostRolloutIsAdmittedLikeAnyOther(t *testing.T) {
	w := newWorld(search{})
	w.deliver(letter{to: wholeFleet, what: "Start", start: startsOf[1]}, -1, false)
	w.saves = append(w.saves, Row{ID: "a", StartedMs: 1})
	if _, err := w.lock.Start((&run{world: w, stopAt: -1}).on(), startsOf[0]); !errors.Is(err, controlplane.ErrConflict) || w.lock.Active != "b" {
		t.Errorf("%v, and %q has the lock", err, w.lock.Active)
	}
}
