package handlers

import (
	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

// RolloutsService is the object's name in Restate. It has a single key, rolloutScope, because there is a single fleet.
const RolloutsService = "WeirRollouts"

const (
	rolloutScope = "fleet"
	rolloutsKey  = "rollouts"
)

// RolloutRollBack is the request to roll back a finished rollout.
type RolloutRollBack struct {
	ID string          `json:"id"`
	By controlplane.By `json:"by"`
}

// RolloutsRepair is the request to check rollouts of which the lock, or Restate's state, may be wrong.
type RolloutsRepair struct {
	Rollouts []rollout.Trace `json:"rollouts"` // at most rollout.ListMax
}

// rollouts is the object WeirRollouts: a rollout.Lock, with one transition per invocation.
type rollouts struct {
	work  *rollout.Work
	steps *stepper
}

func (o *rollouts) definition() restate.ServiceDefinition {
	return restate.NewObject(RolloutsService,
		durable("The lock of rollouts: one is under way at a time. Operate them with weirctl.")...).
		Handler("Start", restate.NewObjectHandler(o.start)).
		Handler("TakeBack", restate.NewObjectHandler(o.rollBack)).
		Handler("Ended", restate.NewObjectHandler(o.ended)).
		Handler("Repair", restate.NewObjectHandler(o.repair)).
		Handler("Standing", restate.NewObjectSharedHandler(o.standing, readOnly...))
}

func (o *rollouts) start(ctx restate.ObjectContext, req rollout.Start) (r rollout.Rollout, err error) {
	err = o.transition(ctx, func(l *rollout.Lock) (err error) {
		r, err = l.Start(o.on(ctx), req)
		return err
	})
	return r, err
}

func (o *rollouts) rollBack(ctx restate.ObjectContext, req RolloutRollBack) (r rollout.Rollout, err error) {
	err = o.transition(ctx, func(l *rollout.Lock) (err error) {
		r, err = l.RollBack(o.on(ctx), req.ID, req.By)
		return err
	})
	return r, err
}

func (o *rollouts) ended(ctx restate.ObjectContext, s rollout.Summary) (restate.Void, error) {
	return restate.Void{}, o.transition(ctx, func(l *rollout.Lock) error {
		l.Ended(s)
		return nil
	})
}

func (o *rollouts) repair(ctx restate.ObjectContext, req RolloutsRepair) (restate.Void, error) {
	return restate.Void{}, o.transition(ctx, func(l *rollout.Lock) error {
		return l.Repair(o.on(ctx), req.Rollouts)
	})
}

// transition makes a change of the lock and stores it. It also stores the lock if change was refused, because change
// may have corrected it.
func (o *rollouts) transition(ctx restate.ObjectContext, change func(*rollout.Lock) error) error {
	l, err := o.standing(ctx, restate.Void{})
	if err != nil {
		return err
	}
	err = change(&l)
	if err == nil || restate.IsTerminalError(err) || refusal(err) {
		restate.Set(ctx, rolloutsKey, l)
	}
	return finally(err)
}

func (o *rollouts) on(ctx restate.ObjectContext) rollout.LockSteps {
	return rollout.LockSteps{Steps: o.work.On(o.steps.on(ctx)), Objects: rolloutObjects{ctx}}
}

// standing returns a snapshot without waiting.
func (o *rollouts) standing(ctx restate.ObjectSharedContext, _ restate.Void) (rollout.Lock, error) {
	l, terminal := restate.Get[rollout.Lock](ctx, rolloutsKey)
	if terminal != nil {
		return l, terminal
	}
	return l, finally(l.Check())
}
