package handlers

import (
	"slices"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

// RolloutsService is the object's name in Restate. It has one key, rolloutScope: there is
// one tuning, of one fleet.
const RolloutsService = "WeirRollouts"

const (
	rolloutScope = "fleet"
	rolloutsKey  = "rollouts"
)

// RolloutRollBack asks for a finished rollout to be rolled back.
type RolloutRollBack struct {
	ID string          `json:"id"`
	By controlplane.By `json:"by"`
}

// RolloutsRepair asks the list to look at rollouts that it may be wrong about.
type RolloutsRepair struct {
	Rollouts []rollout.Trace `json:"rollouts"` // at most rollout.ListMax
}

// rollouts is the object WeirRollouts: a rollout.List, one transition an invocation.
type rollouts struct {
	work  *rollout.Work
	steps *stepper
}

func (o *rollouts) definition() restate.ServiceDefinition {
	return restate.NewObject(RolloutsService,
		durable("The list of rollouts; one is under way at a time. Operate them with weirctl.")...).
		Handler("Start", restate.NewObjectHandler(o.start)).
		Handler("TakeBack", restate.NewObjectHandler(o.rollBack)).
		Handler("Ended", restate.NewObjectHandler(o.ended)).
		Handler("Repair", restate.NewObjectHandler(o.repair)).
		Handler("Standing", restate.NewObjectSharedHandler(o.standing, readOnly...)).
		Handler("List", restate.NewObjectSharedHandler(o.list, readOnly...))
}

func (o *rollouts) start(ctx restate.ObjectContext, req rollout.Start) (r rollout.Rollout, err error) {
	err = o.transition(ctx, func(l *rollout.List) (err error) {
		r, err = l.Start(o.on(ctx), req)
		return err
	})
	return r, err
}

func (o *rollouts) rollBack(ctx restate.ObjectContext, req RolloutRollBack) (r rollout.Rollout, err error) {
	err = o.transition(ctx, func(l *rollout.List) (err error) {
		r, err = l.RollBack(o.on(ctx), req.ID, req.By)
		return err
	})
	return r, err
}

func (o *rollouts) ended(ctx restate.ObjectContext, s rollout.Summary) (restate.Void, error) {
	return restate.Void{}, o.transition(ctx, func(l *rollout.List) error {
		l.Ended(s)
		return nil
	})
}

func (o *rollouts) repair(ctx restate.ObjectContext, req RolloutsRepair) (restate.Void, error) {
	return restate.Void{}, o.transition(ctx, func(l *rollout.List) error {
		return l.Repair(o.on(ctx), req.Rollouts)
	})
}

// transition writes the list down that change leaves. It does so where change was refused, too: the list may have found
// out on the way who has the lock.
func (o *rollouts) transition(ctx restate.ObjectContext, change func(*rollout.List) error) error {
	l, err := loadList(ctx)
	if err != nil {
		return err
	}
	before := slices.Clone(l.List)
	err = change(&l)
	if err == nil || restate.IsTerminalError(err) || refusal(err) {
		restate.Set(ctx, rolloutsKey, l)
		forgetOld(ctx, before, l.List)
	}
	return finally(err)
}

// forgetOld deletes the state of rollouts that are no longer in the list, because each has up to a
// third of a megabyte.
func forgetOld(ctx restate.ObjectContext, before, after []rollout.Summary) {
	for _, line := range before {
		listed := func(s rollout.Summary) bool { return s.ID == line.ID }
		if !slices.ContainsFunc(after, listed) {
			restate.ObjectSend(ctx, RolloutService, line.ID, "Forget").Send(restate.Void{})
		}
	}
}

func (o *rollouts) on(ctx restate.ObjectContext) rollout.ListSteps {
	return rollout.ListSteps{Steps: o.work.On(o.steps.on(ctx)), Objects: rolloutObjects{ctx}}
}

// list is a snapshot. It waits for nothing.
func (o *rollouts) list(ctx restate.ObjectSharedContext, _ restate.Void) ([]rollout.Summary, error) {
	l, err := loadList(ctx)
	return l.List, err
}

// standing is a snapshot, with the lock. It waits for nothing.
func (o *rollouts) standing(ctx restate.ObjectSharedContext, _ restate.Void) (rollout.List, error) {
	return loadList(ctx)
}

func loadList(ctx restate.ObjectSharedContext) (rollout.List, error) {
	l, terminal := restate.Get[rollout.List](ctx, rolloutsKey)
	if terminal != nil {
		return l, terminal
	}
	return l, finally(l.Check())
}
