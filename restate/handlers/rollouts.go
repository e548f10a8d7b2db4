package handlers

import (
	"context"
	"fmt"
	"slices"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
)

// RolloutsService is the object's name in Restate. It has one key, rolloutScope: there is
// one tuning, of one fleet.
const RolloutsService = "WeirRollouts"

const (
	rolloutScope     = "fleet"
	rolloutsKey      = "rollouts"
	rolloutsVersion  = 2
	rolloutsListMax  = 100
	rolloutsStepName = "list regions"
)

// rolloutList is what the object keeps: the lock of the fleet, and who has had it.
type rolloutList struct {
	Version int    `json:"version"`
	Active  string `json:"active,omitempty"` // id of the rollout that is under way
	// its epoch when it took the lock: an outcome of before does not give it back
	Since int64                         `json:"since,omitempty"`
	List  []controlplane.RolloutSummary `json:"list,omitempty"` // newest first, at most rolloutsListMax
}

// RolloutStart asks for a rollout.
type RolloutStart struct {
	ID   string                   `json:"id"`
	Spec controlplane.RolloutSpec `json:"spec"`
	By   controlplane.By          `json:"by"`
}

// RolloutTakeBack asks for a finished rollout to be rolled back.
type RolloutTakeBack struct {
	ID string          `json:"id"`
	By controlplane.By `json:"by"`
}

// rollouts is the list of rollouts and their lock: rollouts start here, one after the other,
// and only while none is under way.
type rollouts struct {
	work  *controlplane.RolloutWork
	steps *stepper
}

func (o *rollouts) definition() restate.ServiceDefinition {
	return restate.NewObject(RolloutsService,
		durable("The list of rollouts; one is under way at a time. Use weirctl.")...).
		Handler("Start", restate.NewObjectHandler(o.start)).
		Handler("TakeBack", restate.NewObjectHandler(o.takeBack)).
		Handler("Ended", restate.NewObjectHandler(o.ended, restate.WithIngressPrivate(true))).
		Handler("Repair", restate.NewObjectHandler(o.repair)).
		Handler("Standing", restate.NewObjectSharedHandler(o.standing, restate.WithJournalRetention(0))).
		Handler("List", restate.NewObjectSharedHandler(o.list, restate.WithJournalRetention(0)))
}

// start begins a rollout where none is under way. Started again under its id it answers
// how it stands, so that a caller who got no answer may ask again.
func (o *rollouts) start(ctx restate.ObjectContext, req RolloutStart) (controlplane.Rollout, error) {
	l, err := o.load(ctx)
	if err != nil {
		return controlplane.Rollout{}, err
	}
	if err := validStart(req); err != nil {
		return controlplane.Rollout{}, failed(err)
	}
	known := l.Active == req.ID || l.at(req.ID) >= 0
	var regions []string
	if !known {
		if err := o.vacant(ctx, &l); err != nil {
			return controlplane.Rollout{}, err
		}
		if regions, err = step(ctx, o.steps, rolloutsStepName, func(ctx context.Context) ([]string, error) {
			return o.work.Regions(ctx)
		}); err != nil {
			return controlplane.Rollout{}, err
		}
		if err = o.checkQueries(ctx, req.Spec.Plan.Guardrails.Queries); err != nil {
			return controlplane.Rollout{}, err
		}
	}
	r, terminal := restate.Object[controlplane.Rollout](ctx, RolloutService, req.ID, "Begin").
		Request(RolloutBegin{Spec: req.Spec, By: req.By, Regions: regions})
	if terminal != nil {
		return controlplane.Rollout{}, terminal
	}
	if !r.Phase.Over() && l.Active != r.ID { // else it is one of long ago, which changes nothing
		l.lock(r.Summary())
		o.save(ctx, l)
	}
	return r, nil
}

func (o *rollouts) checkQueries(ctx restate.ObjectContext, rails []controlplane.QueryRail) error {
	if len(rails) == 0 {
		return nil
	}
	problem, err := step(ctx, o.steps, "check queries", func(ctx context.Context) (string, error) {
		return o.work.CheckQueries(ctx, rails)
	})
	if err == nil && problem != "" {
		err = failed(fmt.Errorf("%w: %s", controlplane.ErrInvalid, problem))
	}
	return err
}

