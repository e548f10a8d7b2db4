package rollout

import (
	"encoding/json"
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

// known maps the rollouts that Restate has.
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

// Only the newest outcome releases the lock, and not a late earlier one: a rollout that is done can be rolled back
// before the lock has received its first outcome.
func TestTheLockIsGivenBackOnce(t *testing.T) {
	var l Lock
	l.take(line("two", Measuring, 1))
	if l.Ended(line("one", Done, 9)); l.Active != "two" {
		t.Error("another one's outcome gave the lock back")
	}
	l.take(line("two", RollingBack, 8)) // rolled back
	if l.Ended(line("two", Done, 7)); l.Active != "two" {
		t.Errorf("an outcome of before gave the lock back: %+v", l)
	}
	if l.Ended(line("two", RolledBack, 9)); l.Active != "" {
		t.Errorf("the outcome did not give the lock back: %+v", l)
	}
}

// The lock follows from the rollouts' states. A rollout that is lost or over loses the lock, whatever its epoch. A
// rollout that is under way gets it if no other rollout has it.
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

// Wrongs reports errors before anything is repaired: MySQL has another outcome or a newer state, Restate has no state,
// or the lock belongs to no rollout or to a rollout that is over.
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

// Of the rollouts that are over only the newest are read, unless Restate has lost one of these; then all are read.
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
	var free Lock
	if wrong, err := free.Wrongs(traces, 20_000, 10_000, look); err != nil || len(wrong) == 0 || wrong[0].ID != "r50" {
		t.Errorf("r50 is under way without the lock: %v, %v", wrong, err)
	}
	clear(restate)
	if wrong, err := l.Wrongs(traces, 20_000, 10_000, look); err != nil || len(wrong) != ListMax {
		t.Errorf("all are lost: %d are wrong, %v", len(wrong), err)
	}
}

// A rollout that has not written a version is found by its row, so that no other rollout starts at the same time.
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

// A rollout that was saved, but whose start failed before Restate had it, is under way. It gets the lock before another
// rollout starts. If it is started again, Start returns its state.
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

// A row of a rollout that an older build wrote does not exempt a start from checking which rollout is under way.
func TestALostRolloutIsAdmittedLikeAnyOther(t *testing.T) {
	w := newWorld(search{})
	w.deliver(letter{to: wholeFleet, what: "Start", start: startsOf[1]}, -1, false)
	w.saves = append(w.saves, Row{ID: "a", StartedMs: 1})
	if _, err := w.lock.Start((&run{world: w, stopAt: -1}).on(), startsOf[0]); !errors.Is(err, controlplane.ErrConflict) || w.lock.Active != "b" {
		t.Errorf("%v, and %q has the lock", err, w.lock.Active)
	}
}

// asked records the lock's calls to known rollouts. A rollout that begins or is rolled back is under way.
type asked struct {
	known
	calls []string
}

func (a *asked) note(call, id string) { a.calls = append(a.calls, call+" "+id) }

func (a *asked) Status(id string) (Rollout, error) {
	a.note("status", id)
	return a.known.Status(id)
}

func (a *asked) Restore(id string) (Rollout, error) {
	a.note("restore", id)
	return a.known.Status(id)
}

func (a *asked) Begin(id string, _ Begin) (Rollout, error) {
	a.note("begin", id)
	if r, ok := a.known[id]; ok {
		return r, nil
	}
	return Rollout{ID: id, Phase: Measuring, Transitions: controlplane.Transitions{Epoch: 2}}, nil
}

func (a *asked) RollBack(id string, _ controlplane.By) (Rollout, error) {
	a.note("roll back", id)
	return Rollout{ID: id, Phase: RollingBack, Transitions: controlplane.Transitions{Epoch: 8}}, nil
}

func (a *asked) Forget(id string) { a.note("forget", id) }

