package rollout

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/settings"
)

// run is an invocation under way: its journal, and the objects that it calls.
type run struct {
	*world
	call
	at     int  // answers that were read
	steps  int  // steps that were executed or read, except for the clock
	stopAt int  // the step at which it is stopped; less than 0: none
	twice  bool // the step is executed, and its answer lost
	gaveUp bool // a rollout that begins is saved, and does not begin

	takesBack bool // the one transition that an outcome allows

	db *statements // of the step that is executed
}

// errStopped ends an invocation that goes on later, because it was stopped or waits for an object that is busy.
var errStopped = errors.New("stopped")

// journaled executes a step, or reads its answer.
func journaled[T any](s *run, clock bool, do func() (T, error)) (T, error) {
	if s.at < len(s.answers) {
		a := s.answers[s.at]
		s.at++
		s.steps++
		return a.value.(T), a.err
	}
	if !clock && s.steps == s.stopAt {
		if s.twice {
			_, _ = do()
		}
		var none T
		return none, errStopped
	}
	v, err := do()
	if errors.Is(err, errStopped) {
		return v, err
	}
	s.answers = append(slices.Clip(s.answers), answered{v, err})
	s.at++
	if !clock {
		s.steps++
	}
	return v, err
}

// on returns the effects of the invocation.
func (s *run) on() LockSteps {
	if s.db == nil {
		s.db = &statements{run: s}
	}
	return LockSteps{NewWork(s.db, liveMs*time.Millisecond).On(s), s}
}

// Do executes a step in the present world, and the step's writes change the world.
func (s *run) Do(name string, answer any, step func(context.Context) (any, error)) error {
	value, err := journaled(s, name == controlplane.StepNow, func() (any, error) {
		if name == controlplane.StepNow {
			return s.nowMs, nil
		}
		s.db.land = s.land()
		value, err := step(context.Background())
		s.rows, s.trials, s.saves, s.limited = s.db.rows, s.db.trials, s.db.saves, s.db.limited
		if look, is := value.(fleet.Look); is && s.look != nil {
			s.look(s.world, &look)
			value = look
		}
		return value, err
	})
	if err == nil {
		reflect.ValueOf(answer).Elem().Set(reflect.ValueOf(value))
	}
	return err
}

// statements are land's statements, as changed by a mutant.
type statements struct {
	*land
	run *run
}

func (d *statements) RenewTrials(ctx context.Context, ids []string, leaseMs int64,
	change *settings.Change) (tunings.TrialsRenewed, error) {
	renewed, err := d.land.RenewTrials(ctx, ids, leaseMs, change)
	if d.run.renew != nil {
		renewed = d.run.renew(d.land, ids, leaseMs, renewed)
	}
	return renewed, err
}

func (d *statements) KeepLimits(ctx context.Context, w LimitsWrite) (LimitsWritten, error) {
	if d.run.limits != nil {
		d.run.limits(d.land, w, true)
	}
	return d.land.KeepLimits(ctx, w)
}

func (d *statements) RevertLimits(ctx context.Context, w LimitsWrite) (LimitsWritten, error) {
	if d.run.limits != nil {
		d.run.limits(d.land, w, false)
	}
	return d.land.RevertLimits(ctx, w)
}

func (d *statements) EndTrials(ctx context.Context, writes []tunings.TrialWrite) ([]int64, error) {
	numbers, err := d.land.EndTrials(ctx, writes)
	if d.run.end != nil {
		d.run.end(d.land)
	}
	return numbers, err
}

func (d *statements) WriteTunings(ctx context.Context, writes []tunings.Write) (tunings.Written, error) {
	written, err := d.land.WriteTunings(ctx, writes)
	if d.run.write != nil {
		written = d.run.write(d.land, writes, written)
	}
	return written, err
}

func (d *statements) TuningsOf(ctx context.Context, id string, rows int) ([]tunings.RegionTuning, error) {
	if d.run.forgetful {
		return nil, nil
	}
	return d.land.TuningsOf(ctx, id, rows)
}

func (d *statements) RolloutRecorded(ctx context.Context, id string) (bool, error) {
	if d.run.forgetful {
		return false, nil
	}
	return d.land.RolloutRecorded(ctx, id)
}

