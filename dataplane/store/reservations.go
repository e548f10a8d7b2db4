package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Reservations is an origin's part in reservations by ID.
//
// A reservation holds an amount in one or more cells until it is settled or ends. Each amount is a Hold in its cell,
// and the reservation itself is a Record in the group of its ID. For example, 500 tokens are reserved before a model
// answers: a hold of 500 counts in the caller's cell. The answer takes 120, so settling ends the hold, and 120 count
// for as long as the cell lasts.
//
// Keys are in groups. One call is about one group, and is one atomic step. A reservation in several groups takes
// a call for each; the last call is to the group of the record, because a reservation is made once its record is.
//
// # Totals
//
// A region total only grows, but the sum of a cell's holds may fall. So a total includes the largest sum that the
// cell's holds have had so far. Only holds may use the difference between that and their sum now. A call that is
// refused changes neither.
//
// # Lost answers
//
// A call that got no answer may be made again at any time, as it was. Statements about holds and changes of records
// are merged in a way that makes order and repetition harmless: see Hold and Record.
//
// A replica that was promoted may lack calls that were answered. An origin counts the calls that it has applied for
// each stream in each group, and its reply has that Number. The next calls have the largest such Number in After. An
// origin whose count is lower has lost something: it applies nothing, and reports Behind. A Number that comes a second
// time shows the same. The sender then states again, with HoldForced and Restored, what it has learned with the
// numbers that were lost.
type Reservations interface {
	// GroupOf returns a number that is the same for all keys of a group, and the same on every node of the region. All
	// keys of a group are in one shard. In a Redis Cluster a group is a bucket; otherwise it is a shard.
	GroupOf(key *window.Key) int

	// Hold applies a call, or refuses all of it. An error means that the call may or may not have been applied. A call
	// with neither a record nor holds compares After, and returns the group's epoch and clock.
	Hold(ctx context.Context, call HoldCall) (HoldReply, error)
}

const (
	// HoldsMax is how many holds of one cell are open at the same time. A new one beyond that is refused with ErrHolds.
	HoldsMax = 10_000

	// HoldCallMax is how many holds a call has.
	HoldCallMax = 100

	// HoldKeptFor is how long an origin remembers a hold that has ended and a record that has ended or was settled.
	// Statements that come later find nothing.
	HoldKeptFor = time.Minute

	// HoldOwnerBytesMax is how long a hold's owner is.
	HoldOwnerBytesMax = 32

	// HoldTTLMax bounds the duration of a hold.
	HoldTTLMax = window.DurationMax

	// RecordBytesMax is how long a record's text is.
	RecordBytesMax = 64 << 10

	// RecordItemsMax is how many amounts a record's Spent has.
	RecordItemsMax = 32

	// ReservationIDBytesMax is how long a reservation's ID is; it has at least 1 byte.
	ReservationIDBytesMax = 124
)

// ErrHolds is in the answer about a new hold of a cell that has HoldsMax. The call is refused, unless the hold is
// Optional: then the rest of the call is applied without the hold.
var ErrHolds = errors.New("origin: the key has too many reservations")

// HoldCall has a stream's statements about one group.
type HoldCall struct {
	// Group is a key of the group that the call is about: a hold's, or RecordKey of the record's ID.
	Group window.Key

	// Stream is one run of a limiter: drawn at random, not 0.
	Stream uint64

	// After is the largest Number that the stream has been answered in this group, and the epoch of that answer. With
	// another epoch than the group's, or Number 0, nothing is compared. Leave it out if the last answer is older than
	// HoldKeptFor.
	After Mark

	// Record, unless it is nil, is made together with the holds, or is changed in a call without holds.
	Record *Record

	// Holds are at most HoldCallMax. Two of them may be in one cell, and have different owners.
	Holds []Hold
}

// HoldAs selects the effect of a statement if the origin knows no hold of its owner.
type HoldAs uint8

const (
	// HoldState changes nothing then, except that one with TTL 0 keeps a HoldNew of the owner that comes later from being
	// granted. For a HoldForced or HoldRestored that comes later the hold is as unknown as before.
	HoldState HoldAs = iota

	// HoldNew makes the hold if it fits. A call with a HoldNew that does not fit, and is not Optional, is refused.
	HoldNew

	// HoldForced makes the hold whatever the limit is.
	HoldForced

	// HoldRestored is HoldForced for a hold whose Amount is in the totals that nodes restore. It does not add the Amount
	// to the total once more.
	HoldRestored
)

