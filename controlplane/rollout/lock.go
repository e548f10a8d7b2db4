package rollout

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
)

const (
	// ListMax bounds the list of rollouts, and the number of rollouts whose state Restate keeps.
	ListMax = 100

	lockVersion = 2
)

// Lock is the fleet's lock, as one document: it starts rollouts one after the other, and only while no rollout is under
// way. The list of rollouts is in MySQL, see [Trace]. The document outlives builds, as a [Rollout] does.
//
// Its methods are the transitions. They decide from the document and the results of steps alone.
type Lock struct {
	Version int    `json:"version"`
	Active  string `json:"active,omitempty"` // ID of the rollout that is under way
	// Since is the epoch at which the rollout took the lock. An outcome with a lower epoch does not release it.
	Since int64 `json:"since,omitempty"`
}

// Objects calls the handlers of rollouts, each of which is a durable object. Callers may repeat each call.
type Objects interface {
	// Status returns the state of a rollout. The error wraps controlplane.ErrNotFound if there is none.
	Status(id string) (Rollout, error)
	// Restore calls [Rollout.Restore] of a rollout, and returns its state. The error wraps controlplane.ErrNotFound if
	// there is none.
	Restore(id string) (Rollout, error)
	// Begin calls [Rollout.Begin] of a rollout.
	Begin(id string, begin Begin) (Rollout, error)
	// RollBack calls [Rollout.RollBack] of a rollout.
	RollBack(id string, by controlplane.By) (Rollout, error)
	// Forget deletes the state in Restate of a rollout that is over.
	Forget(id string)
}

// LockSteps are the effects of the lock.
type LockSteps struct {
	Steps
	Objects
}

// Start is an operator's order to start a rollout.
type Start struct {
	ID   string          `json:"id"`
	Spec Spec            `json:"spec"`
	By   controlplane.By `json:"by"`

	// Forced describes the critical health of the fleet that the operator overrode; empty: health was not critical.
	Forced string `json:"forced,omitempty"`
}

// Validate reports the first error in the ID, the actor, the tuning or the plan.
func (s Start) Validate() error {
	if err := ValidateID(s.ID); err != nil {
		return err
	}
	if err := s.By.Validate(); err != nil {
		return err
	}
	return s.Spec.Validate()
}

// Check rejects a document of a newer build.
func (l *Lock) Check() error {
	if l.Version > lockVersion {
		return fmt.Errorf("%w: the lock of rollouts is version %d (this build reads up to %d): run the newer weir-control",
			controlplane.ErrConflict, l.Version, lockVersion)
	}
	l.Version = lockVersion
	return nil
}

// Start begins a rollout if no rollout is under way. It is idempotent for the same ID and spec, so a caller who got no
// answer can retry: it then returns the rollout's state. After an error that wraps controlplane.ErrInvalid or
// controlplane.ErrConflict the caller must save the document, because the lock may have been corrected.
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
	if !r.Phase.Over() && l.Active != r.ID { // a rollout that is over ended long ago, and changes nothing
		l.take(r.Summary())
		if !exists && len(traces) == ListMax {
			steps.Forget(traces[ListMax-1].ID)
		}
	}
	return r, nil
}

// exists reports whether a rollout exists, and reads the traces unless the rollout has the lock. A rollout that Restate
// and MySQL have lost does not exist, and loses the lock.
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

// admit returns the regions of the fleet if the rollout may start.
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
	if err != nil || start.Spec.Limits == nil {
		return regions, err
	}
	conflict, err := steps.limitsConflict(*start.Spec.Limits)
	if err == nil && conflict != "" {
		err = fmt.Errorf("%w: %s", controlplane.ErrChanged, conflict)
	}
	return regions, err
}

// vacant returns an error if another rollout is under way. A free lock may have been lost, or restored from an older
// copy. So vacant first reads the state of the rollouts that are under way according to MySQL.
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

// RollBack rolls back the newest rollout that is done. It rejects an older rollout, because that rollout's previous
// tuning was not in force before the newest rollout.
func (l *Lock) RollBack(steps LockSteps, id string, by controlplane.By) (Rollout, error) {
	if l.Active == id { // it may be over: then the lock was restored, and another rollout may have begun since
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
		return Rollout{}, fmt.Errorf("%w: rollout %s is done and newer: roll it back first, or start a rollout of the "+
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

// Ended releases the lock of a rollout that is over. A rollout that sent this when it was done, but is now being rolled
// back, keeps the lock until it ends again.
func (l *Lock) Ended(s Summary) {
	if s.Epoch >= l.Since {
		l.release(s.ID)
	}
}
