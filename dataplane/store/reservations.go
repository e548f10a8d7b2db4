package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Reservations is an origin's part in reservations by id. A hold is a cost that is reserved in one cell: it counts in
// the region's total until the hold has ended, and what was spent of it counts for as long as the cell lasts. The sum
// of a cell's holds may fall again, but totals only grow: a total includes the largest sum that the cell's holds have
// had so far. Any node's holds may use the gap between the sum and that largest sum; nothing else may.
//
// The reservation itself, which may have holds in several shards, is a note, whose text is for nodes alone.
type Reservations interface {
	// Hold says what holds of a shard are from now on, each for itself: see Hold. With no holds, Hold returns without a
	// round trip. An error means that none, some or all of it was done; the same call again does what is left.
	Hold(ctx context.Context, shard int, holds []Hold) (HoldReply, error)

	// Note stores a note if the stored one of its ID has the Version before it: none has 0. Otherwise, and for Version
	// 0, it changes nothing. It returns what is stored then; stored is true if that is note. A note is kept for
	// its TTL. The same call again answers the same.
	Note(ctx context.Context, note Note) (now Note, stored bool, err error)
}

const (
	// HoldsMax is how many holds a cell has at most, those included that ended less than HoldKeptFor ago. What is
	// beyond is refused with ErrHolds.
	HoldsMax = 1000

	// HoldKeptFor is how long an origin knows that a hold has ended, if its cell lasts as long.
	HoldKeptFor = time.Minute

	// HoldAttemptsMax is how many attempts at a hold an origin tells apart.
	HoldAttemptsMax = 16

	// HoldTTLMax bounds the duration of a hold.
	HoldTTLMax = window.DurationMax

	// NoteTTLMax bounds how long a note is kept: longer than its holds, so that late calls find it.
	NoteTTLMax = HoldTTLMax + time.Hour

	// NoteBytesMax is how long a note's text may be.
	NoteBytesMax = 64 << 10

	// ReservationIDBytesMax is how long a reservation's id may be; it has at least 1 byte.
	ReservationIDBytesMax = 128
)

// ErrHolds refuses a hold of a cell that has HoldsMax.
var ErrHolds = errors.New("origin: the key has too many reservations")

// ErrHoldUsed refuses a Step 0 of a hold that was asked for with another Cost.
var ErrHoldUsed = errors.New("origin: the hold is that of another reservation")

// Hold is a word about one hold, named by its cell and the reservation's ID.
//
// The first word of a hold has Step 0. It is granted if
//
//	Cost + used + floor(used before * the share of the cell before that a window still covers) <= Limit
//
// where used is what the cell counts, other regions' included, without what was returned by holds. The words that
// follow have larger Steps, count whatever the limit is, and may come in any order: one that is not larger than the
// last changes nothing, nor does one about a hold that the origin does not know (any more), without Again. A cell that
// has expired takes no words.
type Hold struct {
	ID   string
	Cell window.Cell

	// Before is the cell before, by the name that it has: it may be of another generation. Of Step 0 alone.
	Before window.Cell

	Step int64 // 0 to CountMax

	// Attempt tells one asking for the hold from another, at random. Step 0 again is granted, also by another
	// Attempt; but where the hold has ended and counts nothing, that makes a new one.
	Attempt uint64

	// Undo takes back the Step 0 of this Attempt: it ends the hold, as if there had never been one, if all attempts
	// that have asked for it are taken back, and no other word has come. After more than HoldAttemptsMax it ends nothing.
	Undo bool

	Cost  int64         // counts until the hold ends
	After int64         // counts from then on, at most Cost
	TTL   time.Duration // from the call's arrival, at most HoldTTLMax; 0: the hold has ended, and After counts
	Limit int64         // as Cost.Limit; of Step 0 also what the hold must fit
	Force bool          // Step 0 is granted whatever the limit is

	// Again says of a hold which an origin has lost what it was: Cost is in the totals that nodes restore, and is not
	// added to them.
	Again bool

	// Look is of a Step 0 that only asks: it changes nothing, and is granted if it would be.
	Look bool
}