// Hold states the whole of an owner's hold in a cell. The first statement makes the hold, with HoldNew if
//
//	Amount + used + floor(used before * the share of the cell before that a window still covers) <= Limit
//
// where used is the cell's count: the region's total, with the sum of its holds now in place of the largest sum so
// far, and the foreign total. The holds before it in the same call count too. Nothing new fits into a cell whose window
// is over. Cost that nodes have restored as their own (Cost.Restore) counts beside restored holds.
//
// Statements about a hold that is known are merged, so that their order does not matter. A HoldNew is not merged: if
// the owner has a hold, it changes nothing. The others are merged as follows:
//
//   - One with a TTL raises Amount, After and the end to the largest that was stated. It may come after the end.
//   - One with TTL 0 ends the hold for good, and its After counts from then on. No statement that comes later changes
//     anything.
//
// A cell that has expired takes no statements.
type Hold struct {
	Cell window.Cell

	// Before is the cell before, by the name that it has: it may be of another generation. Of HoldNew alone.
	Before window.Cell

	// Owner tells the hold from others of its cell: 1 to HoldOwnerBytesMax bytes, drawn at random and used once.
	Owner string

	Amount int64         // 0 to CountMax: counts until the hold ends
	After  int64         // 0 to Amount: counts from then on
	TTL    time.Duration // 0 to HoldTTLMax, from the call's arrival; 0: the hold has ended
	Limit  int64         // as Cost.Limit; of HoldNew also what the hold must fit

	As HoldAs

	// Optional is of a HoldNew that is left out where it does not fit: the rest of the call is granted without it.
	Optional bool

	// Tentative is of a HoldNew of a reservation in several groups, as long as another group may refuse. Its Amount counts
	// for other holds at once, and is in the region's total after the next statement about it, unless that ends it.
	Tentative bool
}

// Record is the record of a reservation under its ID, or a change of the record.
//
// A record with a Text is stored if there is none of this ID. Otherwise nothing of the call is applied, its holds
// included, and the answer has what is stored. The same Text again finds its own record: it must contain something
// that was drawn at random.
//
// A record without a Text changes the one that is stored, while that is neither settled nor has ended: each amount of
// Spent and the end are raised to the largest so far, and Settled stays. Nothing changes if there is none, or if Spent
// has another number of amounts than were stored first.
type Record struct {
	ID      string
	Text    string        // at most RecordBytesMax bytes
	Spent   []int64       // one for each item, 0 to CountMax each; none in a change leaves them as they are
	TTL     time.Duration // 0 to HoldTTLMax, from the call's arrival: when the reservation ends; 0: as it is
	Settled bool

	// Attempt is drawn for each change that has Settled, not 0. The same change again, after its answer was lost, is
	// Changed too.
	Attempt uint64

	// Restored stores a record that the origin may have lost: without a stored record, Text, Spent, TTL and Settled,
	// whatever they are. A stored record with the same text is changed by Spent, TTL and Settled unless it is settled. If
	// it has ended, the TTL opens it again. For example, an origin has lost that a reservation was extended, and lets it
	// end: the node that knows of the extension restores it.
	Restored bool

	// Withdraw ends a reservation whose maker got no answer. Text is what the maker has sent.
	//
	// It changes nothing if another text is stored, or if another caller relies on the record: a call that is Restored
	// has stored it, or any other call has found it since, also one that was refused. A Restored one with another Text
	// does not count.
	//
	// A withdrawn record is Settled. For calls that have another Text or none, or are Restored, it is as if there were no
	// record. If there is none, it is stored as withdrawn, so that a call with this Text that comes later finds it.
	Withdraw bool
}

// RecordAnswer is the record that is stored after a call.
type RecordAnswer struct {
	Text    string // "": there is no record
	Spent   []int64
	EndsMs  int64 // Unix ms, by the origin's clock
	Settled bool
	Changed bool // this call has stored or changed it, or the same call before
}

// HoldAnswer is the answer about one hold.
type HoldAnswer struct {
	// Held reports whether the origin has the hold: it has not ended for good.
	Held bool

	// Fits is of a HoldNew: it is held, or would be if the call were not refused.
	Fits bool

	// Used and UsedBefore are the counts of the two cells in the formula of Hold, without the hold itself.
	Used, UsedBefore int64

	// Open is how many holds of the cell were open before the statement. It may include holds whose time has come. Nodes
	// keep callers within their shares of HoldsMax by it: for example, with 9,000 open holds, 1,000 are free, so a node
	// refuses a caller that has 1,000 through it.
	Open int64

	// Total is the cell's after the call. Its Err is ErrHolds, or any other for a cell that cannot hold counts. The call
	// is refused then, unless the hold is Optional.
	Total Total
}

