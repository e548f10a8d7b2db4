package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Slots is an origin's part in concurrency limits: how many of a key's slots each node holds. A node gives its slots to
// leases by itself, and says again what it holds before that ends.
//
// A key's slots are never counted up or down. Each call says what a node goes on holding, and the origin answers what
// it holds from then on, so a call that is lost, late or repeated leaves nothing behind that does not end by itself.
type Slots interface {
	// Slots sets, for each key, how many slots the node holds, and grants it more where the limit has room: see SlotsAsk.
	// With no asks, Slots returns without a round trip. An error means that none, some or all of it was done. The same
	// call again changes nothing where it was applied.
	Slots(ctx context.Context, shard int, call SlotsCall) (SlotsReply, error)
}

const (
	// SlotsTTLMax is how long an ask may hold slots.
	SlotsTTLMax = 10 * time.Minute

	// SlotsStarvedFor is how long the others of a key are asked for spare slots after one was refused.
	SlotsStarvedFor = time.Second
)

var (
	// ErrRecovering answers an ask for further slots while the origin is younger than the ask's TTL: it has lost what
	// nodes held, and waits until all of them have said it again or hold nothing any more. RetryIn is how long that takes.
	ErrRecovering = errors.New("origin: has lost who held slots, and grants none yet")

	// ErrSlotsLate answers an ask after which a later one of the node was applied. It has changed nothing.
	ErrSlotsLate = errors.New("origin: a later call of the node was applied")
)

// SlotsCall is what one node says about keys of one shard.
type SlotsCall struct {
	Node   uint64 // one incarnation of a limiter: drawn at random, not 0
	Number int64  // 1 to CountMax, larger with each call of the node to the shard
	Asks   []SlotsAsk
}

// SlotsAsk says what a node holds of one key, and asks for more. From the moment when the call leaves, the node holds
// no more than Have, and that no longer than TTL from that moment, whatever becomes of the call. What the answer grants
// it holds no longer than TTL from the same moment.
//
// The origin takes of Have what the node holds by its books, and treats the rest as wanted: it may have been granted to
// others since. It counts what the node holds for TTL from when the call arrives. So all nodes together hold at most
// the largest Limit among their asks, unless Limit has been lowered: what is held then stays until it is handed
// back.
//
// An origin younger than TTL takes Have as it is, and grants nothing: see ErrRecovering. That keeps the limit where all
// asks for a key have the same TTL. A holding with a longer one, whose node has not called since, may be granted again.
type SlotsAsk struct {
	Key   window.Key    // see SlotsKey
	Limit int64         // 0 to CountMax
	Have  int64         // slots that the node goes on holding
	Want  int64         // further ones that requests wait for
	Spare int64         // further ones still: at most half of what is left then, and none while other nodes are refused
	TTL   time.Duration // 1 ms to SlotsTTLMax
}

// SlotsAnswer is what the origin answers to an ask.
type SlotsAnswer struct {
	Held   int64 // by this node from now on; 0 with an Err other than ErrRecovering
	Others int64 // by all other nodes

	// Starved is true when another node was refused lately: spare slots should be handed back.
	Starved bool

	// RetryIn is how long until the first holding of another node ends unless it is renewed, or the origin is old
	// enough; 0 if there is none.
	RetryIn time.Duration

	// Err is nil, ErrRecovering (Have is held all the same, and nothing else), ErrSlotsLate, or any other for an ask that
	// was not applied.
	Err error
}

// SlotsReply answers asks in their order.
type SlotsReply struct {
	Answers []SlotsAnswer
	Now     time.Time // the shard's clock
}

// SlotsKey names a key with slots. It has no duration, which tells it from all keys with cells.
func SlotsKey(workspace, namespace, identifier string) window.Key {
	return window.Key{Workspace: workspace, Namespace: namespace, Identifier: identifier}
}

// CheckSlotsCall tells what is out of bounds in a call, apart from its asks.
func CheckSlotsCall(c *SlotsCall) error {
	if c.Node == 0 || c.Number < 1 || c.Number > CountMax {
		return fmt.Errorf("%w: the node is %d (not 0), the call's number %d (1 to %d)", window.ErrInvalid, c.Node, c.Number,
			int64(CountMax))
	}
	return nil
}

// CheckSlotsAsk tells what is out of bounds in an ask.
func CheckSlotsAsk(a *SlotsAsk) error {
	named := a.Key
	named.Duration = window.DurationMin
	if err := named.Validate(); err != nil {
		return err
	}
	if a.Key != SlotsKey(a.Key.Workspace, a.Key.Namespace, a.Key.Identifier) {
		return fmt.Errorf("%w: the key of slots %v has a duration, a mode or a generation", window.ErrInvalid, a.Key)
	}
	for _, n := range []int64{a.Limit, a.Have, a.Want, a.Spare} {
		if n < 0 || n > CountMax {
			return fmt.Errorf("%w: limit, slots, wanted and spare ones are %d, %d, %d and %d (0 to %d)", window.ErrInvalid,
				a.Limit, a.Have, a.Want, a.Spare, int64(CountMax))
		}
	}
	if a.TTL < time.Millisecond || a.TTL > SlotsTTLMax {
		return fmt.Errorf("%w: the slots' time to live is %v (1 ms to %v)", window.ErrInvalid, a.TTL, SlotsTTLMax)
	}
	return nil
}
