package store

import (
	"context"
	"errors"
	"time"
)

// ErrTaken refuses a row whose number is not the next one of its stream: another relay has written that number, or the
// store has lost the row before it. The relay that gets it forgets what it has read of its stream and starts again.
var ErrTaken = errors.New("feed: the row's number is not the next one of its stream")

// Feed is where relays tell each other what has changed: for each stream (a region and a shard of
// its origin) rows that are numbered without gaps. A row is written when all before it are, so a reader
// that has read up to a number has missed nothing, whatever the clocks say and in whatever order
// transactions commit.
//
// A snapshot is whole when its last part is stored.
//
// All methods may run concurrently, obey ctx's deadline, and keep no reference to their arguments.
type Feed interface {
	// Append stores a row whose Sequence is one more than that of the last row of its stream, 1 in an empty stream.
	// ErrTaken: the Sequence is another one, or that number is stored by another Writer or with other content.
	// ErrRefused: the row breaks a bound (see FeedRow.Validate). After any other error the row may be stored or not:
	// append it again; one that its Writer has stored already is no error.
	Append(ctx context.Context, row FeedRow) error

	// Read returns rows of all streams of other regions than the reader's. Of a stream whose cursor is still stored:
	// the rows with larger numbers, and of these the parts of snapshots without their payload, since they tell what the
	// rows before them have told; with Parts they have it. Of any other: the rows from its last whole snapshot on, all
	// if there is none. A stored cursor is one that was read, and whose row was neither pruned nor lost by a store that
	// was restored from a backup; in the latter case the numbers of the rows may be smaller than the cursor's.
	//
	// A Read with Prove finds every cursor that is not stored; one without it costs a row a stream less, and finds a
	// cursor only if the next stored row is not the next by number. So a reader that proves its cursors from time to
	// time, and where a stream goes on by another Writer than the cursor's, misses nothing for longer than that.
	//
	// Of streams without a stored cursor it reads those that come first by their names, as many as make StreamsMax with
	// the others. A stream beyond them that has a cursor may be among those that are Gone.
	//
	// Rows come in the order of their streams and of their numbers, at most about MaxBytes of them, and at least one
	// if there is one: a row counts as the payload that it comes with and FeedRowBytes. It is one statement, and
	// further ones only when some stream has no stored cursor, or rows are long.
	Read(ctx context.Context, q FeedQuery) (FeedPage, error)

	// Own yields a stream's rows from its last whole snapshot on, all if there is none. It may have yielded rows before
	// an error.
	Own(ctx context.Context, stream Stream, yield func(FeedRow)) error

	// Prune deletes a stream's rows below sequence, the lowest first, at most max, and never the stream's last row. It
	// returns how many it has deleted.
	Prune(ctx context.Context, stream Stream, sequence int64, max int) (deleted int, err error)
}

// Stream names a sequence of rows.
type Stream struct {
	Region string // 1 to RegionBytesMax bytes
	Shard  int    // 0 to FeedShardsMax - 1
}

// FeedRow is what a relay tells in one interval.
type FeedRow struct {
	Stream
	Sequence  int64     // 1, 2, 3, …
	Writer    uint64    // random, drawn anew each time a relay starts on the stream, also after ErrTaken
	Snapshot  int64     // 0, or the Sequence of the first row of the snapshot that this row is a part of
	Last      bool      // the row is the last part of its snapshot
	Payload   []byte    // see package relay; at most FeedBytesMax
	WrittenAt time.Time // by the store's clock; Append ignores it
}

// Cursor is where to read on after this row.
func (r FeedRow) Cursor() FeedCursor { return FeedCursor{r.Sequence, r.Writer} }

// FeedCursor is the last row that was read of a stream. The zero value is none.
type FeedCursor struct {
	Sequence int64
	Writer   uint64
}

// FeedQuery is what a Read asks for.
type FeedQuery struct {
	Region   string                // the reader's own
	After    map[Stream]FeedCursor // where it has read up to
	Prove    bool                  // look whether the cursors' rows are still stored
	Parts    bool                  // parts of snapshots come with their payload: the last page ended within one
	MaxBytes int

	StreamsMax int // how many streams are read; 0 is all
}

// FeedPage is what a Read returns.
type FeedPage struct {
	Rows []FeedRow
	Gone []Stream  // streams of After whose cursors are not stored, and that have no row
	More bool      // rows are left out: read again at once, with Prove if this Read had it
	Full bool      // streams are left out, as there are more than StreamsMax
	Now  time.Time // the store's clock, before the rows were read

	// Settings is the version of what operators have set: another one after each change, except those that were made
	// past the control plane. 0: the store has none.
	Settings int64
}

const (
	// FeedBytesMax is how long a row's payload may be.
	FeedBytesMax = 256 << 10

	// FeedRowBytes is what a row counts beside its payload.
	FeedRowBytes = 64

	// FeedShardsMax is how many shards a region may have.
	FeedShardsMax = 1 << 16

	// RegionBytesMax is how long a region's name may be.
	RegionBytesMax = 48
)
