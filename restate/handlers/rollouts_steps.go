package handlers

import (
	"context"
	"fmt"
	"net/http"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

// durableList is rollout.RolloutListSteps for one invocation.
type durableList struct {
	ctx   restate.ObjectContext
	work  *rollout.RolloutWork
	steps *stepper
}

func (d *durableList) Traces() ([]rollout.TuningTrace, error) {
	return step(d.ctx, d.steps, "read which rollouts began or wrote",
		func(ctx context.Context) ([]rollout.TuningTrace, error) {
			return d.work.Traces(ctx, tracesMax)
		})
}

func (d *durableList) Regions() ([]string, error) {
	return step(d.ctx, d.steps, "list regions", func(ctx context.Context) ([]string, error) {
		return d.work.Regions(ctx)
	})
}

func (d *durableList) CheckSpec(spec rollout.RolloutSpec) (string, error) {
	return step(d.ctx, d.steps, "check the plan", func(ctx context.Context) (string, error) {
		return d.work.CheckSpec(ctx, spec)
	})
}

func (d *durableList) Status(id string) (rollout.Rollout, error) {
	r, err := askOf[rollout.Rollout](d, id, "Status", restate.Void{})
	return r, notFound(err)
}

// notFound is an error of a rollout's handler, which wraps controlplane.ErrNotFound where there is no rollout.
func notFound(err error) error {
	if t := restate.AsTerminalError(err); t != nil && t.Code() == http.StatusNotFound {
		return fmt.Errorf("%w: %w", controlplane.ErrNotFound, err)
	}
	return err
}

func (d *durableList) Restore(id string) (rollout.Rollout, error) {
	r, err := askOf[rollout.Rollout](d, id, "Restore", restate.Void{})
	return r, notFound(err)
}

func (d *durableList) Begin(id string, begin rollout.RolloutBegin) (rollout.Rollout, error) {
	return askOf[rollout.Rollout](d, id, "Begin", begin)
}

func (d *durableList) RollBack(id string, by controlplane.By) (rollout.Rollout, error) {
	return askOf[rollout.Rollout](d, id, "TakeBack", by)
}

// askOf calls a rollout's handler, and waits.
func askOf[O any](d *durableList, id, handler string, in any) (O, error) {
	out, err := restate.Object[O](d.ctx, RolloutService, id, handler).Request(in)
	if err != nil { // a nil TerminalError must not become a non-nil error
		return out, err
	}
	return out, nil
}
