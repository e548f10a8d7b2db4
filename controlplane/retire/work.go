package retire

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/fleet"
)

// retirementStepTimeout bounds one step: longer than a rename waits for its locks.
const retirementStepTimeout = 15 * time.Second

// RetirementStore is what a retirement needs of MySQL. All methods may be called at once.
type RetirementStore interface {
	fleet.FleetStore
	controlplane.JobStates
	// Now is the clock of the database.
	Now(ctx context.Context) (time.Time, error)
	// TableFigures are of a table of the blocklist's form; nil: there is none.
	TableFigures(ctx context.Context, name string) (*TableFigures, error)
	// DeleteExpiredBlocklist deletes at most rows rows that expired before cutoff.
	DeleteExpiredBlocklist(ctx context.Context, cutoff time.Time, rows int) (deleted int64, err error)
	// RenameTable and DropTable are as RetirementSteps has them.
	RenameTable(ctx context.Context, table, from, to string, fence int64) (TableNames, error)
	DropTable(ctx context.Context, table, dated string, fence int64) (TableDrop, error)
}

// RetirementWork executes the steps of retirements against a database.
type RetirementWork struct {
	store      RetirementStore
	liveWithin time.Duration
	grace      time.Duration
	metrics    *controlplane.Metrics
}

// NewRetirementWork returns the steps. A node not heard of for longer than liveWithin is
// not live; rows are kept for grace after they have expired, as the cleanup keeps them.
func NewRetirementWork(store RetirementStore, liveWithin, grace time.Duration,
	metrics *controlplane.Metrics) *RetirementWork {
	return &RetirementWork{store: store, liveWithin: liveWithin, grace: grace, metrics: metrics}
}

// Look tells how the table and the fleet are.
func (w *RetirementWork) Look(ctx context.Context, table, dated string,
	spec RetirementSpec) (look RetirementLook, err error) {
	ctx, cancel := context.WithTimeout(ctx, retirementStepTimeout)
	defer cancel()
	if look.Table, err = w.store.TableFigures(ctx, table); err != nil {
		return look, err
	}
	if look.Dated, err = w.store.TableFigures(ctx, dated); err != nil {
		return look, err
	}
	fleet, err := fleet.ListFleet(ctx, w.store, w.liveWithin)
	if err != nil {
		return look, err
	}
	look.Health = JudgeCounts(fleet, spec.HealthWithinMs)
	return look, nil
}

// Drain deletes at most rows rows of the table that have expired.
func (w *RetirementWork) Drain(ctx context.Context, table string, rows int) (cleanup.Batch, error) {
	ctx, cancel := context.WithTimeout(ctx, retirementStepTimeout)
	defer cancel()
	if table != Blocklist {
		return cleanup.Batch{}, fmt.Errorf("%w: rows of %s are not deleted", controlplane.ErrInvalid, table)
	}
	now, err := w.store.Now(ctx)
	if err != nil {
		return cleanup.Batch{}, err
	}
	start := time.Now()
	deleted, err := w.store.DeleteExpiredBlocklist(ctx, now.Add(-w.grace), rows)
	if err != nil {
		return cleanup.Batch{}, err
	}
	w.metrics.RowsRetired(deleted)
	return cleanup.Batch{Rows: deleted, Took: time.Since(start)}, nil
}

// Rename gives a table another name.
func (w *RetirementWork) Rename(ctx context.Context, table, from, to string, fence int64) (TableNames, error) {
	ctx, cancel := context.WithTimeout(ctx, retirementStepTimeout)
	defer cancel()
	return w.store.RenameTable(ctx, table, from, to, fence)
}

// Drop drops the dated table.
func (w *RetirementWork) Drop(ctx context.Context, table, dated string, fence int64) (TableDrop, error) {
	ctx, cancel := context.WithTimeout(ctx, retirementStepTimeout)
	defer cancel()
	return w.store.DropTable(ctx, table, dated, fence)
}
