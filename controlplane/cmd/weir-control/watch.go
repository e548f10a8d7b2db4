package main

import (
	"context"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/store"
	"github.com/weirhq/weir/restate/handlers"
)

// watchTimeout bounds one look.
const watchTimeout = 10 * time.Second

// watchFleet keeps the metrics of the nodes. The watch of MySQL reports
// that it cannot look.
func watchFleet(ctx context.Context, liveWithin time.Duration, steps *store.Store, metrics *controlplane.Metrics) {
	controlplane.Every(ctx, watchEvery, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, watchTimeout)
		defer cancel()
		fleet, err := controlplane.ListFleet(ctx, steps, liveWithin)
		if err == nil {
			metrics.FleetSeen(fleet)
		}
		return err
	})
}

// watchRollouts keeps the metrics of the rollout under way; at most one is. The
// keeper of the schedules reports that it cannot look.
func watchRollouts(ctx context.Context, rollouts handlers.RolloutClient, metrics *controlplane.Metrics) {
	controlplane.Every(ctx, watchEvery, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, watchTimeout)
		defer cancel()
		underWay, err := rollouts.UnderWay(ctx)
		if err == nil {
			metrics.RolloutSeen(underWay)
		}
		return err
	})
}

// retirementUnderWay asks for the list first: that a table has never been retired is an
// error of Status, and a line in the log.
func retirementUnderWay(ctx context.Context, retirements handlers.RetirementClient) (*controlplane.Retirement, error) {
	newest, err := retirements.List(ctx, controlplane.Blocklist)
	if err != nil || len(newest) == 0 || newest[0].Phase.Over() {
		return nil, err
	}
	r, err := retirements.Status(ctx, controlplane.Blocklist)
	return &r, err
}
