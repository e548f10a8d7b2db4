package rollout

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
)

const (
	// ListMax is how many rollouts are listed, and of how many Restate keeps the state.
	ListMax = 100

	lockVersion = 2
)

// Lock is the lock of the fleet, as one document: rollouts start here, one after the other, and only while none is
// under way. The list of rollouts is in MySQL, see [Trace]. The document outlives builds, as a [Rollout] does.
//
// Its methods are the transitions. They decide from the document and the answers of steps alone.
type Lock struct {
	Version int    `json:"version"`
	Active  string `json:"active,omitempty"` // id of the rollout that is under way
	// its epoch when it took the lock: an outcome of before does not give it back
	Since int64 `json:"since,omitempty"`
}

// Objects calls the handlers of rollouts, each of which is an object of its own. Each call may be made more than once.
type Objects interface {
	// Status is how a rollout stands. The error wraps controlplane.ErrNotFound where there is none.
	Status(id string) (Rollout, error)
	// Restore is [Rollout.Restore] of a rollout, and how it stands then. The error wraps controlplane.ErrNotFound where
	// there is none.
	Restore(id string) (Rollout, error)
	// Begin is [Rollout.Begin] of a rollout.
	Begin(id string, begin Begin) (Rollout, error)
	// RollBack is [Rollout.RollBack] of a rollout.
	RollBack(id string, by controlplane.By) (Rollout, error)
	// Forget has Restate delete the state of a rollout that is over.
	Forget(id string)
}

// LockSteps are the effects of the lock.
type LockSteps struct {
	Steps
	Objects
}

// Start asks for a rollout.
type Start struct {
	ID   string          `json:"id"`
	Spec Spec            `json:"spec"`
	By   controlplane.By `json:"by"`

	// Forced is what was critical of the fleet's health when an operator had it start all the same; empty: nothing was.
	Forced string `json:"forced,omitempty"`
}

// Validate reports what is wrong with the id, the actor, the tuning or the plan.
func (s Start) Validate() error {
	if err := ValidateID(s.ID); err != nil {
		return err
	}
	if err := s.By.Validate(); err != nil {
		return err
	}
	return s.Spec.Validate()
}

// Check refuses a document of a newer build.
func (l *Lock) Check() error {
	if l.Version > lockVersion {
		return fmt.Errorf("%w: the lock of rollouts is version %d and this build knows %d: run the newer weir-control",
			controlplane.ErrConflict, l.Version, lockVersion)
	}
	l.Version = lockVersion
	return nil
}

// Start begins a rollout where none is under way. Started again under its id it answers how it stands, so that a caller
// who got no answer may ask again. After an error that wraps controlplane.ErrInvalid or controlplane.ErrConflict the
// document stands, with what was found out about others.
func (l *Lock) Start(steps LockSteps, start Start) (Rollout, error) {
	if err := start.Validate(); err != nil {
		return Rollout{}, err
	}
	traces, exists, err := l.exists(steps, start.ID)
	if err != nil {
		return Rollout{}, err
	}
	begin := Begin{Spec: start.Spec, By: start.By, Forced: start.Forced}
	if !exists {
		if begin.Regions, err = l.admit(steps, traces, start); err != nil {
			return Rollout{}, err
		}
	}
	r, err := steps.Begin(start.ID, begin)
	if err != nil {
		return r, err
	}
	if !r.Phase.Over() && l.Active != r.ID { // one that is over is of long ago, and changes nothing
		l.take(r.Summary())
		if !exists && len(traces) == ListMax {
			steps.Forget(traces[ListMax-1].ID)
		}
	}
	return r, nil
}

// exists tells whether a rollout is there, and reads the traces unless it has the lock. One that Restate and MySQL have
// lost is not there, and holds nothing up.
func (l *Lock) exists(steps LockSteps, id string) (traces []Trace, exists bool, err error) {
	if l.Active == id {
		if exists, err = l.isThere(steps, traceOf(id, nil)); exists || err != nil {
			return nil, exists, err
		}
	}
	if traces, err = steps.traces(); err != nil || at(id, traces) < 0 {
		return traces, false, err
	}
	exists, err = l.isThere(steps, traceOf(id, traces))
	return traces, exists, err
}

func (l *Lock) isThere(steps LockSteps, trace Trace) (bool, error) {
	_, err := ask(steps, trace)
	if errors.Is(err, controlplane.ErrNotFound) {
		l.release(trace.ID)
		return false, nil
	}
	return err == nil, err
}

// admit answers the regions of the fleet for a rollout that may start.
func (l *Lock) admit(steps LockSteps, traces []Trace, start Start) ([]string, error) {
	if err := l.vacant(steps, traces, start.ID); err != nil {
		return nil, err
	}
	regions, err := steps.regions()
	if err != nil {
		return nil, err
	}
	problem, err := steps.checkSpec(start.Spec)
	if err == nil && problem != "" {
		err = fmt.Errorf("%w: %s", controlplane.ErrInvalid, problem)
	}
	return regions, err
}

// vacant refuses to start a rollout beside another that is under way. If the lock is free, it may have been restored or
// lost, so the rollouts that MySQL has as under way are asked first.
func (l *Lock) vacant(steps LockSteps, traces []Trace, id string) error {
	if l.Active == "" {
		underWay := slices.DeleteFunc(slices.Clone(traces), func(t Trace) bool { return t.Saved == 0 || t.Phase.Over() })
		if err := l.correct(steps, underWay); err != nil {
			return err
		}
	}
	if l.Active != "" && l.Active != id {
		return fmt.Errorf("%w: rollout %s is under way: wait for it, or abort it", controlplane.ErrConflict, l.Active)
	}
	return nil
}

// RollBack rolls the newest rollout that is done back. An older one's previous tuning is not what was in force before
// the newest.
func (l *Lock) RollBack(steps LockSteps, id string, by controlplane.By) (Rollout, error) {
	if l.Active == id { // unless it is over: then the lock was restored, and another rollout may have begun since
		if err := l.correct(steps, []Trace{traceOf(id, nil)}); err != nil {
			return Rollout{}, err
		}
	}
	var traces []Trace
	if l.Active == "" {
		var err error
		if traces, err = steps.traces(); err != nil {
			return Rollout{}, err
		}
	}
	if err := l.vacant(steps, traces, id); err != nil {
		return Rollout{}, err
	}
	done := slices.IndexFunc(traces, func(t Trace) bool { return t.Phase == Done })
	if done >= 0 && at(id, traces) > done {
		return Rollout{}, fmt.Errorf("%w: rollout %s is done since: roll that one back first, or start a rollout of the "+
			"tuning you want", controlplane.ErrConflict, traces[done].ID)
	}
	r, err := steps.RollBack(id, by)
	if err == nil {
		l.take(r.Summary())
	}
	return r, err
}

// take gives the lock to a rollout that is under way.
func (l *Lock) take(s Summary) { l.Active, l.Since = s.ID, s.Epoch }

// release takes the lock from a rollout.
func (l *Lock) release(id string) {
	if l.Active == id {
		l.Active, l.Since = "", 0
	}
}

// Ended takes the lock back from a rollout that is over. One that was done when it sent this, and is being rolled back
// by now, keeps it until it says so again.
func (l *Lock) Ended(s Summary) {
	if s.Epoch >= l.Since {
		l.release(s.ID)
	}
}
