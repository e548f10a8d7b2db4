package store

import (
	"context"
	"errors"

	"github.com/weirhq/weir/shared/window"
)

// CountStore keeps the accepted counts of all regions permanently. It is a grow-only counter with a component for
// each cell and region, merged by max. Relays write it, and read it when they take over.
//
// All methods must be safe to call concurrently, and must obey ctx's deadline.
type CountStore interface {
	// Publish raises region's own components to the given counts; a smaller count than the stored count changes nothing.
	// Counts must be sorted by window.Cell.Compare, without duplicates, at most PublishRowsMax. They must be written as
	// one statement. After nil, all counts are stored. An error that wraps ErrRefused means that none is stored and that
	// the store will never accept at least one of the rows. After any other error the caller can safely repeat the same
	// call.
	Publish(ctx context.Context, region string, counts []Count) error

	// Import calls yield once for each component of each cell that expires after nowMs (Unix milliseconds), in no
	// particular order. yield must not block. After an error, the yielded counts are still valid.
	//
	// Import leaves out a component that last grew when its cell was Ahead, because its region's clock was ahead then,
	// so the count belongs to another time. For that check, Import compares the store's own clock, which may be wrong,
	// with nowMs.
	Import(ctx context.Context, nowMs int64, yield func(region string, c Count)) error
}

// ErrRefused marks rows that a CountStore will never accept, however often they are sent, because at least one of the
// rows is invalid. A relay bisects such a chunk until it has found the invalid rows.
var ErrRefused = errors.New("count store: refused the rows")

// PublishRowsMax is the highest number of rows in a Publish.
const PublishRowsMax = 500

// Count is a region's count in a cell.
type Count struct {
	Cell  window.Cell
	Count int64 // 0 to CountMax
}
