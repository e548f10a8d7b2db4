package retire

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
)

// ledger is a town with the states of jobs.
type ledger struct {
	*town
	saved controlplane.JobState
}

func (l *ledger) on() Steps { return NewWork(l, time.Minute, 0, townMetrics).On(l, nil) }

// Do uses the clock of the town.
func (l *ledger) Do(name string, answer any, step func(context.Context) (any, error)) error {
	if name == controlplane.StepNow {
		*answer.(*int64) = l.nowMs
		return nil
	}
	return l.town.Do(name, answer, step)
}

func (l *ledger) JobState(context.Context, string) (controlplane.JobState, error) {
	return l.saved, nil
}

func (l *ledger) SaveJobState(_ context.Context, s controlplane.JobState) (controlplane.JobState, error) {
	if s.Saved > l.saved.Saved {
		l.saved = s
	}
	return l.saved, nil
}

// If Restate loses all of the state, or the changes since a backup, the retirement still has one outcome, and drops
// nothing without both approvals.
//
//weir:unraced
func TestARetirementGoesOnFromItsSavedState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := &ledger{town: newTown()}
		r, err := New(Blocklist, DefaultSpec(), controltest.Ann, l.begins(), l.nowMs)
		if err != nil {
			rt.Fatal(err)
		}
		var backups []string // earlier states of Restate
		write := func() {
			r.Settle(l.nowMs, 0)
			if err := r.Save(l.on()); err != nil {
				rt.Fatal(err)
			}
			text, err := json.Marshal(r)
			if err != nil {
				rt.Fatal(err)
			}
			backups = append(backups, string(text))
		}
		write()
		approvals := 0
		for range 400 {
			if !r.UnderWay() {
				break
			}
			if rapid.IntRange(0, 9).Draw(rt, "loss") == 0 { // Restate's data
				epoch, id := r.Epoch, r.ID
				*r = Retirement{}
				if rapid.Bool().Draw(rt, "backup") {
					if err := json.Unmarshal([]byte(backups[rapid.IntRange(0, len(backups)-1).Draw(rt, "which")]), r); err != nil {
						rt.Fatal(err)
					}
				}
				was := r.Saved
				_, restored, err := r.Restore(l.on(), Blocklist)
				if err != nil || restored != (was < l.saved.Saved) || r.ID != id || r.Epoch < epoch-1 || r.Saved != l.saved.Saved {
					rt.Fatalf("restored %v, %v: %+v", restored, err, r)
				}
			}
			l.nowMs += 3_600_000
			order := Order{By: controltest.Ann, Evidence: r.EvidenceHash()}
			look := l.look(r)
			switch r.Phase {
			case Awaiting:
				if _, err := r.ApproveRename(order, look, l.nowMs); err == nil {
					approvals++
				}
			case AwaitingFinal:
				if _, err := r.ApproveDrop(order, look, l.nowMs); err == nil {
					approvals++
				}
			default:
				if _, err := r.Advance(l.on(), l.nowMs); err != nil {
					rt.Fatal(err)
				}
			}
			write()
		}
		if r.Phase != Dropped || l.drops != 1 || approvals != 2 {
			rt.Fatalf("%s after %d drops and %d approvals: %+v", r.Phase, l.drops, approvals, r.Events)
		}
	})
}

// A transition from an older state is refused when it is saved.
func TestAnOlderRetirementIsNotSaved(t *testing.T) {
	l := &ledger{town: newTown()}
	r, err := New(Blocklist, DefaultSpec(), controltest.Ann, l.begins(), l.nowMs)
	if err != nil {
		t.Fatal(err)
	}
	old := *r
	if err := errors.Join(r.Save(l.on()), r.Save(l.on())); err != nil {
		t.Fatal(err)
	}
	if err := old.Save(l.on()); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("%v", err)
	}
	gone := old // by a build without saves
	gone.Saved, gone.Epoch, gone.Phase = 0, r.Epoch+3, Draining
	if _, restored, err := gone.Restore(l.on(), Blocklist); err != nil || !restored || gone.Phase != Draining || gone.Saved != l.saved.Saved {
		t.Errorf("restored %v, %v: %+v", restored, err, gone)
	}
	l.saved.State = `{"version":2}`
	if _, _, err := old.Restore(l.on(), Blocklist); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "run the newer weir-control") {
		t.Errorf("of a newer build: %v", err)
	}
	old.Saved, l.saved.State = 0, "{"
	if _, _, err := old.Restore(l.on(), Blocklist); !errors.Is(err, controlplane.ErrConflict) {
		t.Errorf("not JSON: %v", err)
	}
}

func FuzzLoadPause(f *testing.F) {
	f.Add(`{"actor":"ann","reason":"x","ordered_ms":5,"paused":true}`)
	f.Fuzz(func(t *testing.T, state string) {
		o, err := controlplane.LoadPause(t.Context(), oneState{controlplane.JobState{Saved: 7, State: state}}, "cleanup")
		if err == nil && o.OrderedMs != 7 {
			t.Errorf("%+v", o)
		}
	})
}

// oneState has the same state for every name.
type oneState struct{ state controlplane.JobState }

func (o oneState) JobState(context.Context, string) (controlplane.JobState, error) {
	return o.state, nil
}

func (o oneState) SaveJobState(context.Context, controlplane.JobState) (controlplane.JobState, error) {
	return o.state, nil
}
