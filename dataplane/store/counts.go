package store

import (
	"context"
	"errors"

	"github.com/weirhq/weir/shared/window"
)

// CountStore keeps for good what regions have accepted: a grow-only counter with one
// component for each cell and region, merged by max. Relays write it, and read it when
// they take over.
//
// All methods may run concurrently and obey ctx's deadline.
type CountStore interface {
	// Publish raises region's own components to the given counts; a smaller count
	// than the stored one changes nothing. Counts must be sorted by
	// window.Cell.Compare, without duplicates, at most PublishRowsMax; they go out
	// as one statement. After nil all are stored. An error that wraps ErrRefused means that
	// none is stored and at least one row never will be; after any other error the caller may
	// repeat the same call with no harm done.
	Publish(ctx context.Context, region string, counts []Count) error

	// Import calls yield once for each component of each cell that expires after nowMs (Unix
	// milliseconds), in no particular order. yield must not block. After an error, what
	// was yielded is still true.
	Import(ctx context.Context, nowMs int64, yield func(region string, c Count)) error
}

// ErrRefused marks rows that a CountStore will never accept, however often they
// are sent: the fault is in at least one of the rows, not in the store. A relay bisects
// such a chunk until it has found them.
var ErrRefused = errors.New("count store: refused the rows")

// PublishRowsMax is how many rows one Publish may carry.
const PublishRowsMax = 500

// Count is a region's count in one cell.
type Count struct {
	Cell  window.Cell
	Count int64 // 0 to CountMax
}
