package handlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
)

// RolloutsStanding is the list of rollouts, and who has the lock.
type RolloutsStanding struct {
	Active string                        `json:"active,omitempty"`
	List   []controlplane.RolloutSummary `json:"list,omitempty"`
}

// RolloutsRepair asks the list to look at rollouts that it may be wrong about. Those that
// wrote versions of the tuning have a trace of it.
type RolloutsRepair struct {
	Rollouts []controlplane.TuningTrace `json:"rollouts"` // at most rolloutsListMax
}

// standing is a snapshot. It does not wait.
func (o *rollouts) standing(ctx restate.ObjectSharedContext, _ restate.Void) (RolloutsStanding, error) {
	l, err := o.load(ctx)
	return RolloutsStanding{l.Active, l.List}, err
}

// repair asks each rollout how it stands, and puts list and lock right: state may have been
// lost, or restored in parts, while MySQL kept what was written.
func (o *rollouts) repair(ctx restate.ObjectContext, req RolloutsRepair) (restate.Void, error) {
	l, err := o.load(ctx)
	if err != nil {
		return restate.Void{}, err
	}
	if n := len(req.Rollouts); n > rolloutsListMax {
		return restate.Void{}, failed(fmt.Errorf("%w: %d rollouts to look at (at most %d)", controlplane.ErrInvalid, n,
			rolloutsListMax))
	}
	if err := l.correct(ctx, req.Rollouts); err != nil {
		return restate.Void{}, err
	}
	o.save(ctx, l)
	return restate.Void{}, nil
}

// correct asks each rollout how it stands.
func (l *rolloutList) correct(ctx restate.ObjectContext, rollouts []controlplane.TuningTrace) error {
	for _, trace := range rollouts {
		if err := controlplane.ValidateRolloutID(trace.ID); err != nil {
			return failed(err)
		}
		r, terminal := restate.Object[controlplane.Rollout](ctx, RolloutService, trace.ID, "Status").Request(restate.Void{})
		switch {
		case terminal == nil:
			l.found(r.Summary())
		case terminal.Code() == http.StatusNotFound:
			l.lost(trace)
		default:
			return terminal
		}
	}
	return nil
}

// vacant refuses to start a rollout beside one that is under way. A list without the lock may have been restored, or
// lost: those that it may be wrong about are asked first.
func (o *rollouts) vacant(ctx restate.ObjectContext, l *rolloutList) error {
	if l.Active == "" {
		traces, err := step(ctx, o.steps, "read who wrote tunings",
			func(ctx context.Context) ([]controlplane.TuningTrace, error) {
				return o.work.Traces(ctx, tracesMax)
			})
		if err != nil {
			return err
		}
		if doubtful := (RolloutsStanding{List: l.List}).doubtful(traces); len(doubtful) > 0 {
			if err := l.correct(ctx, doubtful); err != nil {
				return err
			}
			o.save(ctx, *l)
		}
	}
	if l.Active != "" {
		return failed(fmt.Errorf("%w: rollout %s is under way: wait for it, or abort it", controlplane.ErrConflict, l.Active))
	}
	return nil
}

// doubtful are the lines of rollouts that are under way without the lock, and the traces of those without a line.
func (s RolloutsStanding) doubtful(traces []controlplane.TuningTrace) (doubtful []controlplane.TuningTrace) {
	for _, line := range s.List {
		if line.EndedMs == 0 && line.ID != s.Active {
			doubtful = append(doubtful, traceOf(line.ID, traces))
		}
	}
	doubtful = append(doubtful, s.unlisted(traces)...)
	return doubtful[:min(len(doubtful), rolloutsListMax)]
}

// unlisted are the traces of rollouts that have no line, except those that fell off the list.
func (s RolloutsStanding) unlisted(traces []controlplane.TuningTrace) (unlisted []controlplane.TuningTrace) {
	lines := map[string]bool{}
	for _, line := range s.List {
		lines[line.ID] = true
	}
	for _, trace := range traces {
		if lines[trace.ID] || trace.ID == s.Active || controlplane.ValidateRolloutID(trace.ID) != nil {
			continue
		}
		if n := len(s.List); n >= rolloutsListMax && trace.StartedMs < s.List[n-1].StartedMs {
			continue // it fell off the list
		}
		unlisted = append(unlisted, trace)
	}
	return unlisted
}

// found puts the line of a rollout right, and the lock: it has it while it is under way, if
// no other has.
func (l *rolloutList) found(s controlplane.RolloutSummary) {
	switch {
	case s.Phase.Over():
		l.end(s)
		l.note(s)
	case l.Active == "" || l.Active == s.ID:
		l.lock(s)
	default:
		l.note(s)
	}
}

// lost writes down that Restate has no state of a rollout: it holds nothing up. How a line
// of it ended stays, if that is known.
func (l *rolloutList) lost(trace controlplane.TuningTrace) {
	if l.Active == trace.ID {
		l.Active, l.Since = "", 0
	}
	i := l.at(trace.ID)
	if i >= 0 && l.List[i].EndedMs > 0 {
		return
	}
	line := controlplane.RolloutSummary{ID: trace.ID, By: trace.By, StartedMs: trace.StartedMs}
	if i >= 0 {
		line = l.List[i]
	}
	line.Phase, line.EndedMs = controlplane.RolloutLost, max(1, line.StartedMs)
	line.Why = "Restate has no state of it"
	if trace.Newest > 0 {
		line.Why += fmt.Sprintf("; the versions of the tuning that it wrote are there, up to %d", trace.Newest)
	}
	l.note(line)
}

// wrongs are the rollouts that the list is wrong about, as far as can be told from outside:
// those that have, or wait to give back, a lock and are not known; those that wrote versions
// and have no line; those that are under way without the lock. look answers how a rollout
// stands; late is how long a message may be on its way.
func (s RolloutsStanding) wrongs(traces []controlplane.TuningTrace, nowMs, lateMs int64,
	look func(id string) (controlplane.Rollout, error)) (wrong []controlplane.TuningTrace, err error) {
	suspects := []controlplane.TuningTrace{}
	if s.Active != "" {
		suspects = append(suspects, controlplane.TuningTrace{ID: s.Active})
	}
	for _, line := range s.List {
		if line.EndedMs == 0 && line.ID != s.Active {
			suspects = append(suspects, controlplane.TuningTrace{ID: line.ID})
		}
	}
	for _, suspect := range suspects {
		r, problem := look(suspect.ID)
		switch {
		case errors.Is(problem, controlplane.ErrNotFound):
			wrong = append(wrong, traceOf(suspect.ID, traces))
		case problem != nil:
			return nil, problem
		case !r.Phase.Over() && s.Active == "" && nowMs > r.MovedMs+lateMs:
			wrong = append(wrong, suspect)
		}
	}
	wrong = append(wrong, s.unlisted(traces)...)
	return wrong[:min(len(wrong), rolloutsListMax)], nil
}

func traceOf(id string, traces []controlplane.TuningTrace) controlplane.TuningTrace {
	for _, t := range traces {
		if t.ID == id {
			return t
		}
	}
	return controlplane.TuningTrace{ID: id}
}
