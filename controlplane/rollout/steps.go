package rollout

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/settings"
)

// Steps are the effects of rollouts. Each is a step of a journal with stepTimeout, and may be executed more than once.
type Steps struct {
	work    *Work
	journal controlplane.Journal
}

// On returns the steps of an invocation.
func (w *Work) On(j controlplane.Journal) Steps { return Steps{w, j} }

// do executes a step with a timeout of stepTimeout.
func do[T any](s Steps, name string, step func(context.Context) (T, error)) (T, error) {
	return controlplane.Do(s.journal, name, controlplane.Within(stepTimeout, step))
}

// attempt is do with an error that begins with what was attempted.
func attempt[T any](s Steps, name, what string, step func(context.Context) (T, error)) (T, error) {
	return do(s, name, func(ctx context.Context) (T, error) {
		made, err := step(ctx)
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
		return made, err
	})
}

func (s Steps) nowMs() (int64, error) { return controlplane.NowMs(s.journal) }

// used describes an earlier use of an ID of which Restate has no state; empty: there is none.
func (s Steps) used(id string) (string, error) {
	return do(s, "look whether the id was used", func(ctx context.Context) (string, error) {
		wrote, err := s.work.store.TuningsOf(ctx, id, 1)
		if err != nil {
			return "", err
		}
		if len(wrote) == 0 {
			recorded, err := s.work.store.RolloutRecorded(ctx, id)
			if err != nil || !recorded {
				return "", err
			}
			return fmt.Sprintf("a rollout %s began before, and its state is lost: choose another id", id), nil
		}
		return fmt.Sprintf("the id %s was used before, and version %d of %s has it: choose another id", id,
			wrote[0].Version, controlplane.RowName(wrote[0].Region)), nil
	})
}

// newer returns the state of a rollout that was saved more often than saved; empty: there is none.
func (s Steps) newer(id string, saved int64) (string, error) {
	return do(s, "look for a newer state", func(ctx context.Context) (string, error) {
		return s.work.store.NewerRollout(ctx, id, saved)
	})
}

// save writes a row. The error wraps controlplane.ErrConflict if MySQL has a newer state, or a different state with the
// same number of saves.
func (s Steps) save(row Row) error {
	return controlplane.DoSave(s.journal, row.Saved, stepTimeout, func(ctx context.Context) error {
		return s.work.store.SaveRollout(ctx, row)
	})
}

// inForce returns the document in force for each of the regions ("" is the fleet), with the version of the region's own
// row, or 0 if it has none.
func (s Steps) inForce(regions []string) ([]tunings.RegionTuning, error) {
	return do(s, "read the tuning in force", func(ctx context.Context) ([]tunings.RegionTuning, error) {
		return s.work.InForce(ctx, regions)
	})
}

// try begins all of the trials or none. A write that was made before is not made again, except that a larger bound
// widens the trial.
func (s Steps) try(writes []tunings.TrialWrite, by controlplane.By) (tunings.TrialsWritten, error) {
	name := "try " + writes[len(writes)-1].ID
	return do(s, name, func(ctx context.Context) (written tunings.TrialsWritten, err error) {
		entry, err := tunings.TrialEntry(writes, by)
		if err != nil {
			return written, err
		}
		if written, err = s.work.store.WriteTrials(ctx, writes, entry); err != nil {
			return written, fmt.Errorf("write the trials of %d regions: %w", len(writes), err)
		}
		return written, nil
	})
}

// renew extends the trials that writes began, all or none. A trial that has ended does not begin again.
//
// With a change of limits they have ended too if an item is no longer as before the change.
func (s Steps) renew(ids []string, leaseMs int64, limits *settings.Change) (tunings.TrialsRenewed, error) {
	what := fmt.Sprintf("renew %d trials", len(ids))
	return attempt(s, "renew trials", what, func(ctx context.Context) (tunings.TrialsRenewed, error) {
		return s.work.store.RenewTrials(ctx, ids, leaseMs, limits)
	})
}

// endTrials ends the trials of writes, and returns their numbers. A write that has not been made can no longer be made.
func (s Steps) endTrials(writes []tunings.TrialWrite) ([]int64, error) {
	what := fmt.Sprintf("end %d trials", len(writes))
	return attempt(s, "end trials", what, func(ctx context.Context) ([]int64, error) {
		return s.work.store.EndTrials(ctx, writes)
	})
}

// write writes all of the versions or none. A write that was made before is not made again.
func (s Steps) write(writes []tunings.Write) (tunings.Written, error) {
	name, what := "write "+writes[len(writes)-1].ID, fmt.Sprintf("write the tuning of %d regions", len(writes))
	return attempt(s, name, what, func(ctx context.Context) (tunings.Written, error) {
		return s.work.store.WriteTunings(ctx, writes)
	})
}

// look returns the newest heartbeats of the nodes of a scope.
func (s Steps) look(scope fleet.Scope) (fleet.Look, error) {
	return do(s, "look at nodes", func(ctx context.Context) (fleet.Look, error) {
		listing, err := s.work.Fleet(ctx)
		if err != nil {
			return fleet.Look{}, err
		}
		look := fleet.TakeLook(listing, scope)
		look.LiveMs = s.work.liveWithin.Milliseconds()
		return look, nil
	})
}

// traces returns the rollouts that began last, newest first.
func (s Steps) traces() ([]Trace, error) {
	return do(s, "read which rollouts began or wrote", func(ctx context.Context) ([]Trace, error) {
		return s.work.store.Rollouts(ctx, ListMax)
	})
}

// regions returns the regions that have a live node or a tuning of their own.
func (s Steps) regions() ([]string, error) {
	return do(s, "list regions", func(ctx context.Context) (regions []string, err error) {
		fleet, err := s.work.Fleet(ctx)
		if err != nil {
			return nil, err
		}
		newest, err := s.work.store.NewestTunings(ctx)
		if err != nil {
			return nil, fmt.Errorf("list regions: %w", err)
		}
		for _, n := range fleet.Nodes {
			if n.Live {
				regions = append(regions, n.Region)
			}
		}
		for _, t := range newest {
			if t.Region != "" {
				regions = append(regions, t.Region)
			}
		}
		slices.Sort(regions)
		return slices.Compact(regions), nil
	})
}
