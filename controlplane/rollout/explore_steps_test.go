package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/tunings"
)

// run is an invocation that is under way: RolloutSteps, RolloutBeginSteps and RolloutListSteps.
type run struct {
	*world
	call
	at     int  // answers that were read
	steps  int  // that were executed or read, except for the clock
	stopAt int  // the step at which it is stopped; less than 0: none
	twice  bool // the step is executed, and its answer lost
	gaveUp bool // a rollout that begins is saved, and does not begin

	takesBack bool // the one transition that an outcome has
}

// errStopped ends an invocation that goes on later: it was stopped, or it waits for an object that has another.
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

func (s *run) work() (*land, *RolloutWork) {
	l := s.land()
	return l, NewRolloutWork(l, liveMs*time.Millisecond)
}

func (s *run) NowMs() (int64, error) {
	return journaled(s, true, func() (int64, error) { return s.nowMs, nil })
}

func (s *run) InForce(regions []string) ([]tunings.RegionTuning, error) {
	return journaled(s, false, func() ([]tunings.RegionTuning, error) {
		_, work := s.work()
		return work.InForce(context.Background(), regions)
	})
}

func (s *run) Try(writes []tunings.TrialWrite, by controlplane.By) (tunings.TrialsWritten, error) {
	return journaled(s, false, func() (tunings.TrialsWritten, error) {
		l, work := s.work()
		written, err := work.Try(context.Background(), writes, by)
		s.trials = l.trials
		return written, err
	})
}

func (s *run) Renew(ids []string, leaseMs int64) (tunings.TrialsRenewed, error) {
	return journaled(s, false, func() (tunings.TrialsRenewed, error) {
		l, work := s.work()
		renewed, err := work.Renew(context.Background(), ids, leaseMs)
		if s.renew != nil {
			renewed = s.renew(l, ids, leaseMs, renewed)
		}
		s.trials = l.trials
		return renewed, err
	})
}

func (s *run) EndTrials(writes []tunings.TrialWrite) ([]int64, error) {
	return journaled(s, false, func() ([]int64, error) {
		l, work := s.work()
		numbers, err := work.EndTrials(context.Background(), writes)
		if s.end != nil {
			s.end(l)
		}
		s.trials = l.trials
		return numbers, err
	})
}

func (s *run) Write(writes []tunings.TuningWrite) (tunings.TuningsWritten, error) {
	return journaled(s, false, func() (tunings.TuningsWritten, error) {
		l, work := s.work()
		written, err := work.Write(context.Background(), writes)
		if s.write != nil {
			written = s.write(l, writes, written)
		}
		s.rows = l.rows
		return written, err
	})
}

func (s *run) Look(scope fleet.RolloutScope) (fleet.FleetLook, error) {
	return journaled(s, false, func() (fleet.FleetLook, error) {
		_, work := s.work()
		look, err := work.Look(context.Background(), scope)
		if s.look != nil {
			s.look(s.world, &look)
		}
		return look, err
	})
}

func (s *run) Queries([]string, []queries.QueryRail) ([]queries.QueryValue, error) {
	return nil, nil
}

func (s *run) Used(id string) (string, error) {
	return journaled(s, false, func() (string, error) {
		if s.forgetful {
			return "", nil
		}
		_, work := s.work()
		return work.Used(context.Background(), id)
	})
}

// errGaveUp is the last error of a step that was tried for long, and that took effect all the same.
var errGaveUp = errors.New("gave up")

func (s *run) Newer(id string, saved int64) (string, error) {
	return journaled(s, false, func() (string, error) {
		if s.trusting {
			return "", nil
		}
		_, work := s.work()
		return work.Newer(context.Background(), id, saved)
	})
}

func (s *run) Save(row RolloutRow) error {
	_, err := journaled(s, false, func() (struct{}, error) {
		if s.recordless {
			return struct{}{}, nil
		}
		if s.stateless {
			row.Saved, row.Phase, row.State = 0, "", ""
			if savedIn(s.saves, row.ID) < 0 {
				s.saves = append(slices.Clip(s.saves), row)
			}
			return struct{}{}, nil
		}
		must(outcomeStays(s, row))
		l, work := s.work()
		err := work.Save(context.Background(), row)
		s.saves = l.saves
		if err == nil && s.gaveUp {
			err = errGaveUp
		}
		return struct{}{}, err
	})
	return err
}

// Restore is the handler that the list calls.
func (s *run) Restore(id string) (Rollout, error) {
	return s.ask(id, func(r *Rollout, inner *run) (time.Duration, error) {
		wait, restored, err := r.Restore(inner, id)
		switch {
		case err != nil:
			return 0, err
		case r.ID == "":
			return 0, fmt.Errorf("%w: no rollout %s", controlplane.ErrNotFound, id)
		case restored:
			return wait, inner.restored(r, wait)
		}
		return wait, nil
	})
}

func (s *run) Traces() ([]TuningTrace, error) {
	return journaled(s, false, func() ([]TuningTrace, error) {
		if s.traceless {
			return nil, nil
		}
		_, work := s.work()
		return work.Traces(context.Background(), 100)
	})
}

func (s *run) Regions() ([]string, error) {
	return journaled(s, false, func() ([]string, error) {
		_, work := s.work()
		return work.Regions(context.Background())
	})
}

func (s *run) CheckSpec(spec RolloutSpec) (string, error) {
	return journaled(s, false, func() (string, error) {
		_, work := s.work()
		return work.CheckSpec(context.Background(), spec)
	})
}

func (s *run) Status(id string) (Rollout, error) {
	return journaled(s, false, func() (Rollout, error) { return s.status(id) })
}

func (w *world) status(id string) (Rollout, error) {
	if r := w.rollouts[id]; r != nil {
		return apart(r), nil
	}
	return Rollout{}, fmt.Errorf("%w: no rollout %s", controlplane.ErrNotFound, id)
}

func (s *run) Begin(id string, begin RolloutBegin) (Rollout, error) {
	return s.ask(id, func(r *Rollout, inner *run) (time.Duration, error) {
		wait, restored, err := r.Restore(inner, id)
		if err != nil {
			return 0, err
		}
		if restored {
			if err := inner.restored(r, wait); err != nil {
				return 0, err
			}
		}
		wait, fresh, err := r.Begin(inner, id, begin)
		if err == nil && fresh {
			must(idIsFresh(s.world, id))
			err = inner.settle(r, wait)
		}
		return wait, err
	})
}

func (s *run) RollBack(id string, by controlplane.By) (Rollout, error) {
	return s.ask(id, func(r *Rollout, inner *run) (time.Duration, error) {
		wait, restored, err := r.Restore(inner, id)
		if err == nil && r.ID == "" {
			err = fmt.Errorf("%w: no rollout %s", controlplane.ErrNotFound, id)
		}
		if err != nil {
			return 0, err
		}
		took, err := r.RollBack(inner, by)
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

// ask calls a rollout from the list, and waits until it has answered. Restate makes a call once, whatever is killed.
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

// busy tells that an object has an invocation.
func (w *world) busy(object string) bool {
	return slices.ContainsFunc(w.stopped, func(c call) bool { return c.letter.to == object })
}
