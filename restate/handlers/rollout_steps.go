package handlers

import (
	"context"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
)

// durableRollout is controlplane.RolloutSteps and RolloutBeginSteps for one invocation.
type durableRollout struct {
	ctx   restate.Context
	work  *controlplane.RolloutWork
	steps *stepper
}

func (d *durableRollout) NowMs() (int64, error) { return now(d.ctx, d.steps, "now") }

func (d *durableRollout) Used(id string) (string, error) {
	return step(d.ctx, d.steps, "look whether the id was used", func(ctx context.Context) (string, error) {
		return d.work.Used(ctx, id)
	})
}

func (d *durableRollout) Record(trace controlplane.TuningTrace) error {
	_, err := step(d.ctx, d.steps, "record that it begins", func(ctx context.Context) (restate.Void, error) {
		return restate.Void{}, d.work.Record(ctx, trace)
	})
	return err
}

func (d *durableRollout) InForce(regions []string) ([]controlplane.RegionTuning, error) {
	return step(d.ctx, d.steps, "read the tuning in force",
		func(ctx context.Context) ([]controlplane.RegionTuning, error) {
			return d.work.InForce(ctx, regions)
		})
}

func (d *durableRollout) Write(writes []controlplane.TuningWrite) (controlplane.TuningsWritten, error) {
	return step(d.ctx, d.steps, "write "+writes[len(writes)-1].ID,
		func(ctx context.Context) (controlplane.TuningsWritten, error) {
			return d.work.Write(ctx, writes)
		})
}

func (d *durableRollout) Look(scope controlplane.RolloutScope) (controlplane.FleetLook, error) {
	return step(d.ctx, d.steps, "look at nodes", func(ctx context.Context) (controlplane.FleetLook, error) {
		return d.work.Look(ctx, scope)
	})
}

func (d *durableRollout) Queries(regions []string, rails []controlplane.QueryRail) ([]controlplane.QueryValue, error) {
	return step(d.ctx, d.steps, "ask Prometheus", func(ctx context.Context) ([]controlplane.QueryValue, error) {
		return d.work.Queries(ctx, regions, rails)
	})
}
