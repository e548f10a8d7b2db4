package handlers

import (
	"context"
	"fmt"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/restate/orderkey"
)

// RolloutClient is a client of rollouts for the operators' API. Its errors are those of Client, and can also wrap
// controlplane.ErrConflict or controlplane.ErrNotFound.
type RolloutClient struct{ *Client }

// Start begins a rollout. It is idempotent for the same ID and spec.
func (c RolloutClient) Start(ctx context.Context, start rollout.Start) (rollout.Rollout, error) {
	return askRollout[rollout.Start, rollout.Rollout](ctx, c.Client, RolloutsService, rolloutScope,
		"Start", start)
}

// Operate approves, pauses, resumes, aborts or rolls back.
func (c RolloutClient) Operate(ctx context.Context, id string,
	order rollout.Order) (rollout.Rollout, error) {
	if err := rollout.ValidateID(id); err != nil { // it becomes part of a URL
		return rollout.Rollout{}, err
	}
	if order.Action == rollout.RollBack {
		return askRollout[RolloutRollBack, rollout.Rollout](ctx, c.Client, RolloutsService, rolloutScope, "TakeBack",
			RolloutRollBack{ID: id, By: order.By})
	}
	return askRollout[rollout.Order, rollout.Rollout](ctx, c.Client, RolloutService, id, "Operate", order)
}

// Status returns the state of a rollout.
func (c RolloutClient) Status(ctx context.Context, id string) (rollout.Rollout, error) {
	if err := rollout.ValidateID(id); err != nil {
		return rollout.Rollout{}, err
	}
	return askRollout[restate.Void, rollout.Rollout](ctx, c.Client, RolloutService, id, "Status", restate.Void{})
}

// Standing returns the lock of rollouts.
func (c RolloutClient) Standing(ctx context.Context) (rollout.Lock, error) {
	return askRollout[restate.Void, rollout.Lock](ctx, c.Client, RolloutsService, rolloutScope, "Standing",
		restate.Void{})
}

// Repair corrects Restate's states of rollouts, and the lock.
func (c RolloutClient) Repair(ctx context.Context, rollouts []rollout.Trace) error {
	_, err := askRollout[RolloutsRepair, restate.Void](ctx, c.Client, RolloutsService, rolloutScope, "Repair",
		RolloutsRepair{rollouts})
	return err
}

// UnderWay returns the rollout that is under way, or nil.
func (c RolloutClient) UnderWay(ctx context.Context) (*rollout.Rollout, error) {
	lock, err := c.Standing(ctx)
	if err != nil || lock.Active == "" {
		return nil, err
	}
	r, err := c.Status(ctx, lock.Active)
	if err == nil && r.Phase.Over() {
		return nil, nil
	}
	return &r, err
}

// Ensure sends an order to revive a rollout that has not advanced past epoch, and does not wait for it. It is
// idempotent for the same epoch.
func (c RolloutClient) Ensure(ctx context.Context, id string, epoch int64) error {
	_, err := c.send(ctx, orderkey.Order{ID: fmt.Sprintf("ensure-%d", epoch), Service: RolloutService, Key: id,
		Handler: "Ensure", OneWay: true}, RolloutTimer{Epoch: epoch})
	if err != nil {
		return fmt.Errorf("revive rollout %s: %w", id, c.classify(ctx, err))
	}
	return nil
}

// askRollout calls a handler of a rollout.
func askRollout[I, O any](ctx context.Context, c *Client, service, key, handler string, in I) (O, error) {
	out, err := invoke[I, O](ctx, c, service, key, handler, in)
	if err != nil {
		return out, fmt.Errorf("rollouts: %w", c.classify(ctx, err))
	}
	return out, nil
}
