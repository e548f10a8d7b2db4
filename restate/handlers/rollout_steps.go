package handlers

import (
	"context"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
)

// durableRollout is controlplane.RolloutSteps for one invocation.
type durableRollout struct {
	ctx   restate.Context
	work  *controlplane.RolloutWork
	steps *stepper
}

func (d *durableRollout) NowMs() (int64, error) { return now(d.ctx, d.steps, "now") }

func (d *durableRollout) Previous(regions []string) ([]string, error) {
	return step(d.ctx, d.steps, "read the tuning before", func(ctx context.Context) ([]string, error) {
		return d.work.Previous(ctx, regions)
	})
}

func (d *durableRollout) Write(writes []controlplane.TuningWrite) ([]int64, error) {
	return step(d.ctx, d.steps, "write "+writes[len(writes)-1].ID, func(ctx context.Context) ([]int64, error) {
		return d.work.Write(ctx, writes)
	})
}

func (d *durableRollout) Health(scope controlplane.RolloutScope, like *controlplane.HealthSnapshot) (controlplane.HealthSnapshot, error) {
	return step(d.ctx, d.steps, "look at health", func(ctx context.Context) (controlplane.HealthSnapshot, error) {
		return d.work.Health(ctx, scope, like)
	})
}

func (d *durableRollout) Queries(scope controlplane.RolloutScope, rails []controlplane.QueryRail) ([]controlplane.QueryValue, error) {
	return step(d.ctx, d.steps, "ask Prometheus", func(ctx context.Context) ([]controlplane.QueryValue, error) {
		return d.work.Queries(ctx, scope, rails)
	})
}

func (d *durableRollout) Applied(scope controlplane.RolloutScope, versions map[string]int64) (controlplane.Applied, error) {
	return step(d.ctx, d.steps, "look who has applied it", func(ctx context.Context) (controlplane.Applied, error) {
		return d.work.Applied(ctx, scope, versions)
	})
}