// The calls of Start and RollBack to rollouts, their order, and the lock afterwards. Journals of running invocations
// contain these calls, so they must not change. Decisions that need only the lock must not read MySQL.
func TestWhatTheLockAsks(t *testing.T) {
	restate := known{"runs": {ID: "runs", Phase: Baking, Saved: 5}, "done": {ID: "done", Phase: Done, Saved: 5},
		"older": {ID: "older", Phase: Done, Saved: 5}, "behind": {ID: "behind", Phase: Done, Saved: 5}}
	done, older := Row{ID: "done", Saved: 5, Phase: Done}, Row{ID: "older", Saved: 5, Phase: Done}
	runs, behind := Row{ID: "runs", Saved: 5, Phase: Baking}, Row{ID: "behind", Saved: 6, Phase: RollingBack}
	start := func(id string) func(*Lock, LockSteps) (Rollout, error) {
		return func(l *Lock, steps LockSteps) (Rollout, error) {
			return l.Start(steps, Start{ID: id, Spec: spec(canary), By: bob})
		}
	}
	rollBack := func(id string) func(*Lock, LockSteps) (Rollout, error) {
		return func(l *Lock, steps LockSteps) (Rollout, error) { return l.RollBack(steps, id, bob) }
	}
	down, conflict := controlplane.ErrUnavailable, controlplane.ErrConflict
	has := func(id string, since int64) Lock { return Lock{Active: id, Since: since} }
	for name, c := range map[string]struct {
		lock  Lock
		rows  []Row // oldest first
		mysql error
		do    func(*Lock, LockSteps) (Rollout, error)
		calls string
		then  Lock
		err   error
	}{
		"a start": {rows: []Row{{ID: "unsaved"}, done}, do: start("new"), calls: "begin new", then: has("new", 2)},
		"a start of what has the lock, once more": {lock: has("runs", 1), mysql: down, do: start("runs"),
			calls: "status runs, begin runs", then: has("runs", 1)},
		"a start of what is done, once more": {lock: has("runs", 1), rows: []Row{done, runs}, do: start("done"),
			calls: "status done, begin done", then: has("runs", 1)},
		"a start of what is done, under a free lock": {rows: []Row{done}, do: start("done"),
			calls: "status done, begin done"},
		"a start of what all have lost": {lock: has("new", 9), do: start("new"),
			calls: "status new, restore new, begin new", then: has("new", 2)},
		"a start beside another": {lock: has("done", 1), rows: []Row{runs}, do: start("new"), then: has("done", 1),
			err: conflict},
		"a start beside one without the lock": {rows: []Row{runs, done}, do: start("new"), calls: "status runs",
			then: has("runs", 0), err: conflict},
		"a start after one that is restored, and over": {rows: []Row{behind}, do: start("new"),
			calls: "status behind, restore behind, begin new", then: has("new", 2)},
		"a start without MySQL": {mysql: down, do: start("new"), err: down},

		"a rollback":                  {rows: []Row{older, done}, do: rollBack("done"), calls: "roll back done", then: has("done", 8)},
		"a rollback of what is older": {rows: []Row{older, done}, do: rollBack("older"), err: conflict},
		"a rollback beside another": {lock: has("runs", 1), mysql: down, do: rollBack("done"), then: has("runs", 1),
			err: conflict},
		"a rollback of what is under way": {lock: has("runs", 1), mysql: down, do: rollBack("runs"),
			calls: "status runs, roll back runs", then: has("runs", 8)},
		"a rollback of what is over and has the lock": {lock: has("done", 1), rows: []Row{done, runs},
			do: rollBack("done"), calls: "status done, status runs", then: has("runs", 0), err: conflict},
		"a rollback beside one without the lock": {rows: []Row{done, runs}, do: rollBack("done"), calls: "status runs",
			then: has("runs", 0), err: conflict},
		"a rollback without MySQL": {mysql: down, do: rollBack("done"), err: down},
	} {
		land := newLand("eu")
		land.saves, land.err = c.rows, c.mysql
		rollouts := &asked{known: restate}
		_, err := c.do(&c.lock, LockSteps{newInLand(land).on, rollouts})
		calls := strings.Join(rollouts.calls, ", ")
		if !errors.Is(err, c.err) || calls != c.calls || c.lock != c.then {
			t.Errorf("%s: %v, %q, %+v, want %v, %q, %+v", name, err, calls, c.lock, c.err, c.calls, c.then)
		}
	}
}