func validStart(req RolloutStart) error {
	if err := controlplane.ValidateRolloutID(req.ID); err != nil {
		return err
	}
	if err := req.By.Validate(); err != nil {
		return err
	}
	return req.Spec.Validate()
}

// takeBack rolls the newest rollout that is done back. An older one's previous tuning
// is not what was in force before the newest.
func (o *rollouts) takeBack(ctx restate.ObjectContext, req RolloutTakeBack) (controlplane.Rollout, error) {
	l, err := o.load(ctx)
	if err != nil {
		return controlplane.Rollout{}, err
	}
	if l.Active != req.ID {
		if err := o.vacant(ctx, &l); err != nil {
			return controlplane.Rollout{}, err
		}
	}
	newest := slices.IndexFunc(l.List, func(s controlplane.RolloutSummary) bool {
		return s.Phase == controlplane.RolloutDone
	})
	if newest >= 0 && l.List[newest].ID != req.ID &&
		slices.ContainsFunc(l.List[newest:], func(s controlplane.RolloutSummary) bool { return s.ID == req.ID }) {
		return controlplane.Rollout{},
			failed(
				fmt.Errorf("%w: rollout %s is done since: roll that one back first, or start a rollout of the tuning you want",
					controlplane.ErrConflict, l.List[newest].ID))
	}
	r, terminal := restate.Object[controlplane.Rollout](ctx, RolloutService, req.ID, "TakeBack").Request(req.By)
	if terminal != nil {
		return controlplane.Rollout{}, terminal
	}
	l.lock(r.Summary())
	o.save(ctx, l)
	return r, nil
}

// ended takes the lock back.
func (o *rollouts) ended(ctx restate.ObjectContext, s controlplane.RolloutSummary) (restate.Void, error) {
	l, err := o.load(ctx)
	if err != nil {
		return restate.Void{}, err
	}
	if l.end(s) {
		o.save(ctx, l)
	}
	return restate.Void{}, nil
}

// lock gives the lock to a rollout that is under way.
func (l *rolloutList) lock(s controlplane.RolloutSummary) {
	l.Active, l.Since = s.ID, s.Epoch
	l.note(s)
}

// end takes the lock back from a rollout that is over. One that was done when it sent
// this, and is being rolled back by now, keeps it until it says so again.
func (l *rolloutList) end(s controlplane.RolloutSummary) (changed bool) {
	if l.Active == s.ID {
		if s.Epoch < l.Since {
			return false
		}
		l.Active, l.Since = "", 0
	}
	if i := l.at(s.ID); i >= 0 {
		l.List[i] = s
	}
	return true
}

// list is a snapshot. It waits for nothing.
func (o *rollouts) list(ctx restate.ObjectSharedContext, _ restate.Void) ([]controlplane.RolloutSummary, error) {
	l, err := o.load(ctx)
	return l.List, err
}

// at is the place of a rollout's line; less than 0: it has none.
func (l *rolloutList) at(id string) int {
	return slices.IndexFunc(l.List, func(s controlplane.RolloutSummary) bool { return s.ID == id })
}

// note writes a rollout's line, at the place of when it started.
func (l *rolloutList) note(s controlplane.RolloutSummary) {
	if i := l.at(s.ID); i >= 0 {
		l.List[i] = s
		return
	}
	i := slices.IndexFunc(l.List, func(have controlplane.RolloutSummary) bool { return have.StartedMs <= s.StartedMs })
	if i < 0 {
		i = len(l.List)
	}
	l.List = slices.Insert(l.List, i, s)
	l.List = l.List[:min(len(l.List), rolloutsListMax)]
}

func (o *rollouts) load(ctx restate.ObjectSharedContext) (rolloutList, error) {
	l, terminal := restate.Get[rolloutList](ctx, rolloutsKey)
	if terminal != nil {
		return l, terminal
	}
	if l.Version > rolloutsVersion {
		return l, failed(fmt.Errorf("%w: the list of rollouts is version %d and this build knows %d: run the newer "+
			"weir-control", controlplane.ErrConflict, l.Version, rolloutsVersion))
	}
	return l, nil
}

func (o *rollouts) save(ctx restate.ObjectContext, l rolloutList) {
	l.Version = rolloutsVersion
	restate.Set(ctx, rolloutsKey, l)
}
