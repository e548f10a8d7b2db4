package rollout

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/tuning"
)

// stepTimeout bounds each step of a rollout.
const stepTimeout = 15 * time.Second

// Store has the operations on MySQL that rollouts need. Implementations must allow concurrent calls.
type Store interface {
	fleet.Store
	tunings.TrialStore
	LimitsStore
	// NewestTunings returns the newest version of each region that has a version, and of the fleet.
	NewestTunings(ctx context.Context) ([]tunings.RegionTuning, error)
	// WriteTunings writes versions in one transaction, in order, and returns their numbers. If a write with the same ID,
	// document and region exists already, it is skipped and its number returned. If any write is refused, none is made.
	WriteTunings(ctx context.Context, writes []tunings.Write) (tunings.Written, error)
	// SaveRollout writes the state of a rollout. It must keep a state with an equal or higher number of saves, and return
	// an error that wraps controlplane.ErrConflict unless that is this very state.
	SaveRollout(ctx context.Context, row Row) error
	// NewerRollout returns the state of a rollout that was saved more often than saved; empty: there is none.
	NewerRollout(ctx context.Context, id string, saved int64) (state string, err error)
	// RolloutRecorded reports whether a rollout has been recorded under an ID.
	RolloutRecorded(ctx context.Context, id string) (bool, error)
	// Rollouts returns the rollouts that began last, newest first, at most rows.
	Rollouts(ctx context.Context, rows int) ([]Trace, error)
	// TuningsOf returns the versions that a rollout wrote, oldest first, at most rows.
	TuningsOf(ctx context.Context, id string, rows int) ([]tunings.RegionTuning, error)
}

// Work has the database and the Prometheus of rollouts.
type Work struct {
	store      Store
	liveWithin time.Duration
	prometheus queries.Prometheus // nil: none
}

// NewWork returns the work of rollouts on a database. Rollouts do not wait for a node that has sent no heartbeat for
// longer than liveWithin.
func NewWork(store Store, liveWithin time.Duration) *Work {
	return &Work{store: store, liveWithin: liveWithin}
}

// InForce returns the document in force for each of the regions: its own newest version, or else the fleet's, or else
// the built-in default. It also returns the number of the region's own version.
func (w *Work) InForce(ctx context.Context, regions []string) ([]tunings.RegionTuning, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	newest, err := w.store.NewestTunings(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the tuning in force: %w", err)
	}
	builtIn, err := tuning.Default().Document()
	if err != nil {
		return nil, err
	}
	own := map[string]tunings.RegionTuning{"": {Document: string(builtIn)}}
	for _, t := range newest {
		own[t.Region] = t
	}
	inForce := make([]tunings.RegionTuning, len(regions))
	for i, region := range regions {
		inForce[i] = tunings.RegionTuning{Region: region, Version: own[region].Version, Document: own[region].Document}
		if inForce[i].Version == 0 {
			inForce[i].Document = own[""].Document
		}
	}
	return inForce, nil
}

// Newer returns the state of a rollout that was saved more often than saved, or "".
func (w *Work) Newer(ctx context.Context, id string, saved int64) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return w.store.NewerRollout(ctx, id, saved)
}

// List returns the newest rollouts, newest first.
func (w *Work) List(ctx context.Context) (list []Summary, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	traces, err := w.store.Rollouts(ctx, ListMax)
	for _, t := range traces {
		if t.Saved == 0 {
			t.Phase, t.EndedMs, t.Why = Lost, t.StartedMs, "a build that saves no state began it"
		}
		list = append(list, t.Summary)
	}
	return list, err
}

// Fleet lists the nodes of the fleet.
func (w *Work) Fleet(ctx context.Context) (fleet.Fleet, error) {
	return fleet.List(ctx, w.store, w.liveWithin)
}
