package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Grants is an origin's part in concurrency limits: it grants slots of keys to owners, until a time. Without it, each
// process grants up to the whole limit: see Granter.
//
// A key has as many slots as its limit. An owner is a node or a lease by ID. A node holds any number of slots, and
// gives them to the holders in its process by itself. A lease holds one slot, and any node can renew or release it.
//
// Slots are never counted up or down. Each ask states everything that its owner holds, and the answer states
// everything that the owner holds from then on. So a call that is lost, late or repeated leaves nothing behind that
// does not end by itself.
//
// For example, a key has a limit of 5, and all times to live are a minute:
//
//	at     owner   Have Want   Held Others
//	0.0 s  node 1     0    3      3      0
//	0.1 s  lease a    0    1      1      3   acquired
//	0.2 s  node 2     0    3      1      4   refused two of three
//	0.3 s  node 1     2    0      2      2   hands one back
//	0.4 s  node 2     1    2      2      3   refused one of two
//	0.5 s  lease a    1    0      1      4   renewed
//	0.6 s  lease a    0    0      0      4   released
//	0.7 s  node 2     2    1      3      2
//
// # Nodes
//
// From the moment when its call leaves, a node must hold no more than Have, and no longer than TTL from that moment,
// whatever the outcome of the call. It must hold the slots that the answer grants no longer than TTL from the same
// moment. The origin counts these slots for TTL from when the call arrives.
//
// The calls of a node are numbered, so that the origin applies no call after a later call. It keeps the number for
// TTL, or for at most GrantKeptFor if the node no longer holds anything.
//
// # Leases
//
// Have + Want of a lease is 0 or 1, and Spare is 0:
//
//   - Have 0, Want 1 acquires the lease.
//   - Have 1, Want 0 and Limit 0 renews it: the slot of a lease that has ended is not granted again.
//   - Have 0, Want 0 releases it. It needs no TTL.
//
// The calls about a lease may come from several nodes, so they are not numbered. Instead they are merged. An ask to
// acquire or renew a lease that is held counts as Have 1, Want 0, and its end is raised to TTL from when the call
// arrives, and never lowered. So a call can be repeated, and a late call shortens nothing. An ask that arrives after
// the release acquires the lease again, or has no effect if it is a renewal.
//
// # The granted slots
//
// In this formula, held is the number of slots that the origin has for the owner, and others the number that it has
// for all other owners. The division rounds down:
//
//	keep    = min(Have, held)
//	need    = Have - keep + Want
//	room    = max(0, Limit - others - keep)
//	granted = min(need, room)
//	spare   = min(Spare, (room - granted) / 2), or 0 if Starved
//	Held    = keep + granted + spare
//
// Slots in Have that the origin does not have for the owner count as wanted, because they may have been granted to
// others since. So all owners together hold at most the largest Limit among their asks, unless Limit has been
// lowered. Then held slots stay until they are handed back.
//
// # An origin that has lost its data
//
// An origin that is younger than an ask's TTL is recovering: Held is Have, whatever Limit is, and nothing else is
// granted. An ask with a Want is answered with ErrRecovering. After TTL, each owner has stated what it holds, or no
// longer holds anything. So the limit holds if all asks for a key have the same TTL. A holding with a longer TTL,
// whose owner has not called since, may be granted again. A caller must not renew a lease that has ended by the
// caller's own clock, because a recovering origin would restore it.
type Grants interface {
	// Grants applies asks about keys of one shard, each ask as one atomic step. With no asks, Grants returns without a
	// round trip. After an error, none, some or all of the asks may have been applied. Repeating the same call changes
	// nothing where it was applied. The work for an ask may grow with the number of the key's nodes, but must not grow
	// with the number of its leases.
	Grants(ctx context.Context, shard int, call GrantCall) (GrantReply, error)
}

const (
	// GrantTTLMax is the longest time for which an ask can hold slots.
	GrantTTLMax = 10 * time.Minute

	// GrantStarvedFor is how long an owner counts as refused: see GrantAnswer.Starved.
	GrantStarvedFor = time.Second

	// GrantKeptFor is the longest time for which an origin keeps the number of a node that holds nothing.
	GrantKeptFor = time.Minute

	// LeaseIDBytesMax is the length of the longest ID of a lease, in bytes; it has at least 1 byte.
	LeaseIDBytesMax = 128
)

