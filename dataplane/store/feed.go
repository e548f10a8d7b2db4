package store

import (
	"context"
	"errors"
	"time"
)

// ErrTaken is returned for a row whose number is not the next number of its stream. Either another relay has written
// that number, or the store has lost the row before it. The relay that receives it must forget everything that it has
// read of its stream, and start again.
var ErrTaken = errors.New("feed: the row's number is not the next one of its stream")

// Feed is the change feed between relays. Each stream (a region and a shard of its origin) has rows that are numbered
// without gaps. A row is written only after all rows before it. So a reader that has read up to a number has missed
// nothing, whatever the clocks show and in whatever order transactions commit.
//
// A snapshot is whole when its last part is stored.
//
// All methods must be safe to call concurrently, obey ctx's deadline, and keep no reference to their arguments.
type Feed interface {
	// Append stores a row whose Sequence is one more than the Sequence of the last row of its stream, 1 in an empty
	// stream. Append returns ErrTaken if the Sequence is another number, or if that number is stored by another Writer
	// or with other content. It returns ErrRefused if the row breaks a bound (see FeedRow.Validate). After any other
	// error the row may be stored or not. The caller should append it again: a row that its Writer has already stored is
	// no error.
	Append(ctx context.Context, row FeedRow) error

	// Read returns rows of the streams of all regions except the reader's. For a stream whose cursor is still stored, it
	// returns the rows with larger numbers. Parts of snapshots among them come without their payload, because they
	// repeat the rows before them; with Parts set, they have it. For any other stream, it returns the rows from its last
	// whole snapshot on, or all rows if there is no whole snapshot. A cursor is stored if its row was read, and was
	// neither pruned nor lost by a store that was restored from a backup. After such a restore, the numbers of the rows
	// may be smaller than the cursor's number.
	//
	// A Read with Prove finds every cursor that is not stored. A Read without Prove reads one row less per stream. It
	// finds such a cursor only if the next stored row does not have the next number. So a reader should set Prove from
	// time to time, and when a stream continues with another Writer than the cursor's. Then it misses nothing for longer
	// than that.
	//
	// Among streams without a stored cursor, Read reads the first by name, so that at most StreamsMax streams are read
	// in total. A stream beyond them that has a cursor may be among the Gone streams.
	//
	// Rows are sorted by stream and number. Read returns about MaxBytes of rows at most, and at least one row if there
	// is any. A row counts as its returned payload plus FeedRowBytes. Read is one statement. It needs further statements
	// only if a stream has no stored cursor, or if rows are long.
	Read(ctx context.Context, q FeedQuery) (FeedPage, error)

	// Own yields a stream's rows from its last whole snapshot on, or all rows if there is no whole snapshot. It may
	// yield rows before it returns an error.
	Own(ctx context.Context, stream Stream, yield func(FeedRow)) error

	// Prune deletes a stream's rows below sequence, the lowest first, at most max, and never the stream's last row. It
	// returns the number of deleted rows.
	Prune(ctx context.Context, stream Stream, sequence int64, max int) (deleted int, err error)
}

// Stream names a sequence of rows.
type Stream struct {
	Region string // 1 to RegionBytesMax bytes
	Shard  int    // 0 to FeedShardsMax - 1
}

// FeedRow has the changes that a relay publishes in one interval.
type FeedRow struct {
	Stream
	Sequence  int64     // 1, 2, 3, …
	Writer    uint64    // random, drawn again each time a relay starts on the stream, also after ErrTaken
	Snapshot  int64     // 0, or the Sequence of the first row of this row's snapshot
	Last      bool      // the row is the last part of its snapshot
	Payload   []byte    // see package relay; at most FeedBytesMax
	WrittenAt time.Time // by the store's clock; Append ignores it
}

// Cursor returns the cursor from which to read the rows after this row.
func (r FeedRow) Cursor() FeedCursor { return FeedCursor{r.Sequence, r.Writer} }

// FeedCursor names the last row that was read of a stream. The zero value means that no row was read.
type FeedCursor struct {
	Sequence int64
	Writer   uint64
}

// FeedQuery has the parameters of a Read.
type FeedQuery struct {
	Region   string                // the reader's own
	After    map[Stream]FeedCursor // the last row that was read of each stream
	Prove    bool                  // check whether the cursors' rows are still stored
	Parts    bool                  // return parts of snapshots with their payload: the last page ended within a snapshot
	MaxBytes int

	StreamsMax int // the highest number of streams to read; 0 means all
}

// FeedPage is the result of a Read.
type FeedPage struct {
	Rows []FeedRow
	Gone []Stream  // streams of After whose cursors are not stored, and that have no row
	More bool      // rows are left out: read again at once, with Prove if this Read had it
	Full bool      // streams are left out, because there are more than StreamsMax
	Now  time.Time // the store's clock, before the rows were read

	// Settings is the version of the operators' settings. It changes with each change, except changes made without the
	// control plane. 0: the store has no settings.
	Settings int64
}

const (
	// FeedBytesMax is the length of the longest payload of a row.
	FeedBytesMax = 256 << 10

	// FeedRowBytes is added to a row's payload when rows are measured.
	FeedRowBytes = 64

	// FeedShardsMax is the highest number of shards of a region.
	FeedShardsMax = 1 << 16

	// RegionBytesMax is the length of the longest name of a region, in bytes.
	RegionBytesMax = 48
)
