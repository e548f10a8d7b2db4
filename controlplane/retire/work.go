package retire

import (
	"context"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
)

// stepTimeout bounds one step: longer than a rename waits for its locks.
const stepTimeout = 15 * time.Second

// Store is what a retirement needs of MySQL. All methods may be called at once.
type Store interface {
	fleet.Store
	controlplane.JobStates
	// Now is the clock of the database.
	Now(ctx context.Context) (time.Time, error)
	// TableFigures are of a table of the blocklist's form; nil: there is none.
	TableFigures(ctx context.Context, name string) (*TableFigures, error)
	// DeleteExpiredBlocklist deletes at most rows rows that expired before cutoff.
	DeleteExpiredBlocklist(ctx context.Context, cutoff time.Time, rows int) (deleted int64, err error)
	// RenameTable gives the table named from the name to, if there is one of the first name and none of the other, and
	// tells which are there afterwards. A fence that is lower than that of an earlier rename or drop does nothing.
	RenameTable(ctx context.Context, table, from, to string, fence int64) (TableNames, error)
	// DropTable drops the dated table if it is empty and nothing has the table's name, and tells how many rows it still
	// has otherwise and which names are there afterwards. Its fence is as of RenameTable.
	DropTable(ctx context.Context, table, dated string, fence int64) (TableDrop, error)
}

// Work is the database that retirements work with.
type Work struct {
	store      Store
	liveWithin time.Duration
	grace      time.Duration
	metrics    *controlplane.Metrics
}

// NewWork returns the work of retirements on a database. A node not heard of for longer than liveWithin is
// not live; rows are kept for grace after they have expired, as the cleanup keeps them.
func NewWork(store Store, liveWithin, grace time.Duration,
	metrics *controlplane.Metrics) *Work {
	return &Work{store: store, liveWithin: liveWithin, grace: grace, metrics: metrics}
}
