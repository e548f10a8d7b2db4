package handlers

import (
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
		return restate.Void{}, failed(fmt.Errorf("%w: %d rollouts to look at (at most %d)", controlplane.ErrInvalid, n, rolloutsListMax))
	}
	for _, trace := range req.Rollouts {
		if err := controlplane.ValidateRolloutID(trace.ID); err != nil {
			return restate.Void{}, failed(err)
		}
		r, terminal := restate.Object[controlplane.Rollout](ctx, RolloutService, trace.ID, "Status").Request(restate.Void{})
		switch {
		case terminal == nil:
			l.found(r.Summary())
		case terminal.Code() == http.StatusNotFound:
			l.lost(trace)
		default:
			return restate.Void{}, terminal
		}
	}
	o.save(ctx, l)
	return restate.Void{}, nil
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
func (s RolloutsStanding) wrongs(traces []controlplane.TuningTrace, nowMs, lateMs int64, look func(id string) (controlplane.Rollout, error)) (wrong []controlplane.TuningTrace, err error) {
	lines := map[string]bool{}
	suspects := []controlplane.TuningTrace{}
	if s.Active != "" {
		suspects = append(suspects, controlplane.TuningTrace{ID: s.Active})
	}
	for _, line := range s.List {
		lines[line.ID] = true
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
	for _, trace := range traces {
		if lines[trace.ID] || trace.ID == s.Active || controlplane.ValidateRolloutID(trace.ID) != nil {
			continue
		}
		if n := len(s.List); n >= rolloutsListMax && trace.StartedMs < s.List[n-1].StartedMs {
			continue // it fell off the list
		}
		wrong = append(wrong, trace)
	}
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
