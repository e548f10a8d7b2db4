package rollout

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
)

// Trace is a rollout in MySQL: a line of the list of rollouts, and the number of its saves.
type Trace struct {
	Summary
	Saved int64 `json:"saved,omitempty"` // 0: never, by an older build
}

// at returns the index of a rollout among traces; less than 0: not found.
func at(id string, traces []Trace) int {
	return slices.IndexFunc(traces, func(t Trace) bool { return t.ID == id })
}

// traceOf returns the trace of a rollout, or a trace with only its ID if MySQL has none.
func traceOf(id string, traces []Trace) Trace {
	if i := at(id, traces); i >= 0 {
		return traces[i]
	}
	return Trace{Summary: Summary{ID: id}}
}

// differs reports whether MySQL has a newer state of a rollout than Restate, or another outcome. That happens if an
// operator ended the rollout while MySQL was down, or if MySQL was restored from an older copy.
func (t Trace) differs(r *Rollout) bool {
	return r.Saved < t.Saved || t.Saved > 0 && r.Phase.Over() && r.Phase != t.Phase
}

// ask returns the state of a rollout. If Restate has lost the rollout, or MySQL has another state of it, the rollout is
// first restored or saved.
func ask(steps LockSteps, trace Trace) (Rollout, error) {
	r, err := steps.Status(trace.ID)
	if errors.Is(err, controlplane.ErrNotFound) || err == nil && trace.differs(&r) {
		return steps.Restore(trace.ID)
	}
	return r, err
}

// Repair reads the state of each of the rollouts, which restores any that Restate has lost or has an old state of, and
// corrects the lock.
func (l *Lock) Repair(steps LockSteps, rollouts []Trace) error {
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

// correct reads the state of each rollout. A rollout that is under way gets the lock if no other rollout has it. A
// rollout that is over, or that neither Restate nor MySQL has, loses the lock, even if its epoch is lower than when it
// got the lock: only the lock rolls back finished rollouts, so it cannot be under way again.
func (l *Lock) correct(steps LockSteps, rollouts []Trace) error {
	for _, trace := range rollouts {
		r, err := ask(steps, trace)
		switch {
		case errors.Is(err, controlplane.ErrNotFound), err == nil && r.Phase.Over():
			l.release(trace.ID)
		case err != nil:
			return err
		case l.Active == "" || l.Active == r.ID:
			l.take(r.Summary())
		}
	}
	return nil
}

// looksMax is how many of the newest rollouts Wrongs looks at even if they are over. Once it has found a wrong rollout,
// it looks at all of them.
const looksMax = 10

// Wrongs returns the rollouts for which the lock, or Restate's state, seems to be wrong, so that [Lock.Repair] should
// look at them:
//
//   - rollouts that have the lock though they are over or do not exist, or that are under way without it,
//   - rollouts that Restate has lost, or of which it has another state than MySQL.
//
// look returns the state of a rollout. A message, such as an outcome, may be on its way for lateMs, so a rollout that
// has moved since is not reported.
func (l *Lock) Wrongs(traces []Trace, nowMs, lateMs int64,
	look func(id string) (Rollout, error)) (wrong []Trace, err error) {
	if l.Active != "" && at(l.Active, traces) < 0 {
		traces = append(slices.Clip(traces), traceOf(l.Active, traces))
	}
	for i, trace := range traces {
		has := trace.ID == l.Active
		if !has && (trace.Saved == 0 || trace.Phase.Over() && i >= looksMax && len(wrong) == 0) {
			continue
		}
		r, err := look(trace.ID)
		switch {
		case errors.Is(err, controlplane.ErrNotFound):
			wrong = append(wrong, trace)
		case err != nil:
			return nil, err
		case nowMs <= r.MovedMs+lateMs:
		case trace.differs(&r) || !r.Phase.Over() && l.Active == "" || has && r.Phase.Over() && r.Epoch < l.Since:
			wrong = append(wrong, trace)
		}
	}
	return wrong[:min(len(wrong), ListMax)], nil
}
