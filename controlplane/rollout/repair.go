package rollout

import (
	"errors"
	"fmt"

	"github.com/weirhq/weir/controlplane"
)

// Repair reads the state of each of the rollouts, and corrects their lines and the lock. Use it after state may have
// been lost, or restored in parts, while MySQL kept its own.
func (l *List) Repair(steps ListSteps, rollouts []Trace) error {
	if n := len(rollouts); n > ListMax {
		return fmt.Errorf("%w: %d rollouts to look at (at most %d)", controlplane.ErrInvalid, n, ListMax)
	}
	for _, trace := range rollouts {
		if err := ValidateID(trace.ID); err != nil {
			return err
		}
	}
	return l.correct(steps, rollouts)
}

// ask returns the state of a rollout. If Restate has lost the rollout, or has an older state of it than MySQL, the
// rollout is restored first; if MySQL lacks its outcome, the outcome is saved.
func ask(steps ListSteps, trace Trace) (Rollout, error) {
	r, err := steps.Status(trace.ID)
	if errors.Is(err, controlplane.ErrNotFound) || err == nil && (r.Saved < trace.Saved || trace.unsaved(&r)) {
		return steps.Restore(trace.ID)
	}
	return r, err
}

// correct asks each rollout how it stands.
func (l *List) correct(steps ListSteps, rollouts []Trace) error {
	for _, trace := range rollouts {
		r, err := ask(steps, trace)
		switch {
		case err == nil:
			l.found(r.Summary())
		case errors.Is(err, controlplane.ErrNotFound):
			l.lost(trace)
		default:
			return err
		}
	}
	return nil
}

// vacant refuses to start a rollout beside another that is under way. A list without the lock may have been restored,
// or lost: those that it may be wrong about are asked first.
func (l *List) vacant(steps ListSteps, id string) error {
	if l.Active == "" {
		traces, err := steps.traces()
		if err != nil {
			return err
		}
		if err := l.correct(steps, l.doubtful(traces)); err != nil {
			return err
		}
	}
	if l.Active != "" && l.Active != id {
		return fmt.Errorf("%w: rollout %s is under way: wait for it, or abort it", controlplane.ErrConflict, l.Active)
	}
	return nil
}

// doubtful are the lines of rollouts that are under way without the lock, those of which MySQL has another end, or
// none, and the traces of those without a line.
func (l *List) doubtful(traces []Trace) (doubtful []Trace) {
	for _, id := range l.UnderWay() {
		if id != l.Active {
			doubtful = append(doubtful, traceOf(id, traces))
		}
	}
	for _, trace := range traces {
		if l.endedOtherwise(trace) {
			doubtful = append(doubtful, trace)
		}
	}
	doubtful = append(doubtful, l.unlisted(traces)...)
	return doubtful[:min(len(doubtful), ListMax)]
}

// endedOtherwise tells that the list has an end of a rollout that MySQL does not have.
func (l *List) endedOtherwise(trace Trace) bool {
	i := l.at(trace.ID)
	return trace.Saved > 0 && trace.ID != l.Active && i >= 0 && l.List[i].EndedMs > 0 && l.List[i].Phase != trace.Phase
}