// HoldAnswer is what came of one word.
type HoldAnswer struct {
	// Granted is false of a Step 0 that does not fit. All other words are.
	Granted bool

	// Late is true of a word that has changed nothing since a later one has come, the hold is not known, or the cell has
	// expired, and of Step 0 where another Attempt has asked: the hold ends when the first said.
	Late bool

	Used, UsedBefore int64 // what the formula of Hold has for the two cells, the hold itself included once granted
	Total            Total // of the cell
}

// HoldReply answers words in their order.
type HoldReply struct {
	Answers []HoldAnswer
	Now     time.Time
}

// Note is a reservation as its origin keeps it, in the shard of its ID.
type Note struct {
	ID      string        // 1 to ReservationIDBytesMax bytes
	Version int64         // 0 to CountMax; 0: no note
	Text    string        // at most NoteBytesMax bytes
	TTL     time.Duration // how long to keep the note from now: 1 ms to NoteTTLMax
	Again   bool          // it is stored whatever version before it there is: the origin may have lost it
	Epoch   Epoch         // of where it is kept; of answers alone
	Now     time.Time     // when it was looked up; of answers alone
}

// NoteKey names a note's place as a cell's key would.
func NoteKey(id string) window.Key { return window.Key{Identifier: id, Duration: window.DurationMin} }

// CheckHold tells what is out of bounds in a word.
func CheckHold(h *Hold) error {
	switch {
	case len(h.ID) < 1 || len(h.ID) > ReservationIDBytesMax:
		return fmt.Errorf("%w: the hold's id has %d bytes (1 to %d)", window.ErrInvalid, len(h.ID), ReservationIDBytesMax)
	case h.Cost < 0 || h.Cost > CountMax:
		return fmt.Errorf("%w: the hold's cost is %d (0 to %d)", window.ErrInvalid, h.Cost, int64(CountMax))
	case h.After < 0 || h.After > h.Cost:
		return fmt.Errorf("%w: the hold's cost afterwards is %d (0 to %d)", window.ErrInvalid, h.After, h.Cost)
	case h.Step < 0 || h.Step > CountMax || h.Limit < 0:
		return fmt.Errorf("%w: step and limit of the hold are %d and %d (0 to %d)", window.ErrInvalid, h.Step, h.Limit,
			int64(CountMax))
	case h.TTL < 0 || h.TTL > HoldTTLMax:
		return fmt.Errorf("%w: the hold's time to live is %v (0 to %v)", window.ErrInvalid, h.TTL, HoldTTLMax)
	case h.Step == 0 && h.Attempt == 0:
		return fmt.Errorf("%w: the hold's attempt is 0", window.ErrInvalid)
	}
	return nil
}

// CheckNote tells what is out of bounds in a note.
func CheckNote(n *Note) error {
	switch {
	case len(n.ID) < 1 || len(n.ID) > ReservationIDBytesMax:
		return fmt.Errorf("%w: the note's id has %d bytes (1 to %d)", window.ErrInvalid, len(n.ID), ReservationIDBytesMax)
	case len(n.Text) > NoteBytesMax:
		return fmt.Errorf("%w: the note has %d bytes (at most %d)", window.ErrInvalid, len(n.Text), NoteBytesMax)
	case n.Version < 0 || n.Version > CountMax:
		return fmt.Errorf("%w: the note's version is %d (0 to %d)", window.ErrInvalid, n.Version, int64(CountMax))
	case n.Version > 0 && (n.TTL < time.Millisecond || n.TTL > NoteTTLMax):
		return fmt.Errorf("%w: the note's time to live is %v (1 ms to %v)", window.ErrInvalid, n.TTL, NoteTTLMax)
	}
	return nil
}
