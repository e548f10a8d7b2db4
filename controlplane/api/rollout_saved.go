package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
)

// RolloutSaves are the states of rollouts that MySQL has. All methods may be called at once.
type RolloutSaves interface {
	// Newer returns the state of a rollout, as JSON, if it was saved more often than that, and otherwise "".
	Newer(ctx context.Context, id string, saved int64) (state string, err error)
	// Traces returns the rollouts that began last.
	Traces(ctx context.Context, rows int) ([]controlplane.TuningTrace, error)
}

// SavedRollouts answers how rollouts stand by their last saved states while Restate does not answer. Orders need
// Restate.
type SavedRollouts struct {
	Rollouts
	Saves RolloutSaves
}

// asSaved says of an answer that it is not Restate's.
const asSaved = "Restate does not answer: this is how the rollout stood when it was last saved in MySQL"

// savedRowsMax is how many rollouts a list of saved ones has.
const savedRowsMax = 100

// Status returns a rollout. Its Waiting says so if it is as it was last saved.
func (s SavedRollouts) Status(ctx context.Context, id string) (controlplane.Rollout, error) {
	r, err := s.Rollouts.Status(ctx, id)
	if !errors.Is(err, controlplane.ErrUnavailable) {
		return r, err
	}
	state, savedErr := s.Saves.Newer(ctx, id, 0)
	if savedErr != nil || state == "" {
		return r, err
	}
	var saved controlplane.Rollout
	if savedErr = json.Unmarshal([]byte(state), &saved); savedErr == nil {
		savedErr = saved.Check()
	}
	if savedErr != nil {
		return r, fmt.Errorf("%w; and its state in MySQL cannot be read: %w", err, savedErr)
	}
	saved.Upgrade()
	saved.Waiting = asSaved
	return saved, nil
}

// List returns the newest rollouts, newest first. The Why of one under way says so if it is as it was last saved.
func (s SavedRollouts) List(ctx context.Context) ([]controlplane.RolloutSummary, error) {
	list, err := s.Rollouts.List(ctx)
	if !errors.Is(err, controlplane.ErrUnavailable) {
		return list, err
	}
	traces, savedErr := s.Saves.Traces(ctx, savedRowsMax)
	if savedErr != nil {
		return list, err
	}
	var saved []controlplane.RolloutSummary
	for _, t := range traces {
		if t.Saved == 0 { // by a build that saved no states
			continue
		}
		line := controlplane.RolloutSummary{ID: t.ID, By: t.By, StartedMs: t.StartedMs, Phase: t.Phase}
		if !t.Phase.Over() {
			line.Why = asSaved
		}
		saved = append(saved, line)
	}
	slices.SortStableFunc(saved, func(a, b controlplane.RolloutSummary) int {
		return cmp.Compare(b.StartedMs, a.StartedMs)
	})
	return saved, nil
}
