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
// Keys are in groups. Each call is about one group, and must be one atomic step. A reservation in several groups
// takes a call for each group. The last call is to the group of the record, because a reservation exists from the
// moment when its record does.
//
// # Totals
//
// A region total only grows, but the sum of a cell's holds can fall. So a total includes the largest sum that the
// cell's holds have had so far. Only holds may use the difference between that and their sum now. A call that is
// refused changes neither.
//
// # Lost answers
//
// A call that got no answer can be repeated unchanged at any time. Statements about holds and changes of records are
// merged, so that their order and repetition do no harm: see Hold and Record.
//
// A replica that was promoted may lack answered calls. An origin counts the calls that it has applied for each stream
// in each group, and its reply has that Number. The next calls have the largest such Number in After. If the origin's
// count is lower, the origin has lost calls: it applies nothing, and returns Behind. A Number that comes a second
// time also shows a loss. The sender then repeats, with HoldForced and Restored, the statements whose numbers were
// lost. A group that was emptied has another epoch, and all of its statements are repeated in the same way.
type Reservations interface {
	// GroupOf returns a number that is the same for all keys of a group, and must be the same on every node of the
	// region. All keys of a group are in one shard. In a Redis Cluster a group is a bucket; otherwise it is a shard.
	GroupOf(key *window.Key) int

	// Hold applies a call, or refuses all of it. After an error, the call may or may not have been applied. A call with
	// neither a record nor holds compares After, and returns the group's epoch and clock.
	Hold(ctx context.Context, call HoldCall) (HoldReply, error)
}

const (
	// HoldsMax is the highest number of open holds of a cell. A new hold beyond that is refused with ErrHolds.
	HoldsMax = 10_000

	// HoldCallMax is the highest number of holds in a call.
	HoldCallMax = 100

	// HoldKeptFor is how long an origin keeps a hold that has ended, and a record that has ended or was settled. Later
	// statements find nothing.
	HoldKeptFor = time.Minute

	// HoldOwnerBytesMax is the length of the longest owner of a hold, in bytes.
	HoldOwnerBytesMax = 32

	// HoldTTLMax bounds the duration of a hold.
	HoldTTLMax = window.DurationMax

	// RecordBytesMax is the length of the longest text of a record, in bytes.
	RecordBytesMax = 64 << 10

	// RecordItemsMax is the highest number of amounts in a record's Spent.
	RecordItemsMax = 32

	// ReservationIDBytesMax is the length of the longest ID of a reservation, in bytes; it has at least 1 byte.
	ReservationIDBytesMax = 124
)

// ErrHolds is in the answer about a new hold of a cell that has HoldsMax. The call is refused, unless the hold is
// Optional: then the rest of the call is applied without the hold.
var ErrHolds = errors.New("origin: the key has too many reservations")

// HoldCall has a stream's statements about one group.
type HoldCall struct {
	// Group is a key of the group of the call: the key of a hold, or RecordKey of the record's ID.
	Group window.Key

	// Stream is one run of a limiter: drawn at random, not 0.
	Stream uint64

	// After is the largest Number that the stream has received from this group, and the epoch of that answer. If the
	// epoch is not the group's, or Number is 0, nothing is compared. Leave it out if the last answer is older than
	// HoldKeptFor.
	After Mark

	// Record, if it is not nil, is stored together with the holds, or is changed in a call without holds.
	Record *Record

	// Holds has at most HoldCallMax holds. Several of them can be in a cell, if they have different owners.
	Holds []Hold
}

// HoldAs selects the effect of a statement if the origin has no hold of its owner.
type HoldAs uint8

const (
	// HoldState changes nothing then, with one exception: with TTL 0 it prevents that a later HoldNew of the owner is
	// granted. It has no effect on a later HoldForced.
	HoldState HoldAs = iota

	// HoldNew makes the hold if it fits. A call with a HoldNew that does not fit, and is not Optional, is refused.
	HoldNew

	// HoldForced makes the hold whatever the limit is. If Hold.Epoch is not the group's, the group was emptied since the
	// hold was first made. Its Amount is then in the totals that nodes restore, and is not added once more.
	HoldForced
)

