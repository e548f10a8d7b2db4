package controlplane

import (
	"errors"
	"fmt"
)

// Repair asks rollouts how they stand, and puts list and lock right: state may have been lost, or restored in parts,
// while MySQL kept what was written.
func (l *RolloutList) Repair(steps RolloutListSteps, rollouts []TuningTrace) error {
	if n := len(rollouts); n > RolloutsListMax {
		return fmt.Errorf("%w: %d rollouts to look at (at most %d)", ErrInvalid, n, RolloutsListMax)
	}
	for _, trace := range rollouts {
		if err := ValidateRolloutID(trace.ID); err != nil {
			return err
		}
	}
	return l.correct(steps, rollouts)
}

// correct asks each rollout how it stands.
func (l *RolloutList) correct(steps RolloutListSteps, rollouts []TuningTrace) error {
	for _, trace := range rollouts {
		r, err := steps.Status(trace.ID)
		switch {
		case err == nil:
			l.found(r.Summary())
		case errors.Is(err, ErrNotFound):
			l.lost(trace)
		default:
			return err
		}
	}
	return nil
}

// vacant refuses to start a rollout beside one that is under way. A list without the lock may have been restored, or
// lost: those that it may be wrong about are asked first.
func (l *RolloutList) vacant(steps RolloutListSteps) error {
	if l.Active == "" {
		traces, err := steps.Traces()
		if err != nil {
			return err
		}
		if err := l.correct(steps, l.doubtful(traces)); err != nil {
			return err
		}
	}
	if l.Active != "" {
		return fmt.Errorf("%w: rollout %s is under way: wait for it, or abort it", ErrConflict, l.Active)
	}
	return nil
}

// doubtful are the lines of rollouts that are under way without the lock, and the traces of those without a line.
func (l *RolloutList) doubtful(traces []TuningTrace) (doubtful []TuningTrace) {
	for _, id := range l.UnderWay() {
		if id != l.Active {
			doubtful = append(doubtful, traceOf(id, traces))
		}
	}
	doubtful = append(doubtful, l.unlisted(traces)...)
	return doubtful[:min(len(doubtful), RolloutsListMax)]
}

// UnderWay are the rollout that has the lock, and those whose outcome the list has not heard of.
func (l *RolloutList) UnderWay() (ids []string) {
	if l.Active != "" {
		ids = append(ids, l.Active)
	}
	for _, line := range l.List {
		if line.EndedMs == 0 && line.ID != l.Active {
			ids = append(ids, line.ID)
		}
	}
	return ids
}

// unlisted are the traces of rollouts that have no line, except those that fell off the list.
func (l *RolloutList) unlisted(traces []TuningTrace) (unlisted []TuningTrace) {
	lines := map[string]bool{}
	for _, line := range l.List {
		lines[line.ID] = true
	}
	for _, trace := range traces {
		if lines[trace.ID] || trace.ID == l.Active || ValidateRolloutID(trace.ID) != nil {
			continue
		}
		if n := len(l.List); n >= RolloutsListMax && trace.StartedMs < l.List[n-1].StartedMs {
			continue // it fell off the list
		}
		unlisted = append(unlisted, trace)
	}
	return unlisted
}

// found puts the line of a rollout right, and the lock: it has it while it is under way, if
// no other has.
func (l *RolloutList) found(s RolloutSummary) {
	switch {
	case s.Phase.Over():
		l.Ended(s)
		l.note(s)
	case l.Active == "" || l.Active == s.ID:
		l.lock(s)
	default:
		l.note(s)
	}
}

// lost writes down that Restate has no state of a rollout: it holds nothing up. How a line
// of it ended stays, if that is known.
func (l *RolloutList) lost(trace TuningTrace) {
	if l.Active == trace.ID {
		l.Active, l.Since = "", 0
	}
	i := l.at(trace.ID)
	if i >= 0 && l.List[i].EndedMs > 0 {
		return
	}
	line := RolloutSummary{ID: trace.ID, By: trace.By, StartedMs: trace.StartedMs}
	if i >= 0 {
		line = l.List[i]
	}
	line.Phase, line.EndedMs = RolloutLost, max(1, line.StartedMs)
	line.Why = "Restate has no state of it"
	if trace.Newest > 0 {
		line.Why += fmt.Sprintf("; the versions of the tuning that it wrote are there, up to %d", trace.Newest)
	}
	l.note(line)
}

// Wrongs are the rollouts that the list is wrong about, as far as can be told from outside:
// those that have, or wait to give back, a lock and are not known; those that MySQL
// knows of and that have no line; those that are under way without the lock. look answers how a rollout
// stands; lateMs is how long a message may be on its way.
func (l *RolloutList) Wrongs(traces []TuningTrace, nowMs, lateMs int64,
	look func(id string) (Rollout, error)) (wrong []TuningTrace, err error) {
	for _, id := range l.UnderWay() {
		r, problem := look(id)
		switch {
		case errors.Is(problem, ErrNotFound):
			wrong = append(wrong, traceOf(id, traces))
		case problem != nil:
			return nil, problem
		case !r.Phase.Over() && l.Active == "" && nowMs > r.MovedMs+lateMs:
			wrong = append(wrong, TuningTrace{ID: id})
		}
	}
	wrong = append(wrong, l.unlisted(traces)...)
	return wrong[:min(len(wrong), RolloutsListMax)], nil
}

func traceOf(id string, traces []TuningTrace) TuningTrace {
	for _, t := range traces {
		if t.ID == id {
			return t
		}
	}
	return TuningTrace{ID: id}
}
