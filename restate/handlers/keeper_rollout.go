package handlers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

const (
	// rolloutLate is how many graces a rollout's timer can be late, because it may wait for a step that is retried, and
	// for an operator.
	rolloutLate = 3
)

// ensureRollout checks the rollout that has the lock, the lock, and the rollouts in MySQL.
func (k *Keeper) ensureRollout(ctx context.Context) error {
	rollouts := RolloutClient{k.Client}
	lock, err := rollouts.Standing(ctx)
	if err != nil {
		return err
	}
	return errors.Join(k.reviveRollout(ctx, rollouts, lock.Active), k.repairRollouts(ctx, rollouts, lock))
}

// reviveRollout sends a lost timer of a rollout again, or the outcome that would release the lock.
func (k *Keeper) reviveRollout(ctx context.Context, rollouts RolloutClient, active string) error {
	if active == "" {
		return nil
	}
	r, err := rollouts.Status(ctx, active)
	late := rolloutLate * cmp.Or(k.Grace, defaultGrace)
	switch {
	case errors.Is(err, controlplane.ErrNotFound):
		return nil // repairRollouts handles it
	case err != nil || !r.Lapsed(time.Now().UnixMilli(), late):
		return err
	}
	if err := rollouts.Ensure(ctx, r.ID, r.Epoch); err != nil {
		return err
	}
	if k.revived != (revival{r.ID, r.Epoch}) { // log it once, however long it waits for its turn
		k.revived = revival{r.ID, r.Epoch}
		k.Log.Warn("a rollout had lost its timer and is revived", "rollout", r.ID, "phase", r.Phase)
		k.Metrics.ChainRepaired()
	}
	return nil
}

// repairRollouts compares the lock and Restate's rollouts with MySQL's. It reads them first, as ensure does.
func (k *Keeper) repairRollouts(ctx context.Context, rollouts RolloutClient, lock rollout.Lock) error {
	var traces []rollout.Trace
	var unread error
	if k.Rollouts != nil {
		if traces, unread = k.Rollouts(ctx, rollout.ListMax); unread != nil {
			unread = fmt.Errorf("compare the rollouts with MySQL: %w", unread)
		}
	}
	late := rolloutLate * cmp.Or(k.Grace, defaultGrace).Milliseconds()
	look := func(id string) (rollout.Rollout, error) { return rollouts.Status(ctx, id) }
	wrong, err := lock.Wrongs(traces, time.Now().UnixMilli(), late, look)
	if err == nil && len(wrong) > 0 {
		if err = rollouts.Repair(ctx, wrong); err == nil {
			k.Log.Warn("rollouts were not as MySQL has them and are repaired", "rollouts", len(wrong), "first", wrong[0].ID)
			k.Metrics.ChainRepaired()
		}
	}
	return errors.Join(unread, err)
}

// revival is a rollout that was revived, and its epoch.
type revival struct {
	id    string
	epoch int64
}
