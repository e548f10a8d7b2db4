package handlers

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// rolloutLate is how many graces a rollout's timer may be late: it may wait behind a step
// that is tried again, and behind an operator.
const rolloutLate = 3

// ensureRollout looks after the rollout that is under way, or that the list takes for it.
func (k *Keeper) ensureRollout(ctx context.Context) error {
	rollouts := RolloutClient{k.Client}
	list, err := rollouts.List(ctx)
	if err != nil {
		return err
	}
	for _, line := range list {
		if line.EndedMs > 0 {
			continue
		}
		r, err := rollouts.Status(ctx, line.ID)
		if errors.Is(err, controlplane.ErrNotFound) {
			continue // Restate's answer to a list that was restored without it
		}
		if err != nil {
			return err
		}
		late := rolloutLate * cmp.Or(k.Grace, defaultGrace)
		dead := r.Dead(time.Now().UnixMilli(), late)
		unheard := r.Phase.Over() && time.Now().UnixMilli() > r.EndedMs+late.Milliseconds()
		if !dead && !unheard {
			continue
		}
		if err := rollouts.Ensure(ctx, r.ID, r.Epoch); err != nil {
			return err
		}
		if k.revived != (revival{r.ID, r.Epoch}) { // once, however long it waits for its turn
			k.revived = revival{r.ID, r.Epoch}
			k.Log.Warn("a rollout had lost its message and is revived", "rollout", r.ID, "phase", r.Phase)
			k.Metrics.ChainRepaired()
		}
	}
	return nil
}

// revival is a rollout that was revived, and where it stood.
type revival struct {
	id    string
	epoch int64
}
