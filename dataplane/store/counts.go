package store

import (
	"context"
	"errors"

	"github.com/weirhq/weir/shared/window"
)

// CountStore is where regions meet: a grow-only counter with one component for
// each cell and region, merged by max, and beside it what operators set and what
// nodes report.
//
// All methods may run concurrently and obey ctx's deadline.
type CountStore interface {
	// Publish raises region's own components to the given counts; a smaller count
	// than the stored one changes nothing. Counts must be sorted by
	// window.Cell.Compare, without duplicates, at most PublishRowsMax; they go out
	// as one statement. After nil all are stored, and every later Import tells of
	// those that are not Quiet. An error that wraps ErrRefused means that none is stored and at least one
	// row never will be; after any other error the caller may repeat the same call
	// with no harm done.
	Publish(ctx context.Context, region string, counts []Count) error

	// Import calls yield at most once for each cell that expires after nowMs (Unix
	// milliseconds) and has a component from any region, in no particular order:
	// with the zero Cursor for all of them, otherwise for those of which another
	// region's component was raised by a Publish, not quietly, since the Import that
	// returned after, and for a few more. Each is yielded whole: all its regions' components
	// are in it, as they are now. yield must not block.
	//
	// It returns the Cursor for the next call. After an error that is after itself,
	// and what was yielded is still true.
	//
	// What it leaves out unless all are asked for: a component of region itself that
	// was raised alone, as the region has its own ways to know; the counts of a
	// Publish that did not return nil and was never repeated; and perhaps what a
	// store stored that is too slow to be in time again and again. So ask for all now
	// and then.
	Import(ctx context.Context, region string, nowMs int64, after Cursor, yield func(Imported)) (Cursor, error)

	// PublishDigest replaces what a node of region last said of the keys it sees. One
	// that has not changed need not be published again before it is about to expire.
	// ErrRefused is for one that will never be stored.
	PublishDigest(ctx context.Context, region string, d Digest) error

	// Digests calls yield for each digest of another region that expires after nowMs:
	// with the zero Cursor for all, otherwise for those replaced since the call that
	// returned after, and for a few more. yield may keep the Digest. It returns the
	// Cursor for the next call; after an error that is after itself.
	Digests(ctx context.Context, region string, nowMs int64, after Cursor, yield func(Digest)) (Cursor, error)

	Settings
}

// ErrRefused marks rows that a CountStore will never accept, however often they
// are sent: the fault is in at least one of the rows, not in the store. The
// flusher bisects such a chunk until it has found them.
var ErrRefused = errors.New("count store: refused the rows")

// PublishRowsMax is how many rows one Publish may carry.
const PublishRowsMax = 500

// Cursor is a moment on the clock of a CountStore, in a form of its own: callers keep
// it and hand it back. Zero is before everything.
type Cursor int64

// Count is a region's count in one cell.
type Count struct {
	Cell  window.Cell
	Count int64

	// CountedAtMs is when the newest cost in Count was accepted, in Unix milliseconds
	// by the publisher's clock; 0 is unknown. It is stored with the count that it came
	// with, and not at all with one that is not larger than the stored one.
	CountedAtMs int64

	// Shared tells that the publisher knows of another region that uses this key.
	// Once stored as true it stays.
	Shared bool

	// Quiet tells that no other region needs to know yet: no Import has to tell of it
	// that does not ask for all. A row that was only ever raised quietly is told of with
	// the first Publish that is not quiet, whether that raises it or not; any other row
	// when it is next raised by one.
	Quiet bool
}

// Imported is what a CountStore holds of one cell, seen from a region.
type Imported struct {
	Cell    window.Cell
	Foreign int64 // sum of all other regions' components
	Own     int64 // the region's own component: a lower bound of its true count

	// The foreign component with the youngest cost in it, and when that was accepted
	// by its publisher's clock; of several as young, the one whose region is the
	// greatest as bytes. "" and 0 without a foreign component.
	NewestRegion string
	NewestAtMs   int64
}
