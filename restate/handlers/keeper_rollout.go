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
	// rolloutLate is how many graces a rollout's timer may be late: it may wait behind a step
	// that is tried again, and behind an operator.
	rolloutLate = 3
)

// ensureRollout looks after the rollout that is under way, or that the list takes for it,
// and after the list and its lock.
func (k *Keeper) ensureRollout(ctx context.Context) error {
	rollouts := RolloutClient{k.Client}
	standing, err := rollouts.Standing(ctx)
	if err != nil {
		return err
	}
	return errors.Join(k.reviveRollouts(ctx, rollouts, standing), k.repairRollouts(ctx, rollouts, standing))
}

// reviveRollouts sends the message of a rollout anew that has lost it, and the outcome of
// one that the list has not heard of: the lock must not stay with what is over.
func (k *Keeper) reviveRollouts(ctx context.Context, rollouts RolloutClient, standing rollout.List) error {
	for _, id := range standing.UnderWay() {
		r, err := rollouts.Status(ctx, id)
		if errors.Is(err, controlplane.ErrNotFound) {
			continue // repairRollouts knows what to do
		}
		if err != nil {
			return err
		}
		late := rolloutLate * cmp.Or(k.Grace, defaultGrace)
		if !r.Lapsed(time.Now().UnixMilli(), late) {
			continue
		}
		if err := rollouts.Ensure(ctx, r.ID, r.Epoch); err != nil {
			return err
		}
		if k.revived != (revival{r.ID, r.Epoch}) { // once, however long it waits for its turn
			k.revived = revival{r.ID, r.Epoch}
			k.Log.Warn("a rollout had lost its timer and is revived", "rollout", r.ID, "phase", r.Phase)
			k.Metrics.ChainRepaired()
		}
	}
	return nil
}

// repairRollouts compares the list with the rollouts themselves and with what they wrote to
// MySQL. It looks first, as ensure does.
func (k *Keeper) repairRollouts(ctx context.Context, rollouts RolloutClient, standing rollout.List) error {
	var traces []rollout.Trace
	var unread error
	if k.Tunings != nil {
		if traces, unread = k.Tunings(ctx, rollout.TracesMax); unread != nil {
			unread = fmt.Errorf("compare the list of rollouts with MySQL: %w", unread)
		}
	}
	late := rolloutLate * cmp.Or(k.Grace, defaultGrace).Milliseconds()
	look := func(id string) (rollout.Rollout, error) { return rollouts.Status(ctx, id) }
	wrong, err := standing.Wrongs(traces, time.Now().UnixMilli(), late, look)
	if err != nil || len(wrong) == 0 {
		return errors.Join(unread, err)
	}
	if err := rollouts.Repair(ctx, wrong); err != nil {
		return errors.Join(unread, err)
	}
	k.Log.Warn("the list of rollouts was wrong and is repaired", "rollouts", len(wrong), "first", wrong[0].ID)
	k.Metrics.ChainRepaired()
	return unread
}

// revival is a rollout that was revived, and where it stood.
type revival struct {
	id    string
	epoch int64
}