// When a rollout begins, the state of the last listed rollout is deleted. If a rollout that began earlier is started
// again, nothing is deleted, even if it is no longer listed.
func TestAStartForgetsWhatIsNoLongerListed(t *testing.T) {
	for _, c := range []struct {
		rows        int
		start, want string
	}{
		{ListMax, "new", "begin new, forget r0"},
		{ListMax - 1, "new", "begin new"},
		{ListMax, "r7", "status r7, begin r7"},
		{ListMax, "runs", "status runs, begin runs"},
		{ListMax, "unlisted", "begin unlisted"},
	} {
		land, rollouts := newLand("eu"), &asked{known: known{"unlisted": {ID: "unlisted", Phase: Done}}}
		for i := range c.rows {
			row := Row{ID: fmt.Sprint("r", i), Saved: 5, Phase: Done}
			if i == 7 && c.start == "runs" {
				row.ID, row.Phase = "runs", Baking
			}
			land.saves, rollouts.known[row.ID] = append(land.saves, row), Rollout{ID: row.ID, Phase: row.Phase, Saved: 5}
		}
		var l Lock
		start := Start{ID: c.start, Spec: spec(canary), By: bob}
		_, err := l.Start(LockSteps{newInLand(land).on, rollouts}, start)
		if calls := strings.Join(rollouts.calls, ", "); err != nil || calls != c.want {
			t.Errorf("%d rows, start of %s: %q, %v, want %q", c.rows, c.start, calls, err, c.want)
		}
	}
}

// A repair restores states that differ, records the epoch of the rollout with the lock, and reads no more rollouts than
// are listed.
func TestWhatARepairAsks(t *testing.T) {
	runs := Rollout{ID: "runs", Phase: Baking, Saved: 3, Transitions: controlplane.Transitions{Epoch: 7}}
	rollouts := &asked{known: known{"runs": runs}}
	l := Lock{Active: "runs", Since: 2}
	repair := func(traces ...Trace) error { return l.Repair(LockSteps{Objects: rollouts}, traces) }
	err := repair(trace("runs", Baking, 4))
	if calls := strings.Join(rollouts.calls, ", "); err != nil || calls != "status runs, restore runs" {
		t.Errorf("%v: %q", err, calls)
	}
	if l != (Lock{Active: "runs", Since: 7}) {
		t.Errorf("%+v", l)
	}
	rollouts.calls = nil
	many := make([]Trace, ListMax+1)
	for i := range many {
		many[i] = trace(fmt.Sprint("r", i), Done, 1)
	}
	for _, traces := range [][]Trace{many, {trace("no/id", Done, 1)}} {
		if err := repair(traces...); !errors.Is(err, controlplane.ErrInvalid) || len(rollouts.calls) > 0 {
			t.Errorf("%d rollouts: %v, %q", len(traces), err, rollouts.calls)
		}
	}
	wrong, err := l.Wrongs(many[1:], 20_000, 10_000, known{}.Status)
	if err != nil || len(wrong) != ListMax || repair(wrong...) != nil {
		t.Errorf("all are lost, and one without a row has the lock: %d are wrong, %v", len(wrong), err)
	}
}

// The documents and messages of the build that had the list in Restate are read, and a lock of a newer build is
// rejected.
func TestTheLockOfTheLastBuild(t *testing.T) {
	var l Lock
	list := `{"version":2,"active":"one","since":7,"list":[{"id":"one","by":{},"started_ms":3,"phase":"baking"}]}`
	err := json.Unmarshal([]byte(list), &l)
	if want := (Lock{Version: lockVersion, Active: "one", Since: 7}); err != nil || l.Check() != nil || l != want {
		t.Errorf("%+v, %v", l, err)
	}
	var got Trace // a step's answer, and what a repair names
	err = json.Unmarshal([]byte(`{"ID":"one","By":{},"StartedMs":3,"Newest":9,"Saved":4,"Phase":"baking"}`), &got)
	if want := (Trace{Summary: Summary{ID: "one", Phase: Baking}, Saved: 4}); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	l.Version++
	if err := l.Check(); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("a newer build's lock: %v", err)
	}
}