var (
	// ErrRecovering answers an ask for further slots while the origin is younger than the ask's TTL. RetryIn is the time
	// until the origin is old enough.
	ErrRecovering = errors.New("origin: has lost its record of held slots, and grants no slots yet")

	// ErrGrantLate answers an ask of a node if a later call of the node was already applied. The ask has changed
	// nothing.
	ErrGrantLate = errors.New("origin: a later call of the node was applied")
)

// GrantCall has owners' asks about keys of one shard. A call about leases alone needs no Node and no Number.
type GrantCall struct {
	Node   uint64 // one incarnation of a limiter: drawn at random, not 0
	Number int64  // 1 to CountMax, larger with each call of the node to the shard
	Asks   []GrantAsk
}

// GrantAsk states how many slots of a key an owner holds, and requests more: see Grants.
type GrantAsk struct {
	Key   window.Key    // see SlotsKey
	Lease string        // the ID of the lease that is the owner; "": the owner is the call's Node
	Limit int64         // 0 to CountMax
	Have  int64         // 0 to CountMax: slots that the owner goes on holding
	Want  int64         // 0 to CountMax: further slots that requests wait for
	Spare int64         // 0 to CountMax: further slots for future requests
	TTL   time.Duration // 1 ms to GrantTTLMax
}

// GrantAnswer is the origin's answer to an ask.
type GrantAnswer struct {
	Held   int64 // by the owner from now on; 0 with an Err other than ErrRecovering
	Others int64 // by all other owners

	// Starved reports to a node whether another node, or any lease, was refused some of its Want within the last
	// GrantStarvedFor. Nodes should then hand back spare slots. In the answer to a lease it has no meaning.
	Starved bool

	// RetryIn is the time until the first holding of another owner ends unless it is renewed, or 0 if there is none.
	// With ErrRecovering, it is the time until the origin is old enough.
	RetryIn time.Duration

	// Err is nil, ErrRecovering (the owner still holds Have, and nothing else), ErrGrantLate, or any other error for an
	// ask that was not applied.
	Err error
}

// GrantReply has the answers to asks, in their order.
type GrantReply struct {
	Answers []GrantAnswer
	Now     time.Time // the shard's clock
}

// SlotsKey returns the name of a key with slots. It has no duration, unlike all keys with cells.
func SlotsKey(workspace, namespace, identifier string) window.Key {
	return window.Key{Workspace: workspace, Namespace: namespace, Identifier: identifier}
}

// CheckGrantCall returns an error if a part of a call is out of bounds, apart from its asks.
func CheckGrantCall(c *GrantCall) error {
	for i := range c.Asks {
		if c.Asks[i].Lease == "" && (c.Node == 0 || c.Number < 1 || c.Number > CountMax) {
			return fmt.Errorf("%w: the node is %d (not 0), the call's number %d (1 to %d)", window.ErrInvalid, c.Node, c.Number,
				int64(CountMax))
		}
	}
	return nil
}

// CheckGrantAsk returns an error if a part of an ask is out of bounds.
func CheckGrantAsk(a *GrantAsk) error {
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
	switch {
	case a.TTL >= time.Millisecond && a.TTL <= GrantTTLMax:
	case a.Lease != "" && a.Have+a.Want == 0 && a.TTL == 0:
	default:
		return fmt.Errorf("%w: the slots' time to live is %v (1 ms to %v)", window.ErrInvalid, a.TTL, GrantTTLMax)
	}
	if a.Lease != "" && (len(a.Lease) > LeaseIDBytesMax || a.Have+a.Want > 1 || a.Spare > 0) {
		return fmt.Errorf("%w: a lease's id has %d bytes (1 to %d), and it requests %d slots (0 or 1) and %d spare slots (0)",
			window.ErrInvalid, len(a.Lease), LeaseIDBytesMax, a.Have+a.Want, a.Spare)
	}
	return nil
}
