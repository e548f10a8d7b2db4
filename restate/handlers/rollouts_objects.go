package handlers

import (
	"fmt"
	"net/http"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

// rolloutObjects implements rollout.Objects for an invocation.
type rolloutObjects struct{ ctx restate.Context }

func (o rolloutObjects) Status(id string) (rollout.Rollout, error) {
	r, err := askOf[rollout.Rollout](o.ctx, id, "Status", restate.Void{})
	return r, notFound(err)
}

// notFound wraps an error of a rollout's handler in controlplane.ErrNotFound if there is no such rollout.
func notFound(err error) error {
	if t := restate.AsTerminalError(err); t != nil && t.Code() == http.StatusNotFound {
		return fmt.Errorf("%w: %w", controlplane.ErrNotFound, err)
	}
	return err
}

func (o rolloutObjects) Restore(id string) (rollout.Rollout, error) {
	r, err := askOf[rollout.Rollout](o.ctx, id, "Restore", restate.Void{})
	return r, notFound(err)
}

func (o rolloutObjects) Begin(id string, begin rollout.Begin) (rollout.Rollout, error) {
	return askOf[rollout.Rollout](o.ctx, id, "Begin", begin)
}

func (o rolloutObjects) RollBack(id string, by controlplane.By) (rollout.Rollout, error) {
	return askOf[rollout.Rollout](o.ctx, id, "TakeBack", by)
}

func (o rolloutObjects) Forget(id string) {
	restate.ObjectSend(o.ctx, RolloutService, id, "Forget").Send(restate.Void{})
}

// askOf calls a rollout's handler, and waits for its answer.
func askOf[O any](ctx restate.Context, id, handler string, in any) (O, error) {
	out, err := restate.Object[O](ctx, RolloutService, id, handler).Request(in)
	if err != nil { // a nil TerminalError must not become a non-nil error
		return out, err
	}
	return out, nil
}
