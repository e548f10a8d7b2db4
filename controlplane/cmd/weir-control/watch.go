package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/restate/handlers"
)

// watchTimeout bounds a look.
const watchTimeout = 10 * time.Second

// watchFleet keeps the metrics of the nodes, and corrects their heartbeats after a step of MySQL's clock. The watch of
// MySQL reports that it cannot look.
func watchFleet(ctx context.Context, liveWithin time.Duration, steps fleet.Repair,
	metrics *watch.Metrics, log *slog.Logger) {
	failing := false
	controlplane.Every(ctx, watchEvery, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, watchTimeout)
		defer cancel()
		listing, err := fleet.List(ctx, steps, liveWithin)
		if err != nil {
			return err
		}
		metrics.FleetSeen(listing)
		corrected, err := fleet.SetRight(ctx, listing, steps)
		if corrected > 0 {
			log.Warn("the clock of MySQL has stepped back, and heartbeats from before count from now on", "nodes", corrected)
		}
		if err != nil && !failing {
			log.Warn("a node that has died may count as live", "error", err)
		}
		failing = err != nil
		return err
	})
}

// watchRollouts keeps the metrics of the rollout under way, of which there is at most one. The keeper of the schedules
// reports when it cannot look.
func watchRollouts(ctx context.Context, rollouts handlers.RolloutClient, metrics *watch.Metrics) {
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

// retirementUnderWay reads the list first, because for a table that was never retired Status returns an error, and
// writes a line to the log.
func retirementUnderWay(ctx context.Context, retirements handlers.RetirementClient) (*retire.Retirement, error) {
	newest, err := retirements.List(ctx, retire.Blocklist)
	if err != nil || len(newest) == 0 || newest[0].Phase.Over() {
		return nil, err
	}
	r, err := retirements.Status(ctx, retire.Blocklist)
	return &r, err
}