// Hold states an owner's whole hold in a cell. The first statement makes the hold. With HoldNew, the hold is made
// only if
//
//	Amount + used + floor(used before * the share of the cell before that a window still covers) <= Limit
//
// where used is the cell's count: the region's total, with the sum of its holds now in place of the largest sum so
// far, and the foreign total. The holds before it in the same call count too. No new hold fits into a cell whose
// window is over. Cost that nodes have restored as their own (Cost.Restore) counts in addition to restored holds.
//
// Further statements about a hold are merged, so that their order does not matter. A HoldNew is not merged: if the
// owner has a hold, it changes nothing. The others are merged as follows:
//
//   - A statement with a TTL raises Amount, After and the end to the largest stated values. It may come after the
//     end.
//   - A statement with TTL 0 ends the hold for good, and its After counts from then on. No later statement changes
//     anything.
//
// A cell that has expired accepts no statements.
type Hold struct {
	Cell window.Cell

	// Before is the previous cell, by its own name: it can be of another generation. Only HoldNew uses it.
	Before window.Cell

	// Owner identifies the hold among the holds of its cell: 1 to HoldOwnerBytesMax bytes, drawn at random and used
	// once.
	Owner string

	Amount int64         // 0 to CountMax: counts until the hold ends
	After  int64         // 0 to Amount: counts after the hold has ended
	TTL    time.Duration // 0 to HoldTTLMax, from the call's arrival; 0: the hold has ended
	Limit  int64         // as Cost.Limit; for HoldNew also the limit that the hold must fit

	As HoldAs

	// Epoch is the epoch of the group when the hold was first made. For a HoldForced, 0 is for a hold that no totals
	// include. So any node can force any hold, whether or not it has noticed the loss or has ever called the group. A
	// HoldNew is only made in this epoch, or in any epoch if it is 0: otherwise the reply is Emptied. For example, a call
	// that is repeated after the group was emptied must not store a record with the earlier epoch.
	Epoch Epoch

	// Precise is for a HoldNew in a namespace with a precise window. The used cost of the previous cell then counts in
	// full, without the cost that has left the window by the cell's history (Total.History), if the origin keeps a
	// history.
	Precise bool

	// Optional is for a HoldNew that is left out if it does not fit: the rest of the call is granted without it.
	Optional bool

	// Tentative is for a HoldNew of a reservation in several groups, as long as another group may refuse. Its Amount
	// counts for other holds at once. It is in the region's total after the next statement about it, unless that
	// statement ends it.
	Tentative bool
}

// Record is the record of a reservation under its ID, or a change of the record.
//
// A record with a Text is stored if there is none of this ID. Otherwise nothing of the call is applied, its holds
// included, and the answer has the stored record. If the same Text is sent again, it finds its own record. So the
// Text must contain something that was drawn at random.
//
// A record without a Text changes the stored record, until that is settled or has ended: each amount of Spent and the
// end are raised to the largest so far, and Settled stays. Nothing changes if there is no record, or if Spent has
// another number of amounts than the first Spent that was stored.
type Record struct {
	ID      string
	Text    string        // at most RecordBytesMax bytes
	Spent   []int64       // an amount for each item, 0 to CountMax each; empty in a change leaves them as they are
	TTL     time.Duration // 0 to HoldTTLMax, from the call's arrival: when the reservation ends; 0: no change
	Settled bool

	// Attempt is drawn for each change that has Settled, not 0. If the answer is lost and the same change is sent again,
	// it is Changed too.
	Attempt uint64

	// Restored stores a record that the origin may have lost. If there is no stored record, it stores Text, Spent, TTL
	// and Settled, whatever they are. Spent, TTL and Settled also change a stored record with the same text, unless it
	// is settled. If that record has ended, the TTL opens it again. For example, an origin has lost an extension of a
	// reservation, and lets the reservation end: the node that made the extension restores it.
	Restored bool

	// Withdraw ends a reservation whose maker got no answer. Text is the text that the maker has sent.
	//
	// It changes nothing if another text is stored, or if another caller relies on the record: either a call with
	// Restored has stored it, or any other call has found it since, also a call that was refused. A call with Restored
	// and another Text does not count.
	//
	// A withdrawn record is Settled. For calls that have another Text or none, or are Restored, the origin answers as if
	// there were no record. If there is no record, it is stored as withdrawn, so that a later call with this Text finds
	// it.
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

	// Fits is for a HoldNew: it reports whether the hold is held, or would be if the call were not refused.
	Fits bool

	// Used and UsedBefore are the counts of the two cells in the formula of Hold, without the hold itself.
	Used, UsedBefore int64

	// Open is how many holds of the cell were open before the statement. It may include holds whose time has come. Nodes
	// use it to keep callers within their shares of HoldsMax: for example, with 9,000 open holds, 1,000 are free, so a
	// node refuses a caller that has 1,000 through it.
	Open int64

	// Total is the cell's total after the call. Its Err is ErrHolds, or any other error for a cell that cannot hold
	// counts. Then the call is refused, unless the hold is Optional.
	Total Total
}

// HoldReply is the answer to a call. Answers are in the order of its holds.
type HoldReply struct {
	Epoch   Epoch
	Now     time.Time // the group's clock
	Number  int64     // how many calls of the stream the group has applied, this call included; 0 for a refused call
	Behind  bool      // the group has lost calls after Have, and has applied nothing: see Reservations
	Have    int64     // of Behind: how many calls of the stream the group has
	Emptied bool      // a HoldNew has another Epoch than the group, which has applied nothing
	Refused bool      // nothing was applied: a hold does not fit, or another record has the ID
	Record  RecordAnswer
	Answers []HoldAnswer // none with Behind or Emptied, or if another record has the ID
}

// RecordKey returns a key whose group is the group of the reservation's record. Draw IDs until GroupOf their
// RecordKey is the group of the first hold: that saves a call.
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
	case h.As > HoldForced || (h.Optional || h.Tentative) && h.As != HoldNew:
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