func (d *statements) NewerRollout(ctx context.Context, id string, saved int64) (string, error) {
	if d.run.trusting {
		return "", nil
	}
	return d.land.NewerRollout(ctx, id, saved)
}

func (d *statements) Rollouts(ctx context.Context, rows int) ([]Trace, error) {
	if d.run.traceless {
		return nil, nil
	}
	return d.land.Rollouts(ctx, rows)
}

// errGaveUp is the last error of a step that was retried for long, and that took effect all the same.
var errGaveUp = errors.New("gave up")

func (d *statements) SaveRollout(ctx context.Context, row Row) error {
	switch {
	case d.run.recordless:
		return nil
	case d.run.stateless:
		row.Saved, row.Phase, row.State = 0, "", ""
		if savedIn(d.saves, row.ID) < 0 {
			d.saves = append(slices.Clip(d.saves), row)
		}
		return nil
	}
	must(outcomeStays(d.run, row))
	err := d.land.SaveRollout(ctx, row)
	if err == nil && d.run.gaveUp {
		err = errGaveUp
	}
	return err
}

// Restore is the handler that the lock calls.
func (s *run) Restore(id string) (Rollout, error) {
	return s.ask(id, func(r *Rollout, inner *run) (time.Duration, error) {
		wait, restored, err := r.Restore(inner.on().Steps, id)
		switch {
		case err != nil:
			return 0, err
		case r.ID == "":
			return 0, fmt.Errorf("%w: no rollout %s", controlplane.ErrNotFound, id)
		case restored:
			return wait, inner.restored(r, wait)
		}
		if err := r.SaveAgain(inner.on().Steps); err != nil {
			return 0, err
		}
		saved := *r
		inner.rollouts[id] = &saved
		return wait, nil
	})
}

// Forget does nothing: the list has more lines than there are rollouts.
func (*run) Forget(string) {}

func (s *run) Status(id string) (Rollout, error) {
	return journaled(s, false, func() (Rollout, error) { return s.status(id) })
}

func (w *world) status(id string) (Rollout, error) {
	if r := w.rollouts[id]; r != nil {
		return apart(r), nil
	}
	return Rollout{}, fmt.Errorf("%w: no rollout %s", controlplane.ErrNotFound, id)
}

func (s *run) Begin(id string, begin Begin) (Rollout, error) {
	return s.ask(id, func(r *Rollout, inner *run) (time.Duration, error) {
		wait, restored, err := r.Restore(inner.on().Steps, id)
		if err != nil {
			return 0, err
		}
		if restored {
			if err := inner.restored(r, wait); err != nil {
				return 0, err
			}
		}
		wait, fresh, err := r.Begin(inner.on().Steps, id, begin)
		if err == nil && fresh {
			must(idIsFresh(s.world, id))
			err = inner.settle(r, wait)
		}
		return wait, err
	})
}

func (s *run) RollBack(id string, by controlplane.By) (Rollout, error) {
	return s.ask(id, func(r *Rollout, inner *run) (time.Duration, error) {
		wait, restored, err := r.Restore(inner.on().Steps, id)
		if err == nil && r.ID == "" {
			err = fmt.Errorf("%w: no rollout %s", controlplane.ErrNotFound, id)
		}
		if err != nil {
			return 0, err
		}
		took, err := r.RollBack(inner.on().Steps, by)
		if err == nil {
			inner.takesBack = true
			return took, inner.settle(r, took)
		}
		if restored {
			return wait, errors.Join(err, inner.restored(r, wait))
		}
		return wait, err
	})
}

// ask calls a rollout under the lock, and waits for its answer. Restate makes a call once, even if processes are
// killed.
func (s *run) ask(id string, handle func(*Rollout, *run) (time.Duration, error)) (Rollout, error) {
	if s.steps == s.stopAt {
		s.twice = false
	}
	return journaled(s, false, func() (Rollout, error) {
		if s.busy(id) {
			return Rollout{}, errStopped
		}
		r := apart(s.rollouts[id])
		_, err := handle(&r, &run{world: s.world, stopAt: -1, gaveUp: s.gaveUp})
		return r, err
	})
}

// busy reports whether an object has an invocation.
func (w *world) busy(object string) bool {
	return slices.ContainsFunc(w.stopped, func(c call) bool { return c.letter.to == object })
}
