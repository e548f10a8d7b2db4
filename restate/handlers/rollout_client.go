package handlers

import (
	"context"
	"fmt"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/ingress"

	"github.com/weirhq/weir/controlplane"
)

// RolloutClient is rollouts for the operators' API. Errors are those of Client, and
// wrap controlplane.ErrConflict or controlplane.ErrNotFound besides.
type RolloutClient struct{ *Client }

// Start begins a rollout. The same once more, under the same id, changes nothing.
func (c RolloutClient) Start(ctx context.Context, id string, spec controlplane.RolloutSpec, by controlplane.By) (controlplane.Rollout, error) {
	return askRollout[RolloutStart, controlplane.Rollout](ctx, c.Client, RolloutsService, rolloutScope, "Start", RolloutStart{ID: id, Spec: spec, By: by})
}

// Operate approves, pauses, resumes, aborts or rolls back.
func (c RolloutClient) Operate(ctx context.Context, id string, action controlplane.RolloutAction, by controlplane.By) (controlplane.Rollout, error) {
	if err := controlplane.ValidateRolloutID(id); err != nil { // it becomes part of a URL
		return controlplane.Rollout{}, err
	}
	if action == controlplane.RolloutTakeBack {
		return askRollout[RolloutTakeBack, controlplane.Rollout](ctx, c.Client, RolloutsService, rolloutScope, "TakeBack", RolloutTakeBack{ID: id, By: by})
	}
	return askRollout[RolloutRequest, controlplane.Rollout](ctx, c.Client, RolloutService, id, "Operate", RolloutRequest{Action: action, By: by})
}

// Status is how a rollout stands.
func (c RolloutClient) Status(ctx context.Context, id string) (controlplane.Rollout, error) {
	if err := controlplane.ValidateRolloutID(id); err != nil {
		return controlplane.Rollout{}, err
	}
	return askRollout[restate.Void, controlplane.Rollout](ctx, c.Client, RolloutService, id, "Status", restate.Void{})
}

// List is the newest rollouts, newest first.
func (c RolloutClient) List(ctx context.Context) ([]controlplane.RolloutSummary, error) {
	return askRollout[restate.Void, []controlplane.RolloutSummary](ctx, c.Client, RolloutsService, rolloutScope, "List", restate.Void{})
}

// Ensure revives a rollout that stands at an epoch, in its turn: it does not wait for
// it. Asked again at the same epoch it is asked once.
func (c RolloutClient) Ensure(ctx context.Context, id string, epoch int64) error {
	err := c.at.inTurn(ctx, func(ctx context.Context, i int) (bool, error) {
		_, err := ingress.ObjectSend[RolloutTimer](c.ingresses[i], RolloutService, id, "Ensure").
			Send(ctx, RolloutTimer{Epoch: epoch}, restate.WithIdempotencyKey(fmt.Sprintf("ensure-%d", epoch)))
		return answered(err), err
	})
	if err != nil {
		return fmt.Errorf("revive rollout %s: %w", id, c.classify(ctx, err))
	}
	return nil
}

// askRollout calls a handler of a rollout's.
func askRollout[I, O any](ctx context.Context, c *Client, service, key, handler string, in I) (O, error) {
	out, err := invoke[I, O](ctx, c, service, key, handler, in)
	if err != nil {
		return out, fmt.Errorf("rollouts: %w", c.classify(ctx, err))
	}
	return out, nil
}
