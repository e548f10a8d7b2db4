package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

// RolloutSaves reads the states of rollouts that were saved in MySQL. All methods may be called
// concurrently.
type RolloutSaves interface {
	// Newer returns the state of a rollout, as JSON, if its save number is above saved. Otherwise
	// it returns "".
	Newer(ctx context.Context, id string, saved int64) (state string, err error)
	// Traces returns the newest rollouts, at most rows of them.
	Traces(ctx context.Context, rows int) ([]rollout.Trace, error)
}

// SavedRollouts answers questions about rollouts from their last saved states while Restate does
// not answer. It passes orders on to Restate, so they fail meanwhile.
type SavedRollouts struct {
	Rollouts
	Saves RolloutSaves
}

// asSaved marks an answer that comes from MySQL.
const asSaved = "Restate does not answer: this is how the rollout stood when it was last saved in MySQL"

// savedRowsMax bounds the list of saved rollouts.
const savedRowsMax = 100

// Status returns a rollout. If Restate does not answer, it returns the last saved state, and
// Waiting says so.
func (s SavedRollouts) Status(ctx context.Context, id string) (rollout.Rollout, error) {
	r, err := s.Rollouts.Status(ctx, id)
	if !errors.Is(err, controlplane.ErrUnavailable) {
		return r, err
	}
	state, savedErr := s.Saves.Newer(ctx, id, 0)
	if savedErr != nil || state == "" {
		return r, err
	}
	var saved rollout.Rollout
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

// List returns the newest rollouts, newest first. If Restate does not answer, it returns the last
// saved states, and Why of a running rollout says so.
func (s SavedRollouts) List(ctx context.Context) ([]rollout.Summary, error) {
	list, err := s.Rollouts.List(ctx)
	if !errors.Is(err, controlplane.ErrUnavailable) {
		return list, err
	}
	traces, savedErr := s.Saves.Traces(ctx, savedRowsMax)
	if savedErr != nil {
		return list, err
	}
	var saved []rollout.Summary
	for _, t := range traces {
		if t.Saved == 0 { // an earlier build began it, which saved no states
			continue
		}
		line := rollout.Summary{ID: t.ID, By: t.By, StartedMs: t.StartedMs, Phase: t.Phase}
		if !t.Phase.Over() {
			line.Why = asSaved
		}
		saved = append(saved, line)
	}
	slices.SortStableFunc(saved, func(a, b rollout.Summary) int {
		return cmp.Compare(b.StartedMs, a.StartedMs)
	})
	return saved, nil
}
