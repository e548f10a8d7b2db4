package rollout

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
)

const (
	// TracesMax is how many of the newest versions of the tuning are looked at for the
	// rollouts that wrote them.
	TracesMax = 1000

	// ListMax is how many rollouts the list keeps, and how many a repair looks at.
	ListMax = 100

	listVersion = 2
)

// List is the list of rollouts and the lock of the fleet, as one document: rollouts start here, one after the
// other, and only while none is under way. It outlives builds, as a [Rollout] does.
//
// Its methods are the transitions. They decide from the document and the answers of steps alone.
type List struct {
	Version int    `json:"version"`
	Active  string `json:"active,omitempty"` // id of the rollout that is under way
	// its epoch when it took the lock: an outcome of before does not give it back
	Since int64     `json:"since,omitempty"`
	List  []Summary `json:"list,omitempty"` // newest first, at most ListMax
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
}

// ListSteps are the effects of the list.
type ListSteps struct {
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
func (l *List) Check() error {
	if l.Version > listVersion {
		return fmt.Errorf("%w: the list of rollouts is version %d and this build knows %d: run the newer weir-control",
			controlplane.ErrConflict, l.Version, listVersion)
	}
	l.Version = listVersion
	return nil
}

// Start begins a rollout where none is under way. Started again under its id it answers how it stands, so that a caller
// who got no answer may ask again. After an error that wraps controlplane.ErrInvalid or controlplane.ErrConflict the
// document stands, with what was found out about others.
func (l *List) Start(steps ListSteps, start Start) (Rollout, error) {
	if err := start.Validate(); err != nil {
		return Rollout{}, err
	}
	begin := Begin{Spec: start.Spec, By: start.By, Forced: start.Forced}
	exists, err := l.exists(steps, start.ID)
	if err != nil {
		return Rollout{}, err
	}
	if !exists {
		if begin.Regions, err = l.admit(steps, start); err != nil {
			return Rollout{}, err
		}
	}
	r, err := steps.Begin(start.ID, begin)
	if err == nil {
		l.began(r.Summary())
	}
	return r, err
}

// exists tells whether a rollout that the list has is there. One that Restate and MySQL have lost is not, and holds
// nothing up.
func (l *List) exists(steps ListSteps, id string) (bool, error) {
	if l.Active != id && l.at(id) < 0 {
		return false, nil
	}
	_, err := ask(steps, Trace{ID: id})
	if errors.Is(err, controlplane.ErrNotFound) {
		l.lost(Trace{ID: id})
		return false, nil
	}
	return err == nil, err
}

// admit answers the regions of the fleet for a rollout that may start.
func (l *List) admit(steps ListSteps, start Start) ([]string, error) {
	if err := l.vacant(steps, start.ID); err != nil {
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

// began gives the lock to a rollout that has begun. One that is over is of long ago, and changes nothing.
func (l *List) began(s Summary) {
	if !s.Phase.Over() && l.Active != s.ID {
		l.lock(s)
	}
}

// RollBack rolls the newest rollout that is done back. An older one's previous tuning is not what was in force before
// the newest.
func (l *List) RollBack(steps ListSteps, id string, by controlplane.By) (Rollout, error) {
	if l.Active == id { // unless it is over: then the list was restored, and another rollout may have begun since
		r, err := ask(steps, Trace{ID: id})
		if err != nil {
			return r, err
		}
		l.found(r.Summary())
	}
	if l.Active != id {
		if err := l.vacant(steps, id); err != nil {
			return Rollout{}, err
		}
	}
	done := slices.IndexFunc(l.List, func(s Summary) bool { return s.Phase == Done })
	if own := l.at(id); done >= 0 && own > done {
		return Rollout{}, fmt.Errorf("%w: rollout %s is done since: roll that one back first, or start a rollout of the "+
			"tuning you want", controlplane.ErrConflict, l.List[done].ID)
	}
	r, err := steps.RollBack(id, by)
	if err == nil {
		l.lock(r.Summary())
	}
	return r, err
}

// lock gives the lock to a rollout that is under way.
func (l *List) lock(s Summary) {
	l.Active, l.Since = s.ID, s.Epoch
	l.note(s)
}

// Ended takes the lock back from a rollout that is over. One that was done when it sent this, and is being rolled back
// by now, keeps it until it says so again.
func (l *List) Ended(s Summary) {
	if l.Active == s.ID {
		if s.Epoch < l.Since {
			return
		}
		l.Active, l.Since = "", 0
	}
	if i := l.at(s.ID); i >= 0 {
		l.List[i] = s
	}
}

// at is the place of a rollout's line; less than 0: it has none.
func (l *List) at(id string) int {
	return slices.IndexFunc(l.List, func(s Summary) bool { return s.ID == id })
}

// note writes a rollout's line, at the place of when it started.
func (l *List) note(s Summary) {
	if i := l.at(s.ID); i >= 0 {
		l.List[i] = s
		return
	}
	i := slices.IndexFunc(l.List, func(have Summary) bool { return have.StartedMs <= s.StartedMs })
	if i < 0 {
		i = len(l.List)
	}
	l.List = slices.Insert(l.List, i, s)
	l.List = l.List[:min(len(l.List), ListMax)]
}
