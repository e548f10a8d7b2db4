package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/rollout"
)

// RolloutSaves reads the states of rollouts that were saved in MySQL. All methods may be called
// concurrently.
type RolloutSaves interface {
	// Newer returns the state of a rollout, as JSON, if its save number is above saved. Otherwise
	// it returns "".
	Newer(ctx context.Context, id string, saved int64) (state string, err error)
	// List returns the newest rollouts, newest first.
	List(ctx context.Context) ([]rollout.Summary, error)
}

// LiveRollouts calls the rollouts in Restate. Implementations must be safe for concurrent use.
type LiveRollouts interface {
	Start(ctx context.Context, start rollout.Start) (rollout.Rollout, error)
	Operate(ctx context.Context, id string, order rollout.Order) (rollout.Rollout, error)
	Status(ctx context.Context, id string) (rollout.Rollout, error)
	// UnderWay returns the rollout that has not ended, or nil.
	UnderWay(ctx context.Context) (*rollout.Rollout, error)
}

// SavedRollouts lists the rollouts from MySQL. While Restate does not answer, it returns the status of a rollout from
// its last saved state. Orders need Restate, so they fail meanwhile.
type SavedRollouts struct {
	LiveRollouts
	Saves RolloutSaves
}

// asSaved marks a status that comes from MySQL.
const asSaved = "Restate does not answer: this is how the rollout stood when it was last saved in MySQL"

// Status returns a rollout. If Restate does not answer, it returns the last saved state, and Waiting has a note about
// that.
func (s SavedRollouts) Status(ctx context.Context, id string) (rollout.Rollout, error) {
	r, err := s.LiveRollouts.Status(ctx, id)
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

// savedTimeout bounds a look at the list in MySQL, so that lookTimeout leaves time for Restate.
const savedTimeout = 5 * time.Second

// List returns the newest rollouts, newest first. While MySQL does not answer, it returns the rollout that has not
// ended.
func (s SavedRollouts) List(ctx context.Context) ([]rollout.Summary, error) {
	timed, cancel := context.WithTimeout(ctx, savedTimeout)
	defer cancel()
	list, err := s.Saves.List(timed)
	if err == nil {
		return list, nil
	}
	r, liveErr := s.UnderWay(ctx)
	if liveErr != nil || r == nil {
		return nil, errors.Join(err, liveErr)
	}
	return []rollout.Summary{r.Summary()}, nil
}
