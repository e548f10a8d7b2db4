package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/shared/tuning"
)

// rolloutStepTimeout bounds one step of a rollout.
const rolloutStepTimeout = 15 * time.Second

// RegionTuning is the newest version of a region; of the fleet where Region is "".
type RegionTuning struct {
	Region   string
	Version  int64
	Document string
}

// RolloutStore is what a rollout needs of MySQL. All methods may be called at once.
type RolloutStore interface {
	FleetStore
	// NewestTunings are the newest version of each region that has one, and of the fleet.
	NewestTunings(ctx context.Context) ([]RegionTuning, error)
	// WriteTunings writes versions in one transaction, in order, and answers their
	// numbers. A write whose ID is there already is left out and its number answered.
	WriteTunings(ctx context.Context, writes []TuningWrite) ([]int64, error)
}

// RolloutWork executes the steps of rollouts against a database.
type RolloutWork struct {
	store      RolloutStore
	liveWithin time.Duration
	prometheus Prometheus // nil: none
}

// NewRolloutWork returns the steps. A node not heard of for longer than liveWithin is
// not waited for.
func NewRolloutWork(store RolloutStore, liveWithin time.Duration) *RolloutWork {
	return &RolloutWork{store: store, liveWithin: liveWithin}
}

// Regions are those that have a live node or a tuning of their own.
func (w *RolloutWork) Regions(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, rolloutStepTimeout)
	defer cancel()
	fleet, err := w.fleet(ctx)
	if err != nil {
		return nil, err
	}
	newest, err := w.store.NewestTunings(ctx)
	if err != nil {
		return nil, fmt.Errorf("list regions: %w", err)
	}
	var regions []string
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
}

// Previous is the document in force for each of the regions: its own newest, or else
// the fleet's, or else the built-in default.
func (w *RolloutWork) Previous(ctx context.Context, regions []string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, rolloutStepTimeout)
	defer cancel()
	newest, err := w.store.NewestTunings(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the tuning in force: %w", err)
	}
	builtIn, err := tuning.Default().Document()
	if err != nil {
		return nil, err
	}
	own := map[string]string{"": string(builtIn)}
	for _, t := range newest {
		own[t.Region] = t.Document
	}
	documents := make([]string, len(regions))
	for i, region := range regions {
		if document, ok := own[region]; ok {
			documents[i] = document
		} else {
			documents[i] = own[""]
		}
	}
	return documents, nil
}

// Write writes versions.
func (w *RolloutWork) Write(ctx context.Context, writes []TuningWrite) ([]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, rolloutStepTimeout)
	defer cancel()
	versions, err := w.store.WriteTunings(ctx, writes)
	if err != nil {
		return nil, fmt.Errorf("write the tuning of %d regions: %w", len(writes), err)
	}
	return versions, nil
}

// Health is a snapshot of the scope's nodes, or of those in like.
func (w *RolloutWork) Health(ctx context.Context, scope RolloutScope, like *HealthSnapshot) (HealthSnapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, rolloutStepTimeout)
	defer cancel()
	fleet, err := w.fleet(ctx)
	if err != nil {
		return HealthSnapshot{}, err
	}
	return TakeHealth(fleet, scope, like), nil
}

// Applied tells how far the scope's live nodes have taken up versions. Regions that
// have none of their own follow the fleet's.
func (w *RolloutWork) Applied(ctx context.Context, scope RolloutScope, versions map[string]int64) (Applied, error) {
	ctx, cancel := context.WithTimeout(ctx, rolloutStepTimeout)
	defer cancel()
	fleet, err := w.fleet(ctx)
	if err != nil {
		return Applied{}, err
	}
	return appliedBy(fleet, scope, versions), nil
}

func appliedBy(fleet Fleet, scope RolloutScope, versions map[string]int64) Applied {
	var a Applied
	for _, n := range fleet.Nodes {
		if !n.Live || !scope.Has(n.Region) {
			continue
		}
		want, own := versions[n.Region]
		if !own {
			want = versions[""]
		}
		a.Live++
		switch {
		case n.TuningVersion >= want:
			a.Applied++
		case a.Waiting == "" || n.Health.SettingsProblem != "":
			a.Waiting = fmt.Sprintf("%s in %s runs version %d, not %d", n.NodeID, n.Region, n.TuningVersion, want)
			if problem := n.Health.SettingsProblem; problem != "" {
				a.Waiting += ": " + cut(problem, 200)
			}
		}
	}
	return a
}

func (w *RolloutWork) fleet(ctx context.Context) (Fleet, error) {
	return ListFleet(ctx, w.store, w.liveWithin)
}
