package retire

import (
	"context"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
)

// stepTimeout bounds each step. It must be longer than a rename waits for its locks.
const stepTimeout = 15 * time.Second

// Store has the operations on MySQL that a retirement needs. Implementations must allow concurrent calls.
type Store interface {
	fleet.Store
	controlplane.JobStates
	// Now returns the time of the database's clock.
	Now(ctx context.Context) (time.Time, error)
	// TableFigures returns the figures of a table with the blocklist's columns; nil: there is none.
	TableFigures(ctx context.Context, name string) (*TableFigures, error)
	// DeleteExpiredBlocklist deletes at most rows rows that expired before cutoff.
	DeleteExpiredBlocklist(ctx context.Context, cutoff time.Time, rows int) (deleted int64, err error)
	// RenameTable renames the table from one name to the other, if a table has the first name and none has the other. It
	// returns which names exist afterwards. It must return an error and do nothing if an earlier rename or drop had a
	// higher fence.
	RenameTable(ctx context.Context, table, from, to string, fence int64) (TableNames, error)
	// DropTable drops the dated table if it is empty and no table has the original name. It returns which names exist
	// afterwards and, if the table was not dropped, the rows that it still has. fence has the meaning of RenameTable.
	DropTable(ctx context.Context, table, dated string, fence int64) (TableDrop, error)
}

// Work has the database of retirements.
type Work struct {
	store      Store
	liveWithin time.Duration
	grace      time.Duration
	metrics    *controlplane.Metrics
}

// NewWork returns the work of retirements on a database. A node that has sent no heartbeat for longer than liveWithin
// is not live. Rows are kept for grace after they have expired, as the cleanup keeps them.
func NewWork(store Store, liveWithin, grace time.Duration,
	metrics *controlplane.Metrics) *Work {
	return &Work{store: store, liveWithin: liveWithin, grace: grace, metrics: metrics}
}
