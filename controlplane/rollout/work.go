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

// stepTimeout bounds one step of a rollout.
const stepTimeout = 15 * time.Second

// Store is what a rollout needs of MySQL. All methods may be called at once.
type Store interface {
	fleet.Store
	tunings.TrialStore
	// NewestTunings are the newest version of each region that has one, and of the fleet.
	NewestTunings(ctx context.Context) ([]tunings.RegionTuning, error)
	// WriteTunings writes versions in one transaction, in order, and answers their
	// numbers. A write whose ID is there already, with the same document and region, is
	// left out and its number answered. One that is refused undoes them all.
	WriteTunings(ctx context.Context, writes []tunings.Write) (tunings.Written, error)
	// SaveRollout writes a rollout down. One that was saved as often, or more often, stays: unless that was this very
	// state, the error wraps controlplane.ErrConflict.
	SaveRollout(ctx context.Context, row Row) error
	// NewerRollout is the state of a rollout that was saved more often than that; empty: there is none.
	NewerRollout(ctx context.Context, id string, saved int64) (state string, err error)
	// RolloutRecorded tells whether a rollout has been recorded under an id.
	RolloutRecorded(ctx context.Context, id string) (bool, error)
	// Rollouts are those that began last, newest first, at most rows.
	Rollouts(ctx context.Context, rows int) ([]Trace, error)
	// TuningsOf are the versions that a rollout wrote, oldest first, at most rows.
	TuningsOf(ctx context.Context, id string, rows int) ([]tunings.RegionTuning, error)
}

// Work is the database and the Prometheus that rollouts work with.
type Work struct {
	store      Store
	liveWithin time.Duration
	prometheus queries.Prometheus // nil: none
}

// NewWork returns the work of rollouts on a database. A node not heard of for longer than liveWithin is
// not waited for.
func NewWork(store Store, liveWithin time.Duration) *Work {
	return &Work{store: store, liveWithin: liveWithin}
}

// InForce is the document in force for each of the regions: its own newest, or else the
// fleet's, or else the built-in default; with the version of its own.
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

// Newer returns the state of a rollout that was saved more often than that, or "".
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

// Fleet lists the fleet.
func (w *Work) Fleet(ctx context.Context) (fleet.Fleet, error) {
	return fleet.List(ctx, w.store, w.liveWithin)
}
