package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// baking returns a rollout whose canary bakes, in the state in which the handlers store it.
func baking(t *testing.T) (*Rollout, *land, inLand) {
	t.Helper()
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	goOnSaved(t, r, steps, func() bool { return r.Phase == Baking })
	return r, l, steps
}

// goOnSaved is play with every transition saved.
func goOnSaved(t *testing.T, r *Rollout, steps inLand, until func() bool) {
	t.Helper()
	for range 10_000 {
		if until() {
			return
		}
		wait := makeTransition(t, r, steps)
		if err := r.Save(steps.on); err != nil {
			t.Fatal(err)
		}
		if wait < 0 {
			return
		}
		steps.pass(wait)
	}
	t.Fatalf("no end: %+v", r)
}

func restore(t *testing.T, r *Rollout, steps inLand, id string) {
	t.Helper()
	wait, restored, err := r.Restore(steps.on, id)
	if err != nil || !restored || r.ID != id {
		t.Fatalf("restored: %v, %v, as %q", restored, err, r.ID)
	}
	r.Settle(wait)
	if err := r.Save(steps.on); err != nil {
		t.Fatal(err)
	}
}

// A rollout that Restate has lost bakes from the beginning, keeps its baselines, and gets done.
func TestALostRolloutGoesOn(t *testing.T) {
	was, l, steps := baking(t)
	l.pass(10 * time.Second)
	var r Rollout
	restore(t, &r, steps, was.ID)
	if r.Phase != Baking || r.DueMs != 0 || len(r.Watch) == 0 || r.Epoch <= l.saves[0].Saved || r.Events[len(r.Events)-1].What != "restore" {
		t.Errorf("%s, due %d, %d regions watched, %+v", r.Phase, r.DueMs, len(r.Watch), r.Events)
	}
	since := l.now
	goOnSaved(t, &r, steps, func() bool { return r.Stage == 1 })
	if baked := l.now.Sub(since); baked < 60*time.Second {
		t.Errorf("it bakes for %v", baked)
	}
	if goOnSaved(t, &r, steps, func() bool { return r.Phase.Over() }); r.Phase != Done || l.saves[0].Phase != Done {
		t.Errorf("%s %q; MySQL has %s", r.Phase, r.Why, l.saves[0].Phase)
	}
	wantFleet(t, l, document30, "eu", "us")
}

// A rollout whose trials have ended when it is restored rolls back, with that reason.
func TestALostRolloutWhoseTrialsAreOverIsRolledBack(t *testing.T) {
	was, l, steps := baking(t)
	l.pass(time.Duration(was.Spec.Plan.LeaseMs)*time.Millisecond + time.Minute)
	var r Rollout
	restore(t, &r, steps, was.ID)
	goOnSaved(t, &r, steps, func() bool { return r.Phase.Over() })
	if r.Phase != RolledBack || !strings.Contains(r.Why, "was not renewed in time") {
		t.Errorf("%s %q", r.Phase, r.Why)
	}
	wantFleet(t, l, defaultDocument, "eu", "us")
}

// An old state of a rollout that is over is replaced by its outcome.
func TestAnOldStateOfARolloutThatIsOver(t *testing.T) {
	was, _, steps := baking(t)
	old := *was
	goOnSaved(t, was, steps, func() bool { return was.Phase.Over() })
	restore(t, &old, steps, was.ID)
	if old.Phase != Done || old.EndedMs != was.EndedMs || old.ticks() {
		t.Errorf("%s, ended at %d, before at %d", old.Phase, old.EndedMs, was.EndedMs)
	}
	if _, restored, err := old.Restore(steps.on, was.ID); restored || err != nil {
		t.Errorf("once more: %v, %v", restored, err)
	}
}

// A transition that only updates figures is not saved, and a save does not replace the save of another attempt.
func TestWhatIsSaved(t *testing.T) {
	r, l, steps := baking(t)
	saved := l.saves[0]
	makeTransition(t, r, steps)
	if err := r.Save(steps.on); err != nil || l.saves[0] != saved {
		t.Errorf("a look is saved: %v", err)
	}
	other := *r
	for _, r := range []*Rollout{r, &other} {
		by := controlplane.By{Actor: "bob", Reason: fmt.Sprintf("at %p", r)}
		if _, err := r.Operate(Order{Action: Abort, By: by}, l.now.UnixMilli()); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Save(steps.on); err != nil {
		t.Fatal(err)
	}
	if err := other.Save(steps.on); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("another attempt: %v", err)
	}
}

// If a build that saves nothing has advanced a rollout, that state is newer than the saved state, and is saved.
func TestARolloutThatAnOlderBuildWentOnWith(t *testing.T) {
	r, l, steps := baking(t)
	saved := r.Saved
	goOnSaved(t, r, steps, func() bool { return r.Phase == Keeping })
	l.saves[0].State = strings.Replace(l.saves[0].State, fmt.Sprintf(`"epoch":%d`, r.Epoch), fmt.Sprintf(`"epoch":%d`, r.Epoch-5), 1)
	r.Saved, r.Standing = 0, ""
	restore(t, r, steps, r.ID)
	if r.Phase != Keeping || r.Saved <= saved || l.saves[0].Saved != r.Saved || l.saves[0].Phase != Keeping {
		t.Errorf("%s, save %d; MySQL has save %d, %s", r.Phase, r.Saved, l.saves[0].Saved, l.saves[0].Phase)
	}
}

// A state that this build cannot read is left unchanged.
func TestAStateThatCannotBeRead(t *testing.T) {
	r, l, steps := baking(t)
	newer, err := json.Marshal(Rollout{ID: r.ID, Version: limitsVersion + 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"{", string(newer)} {
		l.saves[0].State = state
		var lost Rollout
		if _, restored, err := lost.Restore(steps.on, r.ID); restored || !errors.Is(err, controlplane.ErrConflict) || lost.ID != "" {
			t.Errorf("%s: %v, %v", state, restored, err)
		}
	}
}

// If MySQL was restored from an older copy, it gets the newer state that Restate has.
func TestMySQLWasRestoredFromAnOlderCopy(t *testing.T) {
	r, l, steps := baking(t)
	older := l.saves[0]
	goOnSaved(t, r, steps, func() bool { return r.Phase.Over() })
	l.saves = []Row{older}
	traces, err := l.Rollouts(t.Context(), ListMax)
	if err != nil {
		t.Fatal(err)
	}
	var lock Lock
	wrong, err := lock.Wrongs(traces, r.MovedMs+10_001, 10_000, known{r.ID: *r}.Status)
	if err != nil || len(wrong) != 1 {
		t.Fatalf("%+v, %v", wrong, err)
	}
	if err := r.SaveAgain(steps.on); err != nil || l.saves[0].Phase != Done || l.saves[0].Saved <= older.Saved {
		t.Errorf("%v: %+v", err, l.saves[0].Phase)
	}
	if traces, err = l.Rollouts(t.Context(), ListMax); err != nil {
		t.Fatal(err)
	}
	if wrong, err := lock.Wrongs(traces, r.MovedMs+10_001, 10_000, known{r.ID: *r}.Status); err != nil || len(wrong) > 0 {
		t.Errorf("once more: %+v, %v", wrong, err)
	}
}
