package handlers

import (
	"context"
	"errors"
	"fmt"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/tunings"
)

// durableRollout is rollout.RolloutSteps, RolloutBeginSteps and RolloutSaves for one invocation.
type durableRollout struct {
	ctx   restate.Context
	work  *rollout.RolloutWork
	steps *stepper
}

func (d *durableRollout) NowMs() (int64, error) { return now(d.ctx, d.steps, "now") }

func (d *durableRollout) Used(id string) (string, error) {
	return step(d.ctx, d.steps, "look whether the id was used", func(ctx context.Context) (string, error) {
		return d.work.Used(ctx, id)
	})
}

func (d *durableRollout) Newer(id string, saved int64) (string, error) {
	return step(d.ctx, d.steps, "look for a newer state", func(ctx context.Context) (string, error) {
		return d.work.Newer(ctx, id, saved)
	})
}

// Save answers a conflict as an answer: it is not tried again.
func (d *durableRollout) Save(row rollout.RolloutRow) error {
	conflict, err := step(d.ctx, d.steps, fmt.Sprintf("save %d", row.Saved), func(ctx context.Context) (string, error) {
		err := d.work.Save(ctx, row)
		if errors.Is(err, controlplane.ErrConflict) {
			return err.Error(), nil
		}
		return "", err
	})
	if err == nil && conflict != "" {
		err = failed(fmt.Errorf("%w: %s", controlplane.ErrConflict, conflict))
	}
	return err
}

func (d *durableRollout) InForce(regions []string) ([]tunings.RegionTuning, error) {
	return step(d.ctx, d.steps, "read the tuning in force",
		func(ctx context.Context) ([]tunings.RegionTuning, error) {
			return d.work.InForce(ctx, regions)
		})
}

func (d *durableRollout) Try(writes []tunings.TrialWrite, by controlplane.By) (tunings.TrialsWritten, error) {
	return step(d.ctx, d.steps, "try "+writes[len(writes)-1].ID,
		func(ctx context.Context) (tunings.TrialsWritten, error) {
			return d.work.Try(ctx, writes, by)
		})
}

func (d *durableRollout) Renew(ids []string, leaseMs int64) (tunings.TrialsRenewed, error) {
	return step(d.ctx, d.steps, "renew trials", func(ctx context.Context) (tunings.TrialsRenewed, error) {
		return d.work.Renew(ctx, ids, leaseMs)
	})
}

func (d *durableRollout) EndTrials(writes []tunings.TrialWrite) ([]int64, error) {
	return step(d.ctx, d.steps, "end trials", func(ctx context.Context) ([]int64, error) {
		return d.work.EndTrials(ctx, writes)
	})
}

func (d *durableRollout) Write(writes []tunings.TuningWrite) (tunings.TuningsWritten, error) {
	return step(d.ctx, d.steps, "write "+writes[len(writes)-1].ID,
		func(ctx context.Context) (tunings.TuningsWritten, error) {
			return d.work.Write(ctx, writes)
		})
}

func (d *durableRollout) Look(scope fleet.RolloutScope) (fleet.FleetLook, error) {
	return step(d.ctx, d.steps, "look at nodes", func(ctx context.Context) (fleet.FleetLook, error) {
		return d.work.Look(ctx, scope)
	})
}

func (d *durableRollout) Queries(regions []string, rails []queries.QueryRail) ([]queries.QueryValue, error) {
	return step(d.ctx, d.steps, "ask Prometheus", func(ctx context.Context) ([]queries.QueryValue, error) {
		return d.work.Queries(ctx, regions, rails)
	})
}