// UnderWay are the rollout that has the lock, and those whose outcome the list has not heard of.
func (l *List) UnderWay() (ids []string) {
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
func (l *List) unlisted(traces []Trace) (unlisted []Trace) {
	lines := map[string]bool{}
	for _, line := range l.List {
		lines[line.ID] = true
	}
	for _, trace := range traces {
		if lines[trace.ID] || trace.ID == l.Active || ValidateID(trace.ID) != nil {
			continue
		}
		if n := len(l.List); n >= ListMax && trace.StartedMs < l.List[n-1].StartedMs {
			continue // it fell off the list
		}
		unlisted = append(unlisted, trace)
	}
	return unlisted
}

// found corrects the line of a rollout whose state was just read, and the lock. A rollout under way gets the lock if no
// other has it. A rollout that is over loses it, even if its epoch is lower than when it got the lock: only the list
// rolls back finished rollouts, so it cannot be under way again.
func (l *List) found(s Summary) {
	switch {
	case s.Phase.Over():
		if l.Active == s.ID {
			l.Active, l.Since = "", 0
		}
		l.note(s)
	case l.Active == "" || l.Active == s.ID:
		l.lock(s)
	default:
		l.note(s)
	}
}

// lost records that neither Restate nor MySQL has a state of a rollout, and releases its lock. If its line has an
// outcome, the line stays.
func (l *List) lost(trace Trace) {
	if l.Active == trace.ID {
		l.Active, l.Since = "", 0
	}
	i := l.at(trace.ID)
	if i >= 0 && l.List[i].EndedMs > 0 {
		return
	}
	line := Summary{ID: trace.ID, By: trace.By, StartedMs: trace.StartedMs}
	if i >= 0 {
		line = l.List[i]
	}
	line.Phase, line.EndedMs = Lost, max(1, line.StartedMs)
	line.Why = "neither Restate nor MySQL has a state of it"
	if trace.Newest > 0 {
		line.Why += fmt.Sprintf("; the versions of the tuning that it wrote are there, up to %d", trace.Newest)
	}
	l.note(line)
}

// looksMax is how many rollouts besides those under way are looked at for an older state than MySQL has.
const looksMax = 10

// Wrongs returns the rollouts for which the list, or Restate's state, seems to be wrong, so that [List.Repair] should
// look at them:
//
//   - rollouts that the list has as under way, and that do not exist,
//   - rollouts that have the lock though they are over, or are under way without it,
//   - rollouts in MySQL that have no line in the list, or another outcome there,
//   - rollouts of which MySQL has a newer state.
//
// look returns the state of a rollout. A message, such as an outcome, may be on its way for lateMs, so a rollout that
// has moved since is not reported.
func (l *List) Wrongs(traces []Trace, nowMs, lateMs int64,
	look func(id string) (Rollout, error)) (wrong []Trace, err error) {
	for _, id := range l.UnderWay() {
		trace := traceOf(id, traces)
		r, problem := look(id)
		late := nowMs > r.MovedMs+lateMs
		switch {
		case errors.Is(problem, controlplane.ErrNotFound):
			wrong = append(wrong, trace)
		case problem != nil:
			return nil, problem
		case late && (r.Saved < trace.Saved || !r.Phase.Over() && l.Active == "" || r.Phase.Over() && r.Epoch < l.Since):
			wrong = append(wrong, trace)
		}
	}
	older, err := l.older(traces, nowMs, lateMs, look)
	if err != nil {
		return nil, err
	}
	wrong = append(append(wrong, older...), l.unlisted(traces)...)
	return wrong[:min(len(wrong), ListMax)], nil
}

// older are the traces of rollouts with a line of an end, where MySQL has another end, or a newer state than Restate.
func (l *List) older(traces []Trace, nowMs, lateMs int64,
	look func(id string) (Rollout, error)) (older []Trace, err error) {
	looks := 0
	for _, trace := range traces {
		i := l.at(trace.ID)
		if trace.Saved == 0 || trace.ID == l.Active || i < 0 || l.List[i].EndedMs == 0 {
			continue
		}
		if looks++; looks > looksMax && l.List[i].Phase == trace.Phase {
			continue
		}
		r, problem := look(trace.ID)
		switch {
		case errors.Is(problem, controlplane.ErrNotFound):
			older = append(older, trace)
		case problem != nil:
			return nil, problem
		case nowMs > r.MovedMs+lateMs && (r.Saved < trace.Saved || r.Phase != l.List[i].Phase || trace.unsaved(&r)):
			older = append(older, trace)
		}
	}
	return older, nil
}

func traceOf(id string, traces []Trace) Trace {
	for _, t := range traces {
		if t.ID == id {
			return t
		}
	}
	return Trace{ID: id}
}

// unsaved tells that MySQL has another phase of an ended rollout, of the same save: an operator has ended it while
// MySQL did not answer.
func (trace Trace) unsaved(r *Rollout) bool {
	return trace.Saved > 0 && r.Saved == trace.Saved && r.Phase.Over() && r.Phase != trace.Phase
}