// HoldReply answers a call. Answers are in the order of its holds.
type HoldReply struct {
	Epoch   Epoch
	Now     time.Time // the group's clock
	Number  int64     // how many calls of the stream the group has applied, this one included; 0 for one that was refused
	Behind  bool      // the group has lost calls after Have, and has applied nothing: see Reservations
	Have    int64     // of Behind: how many calls of the stream the group has
	Refused bool      // nothing was applied: a hold does not fit, or another record has the ID
	Record  RecordAnswer
	Answers []HoldAnswer // none with Behind, or where another record has the ID
}

// RecordKey names the place of a reservation's record as a cell's key would. An ID that is drawn until GroupOf its
// RecordKey is that of the first hold saves a call.
func RecordKey(id string) window.Key { return window.Key{Identifier: id, Duration: window.DurationMin} }

// CheckHoldCall returns an error that wraps window.ErrInvalid if a part of a call is out of bounds.
func CheckHoldCall(c *HoldCall) error {
	switch {
	case c.Stream == 0:
		return fmt.Errorf("%w: the stream is 0", window.ErrInvalid)
	case c.After.Number < 0 || c.After.Number > CountMax:
		return fmt.Errorf("%w: after is call %d (0 to %d)", window.ErrInvalid, c.After.Number, int64(CountMax))
	case len(c.Holds) > HoldCallMax:
		return fmt.Errorf("%w: a call has %d holds (at most %d)", window.ErrInvalid, len(c.Holds), HoldCallMax)
	case c.Record != nil && len(c.Holds) > 0 && (c.Record.Text == "" || c.Record.Withdraw):
		return fmt.Errorf("%w: a call that changes a record has %d holds (0)", window.ErrInvalid, len(c.Holds))
	}
	if c.Record != nil {
		if err := checkRecord(c.Record); err != nil {
			return err
		}
	}
	for i := range c.Holds {
		if err := checkHold(&c.Holds[i]); err != nil {
			return fmt.Errorf("holds[%d]: %w", i, err)
		}
	}
	return nil
}

func checkHold(h *Hold) error {
	switch {
	case len(h.Owner) < 1 || len(h.Owner) > HoldOwnerBytesMax:
		return fmt.Errorf("%w: the owner has %d bytes (1 to %d)", window.ErrInvalid, len(h.Owner), HoldOwnerBytesMax)
	case h.Amount < 0 || h.Amount > CountMax:
		return fmt.Errorf("%w: the amount is %d (0 to %d)", window.ErrInvalid, h.Amount, int64(CountMax))
	case h.After < 0 || h.After > h.Amount:
		return fmt.Errorf("%w: the amount afterwards is %d (0 to %d)", window.ErrInvalid, h.After, h.Amount)
	case h.Limit < 0:
		return fmt.Errorf("%w: the limit is %d (0 or more)", window.ErrInvalid, h.Limit)
	case h.TTL < 0 || h.TTL > HoldTTLMax || h.As == HoldNew && h.TTL == 0:
		return fmt.Errorf("%w: the time to live is %v (0 to %v, and not 0 for a new hold)", window.ErrInvalid, h.TTL,
			HoldTTLMax)
	case h.As > HoldRestored || (h.Optional || h.Tentative) && h.As != HoldNew:
		return fmt.Errorf("%w: it is stated as %d, optional %v, tentative %v", window.ErrInvalid, h.As, h.Optional,
			h.Tentative)
	}
	return nil
}

func checkRecord(r *Record) error {
	switch {
	case len(r.ID) < 1 || len(r.ID) > ReservationIDBytesMax:
		return fmt.Errorf("%w: the reservation's ID has %d bytes (1 to %d)", window.ErrInvalid, len(r.ID),
			ReservationIDBytesMax)
	case len(r.Text) > RecordBytesMax:
		return fmt.Errorf("%w: the record has %d bytes (at most %d)", window.ErrInvalid, len(r.Text), RecordBytesMax)
	case len(r.Spent) > RecordItemsMax:
		return fmt.Errorf("%w: the record has %d amounts (at most %d)", window.ErrInvalid, len(r.Spent), RecordItemsMax)
	case r.TTL < 0 || r.TTL > HoldTTLMax || r.Text != "" && !r.Withdraw && !r.Settled && r.TTL == 0:
		return fmt.Errorf("%w: the record's time to live is %v (0 to %v, and not 0 for a new one)", window.ErrInvalid,
			r.TTL, HoldTTLMax)
	case r.Text == "" && (r.Restored || r.Withdraw) || r.Restored && r.Withdraw:
		return fmt.Errorf("%w: the record's text has %d bytes, restored %v, withdrawn %v", window.ErrInvalid, len(r.Text),
			r.Restored, r.Withdraw)
	}
	for i, n := range r.Spent {
		if n < 0 || n > CountMax {
			return fmt.Errorf("%w: spent[%d] is %d (0 to %d)", window.ErrInvalid, i, n, int64(CountMax))
		}
	}
	return nil
}
