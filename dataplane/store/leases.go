package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Leases is an origin's part in leases by id: each holds one of a key's slots beside what nodes hold (see Slots), and
// any node renews or releases it. It ends by itself.
type Leases interface {
	// Leases grants, renews and releases leases of a shard, each for itself. With no words, Leases returns without a
	// round trip. An error means that none, some or all of it was done. The same call again does what is left.
	Leases(ctx context.Context, shard int, words []LeaseWord) (LeaseReply, error)
}

// LeaseIDBytesMax is how long the id of a lease may be; it has at least 1 byte.
const LeaseIDBytesMax = 128

// LeaseVerb is what becomes of a lease.
type LeaseVerb uint8

const (
	// LeaseAcquire grants a lease where the limit has room, and renews one that is held.
	LeaseAcquire LeaseVerb = iota
	// LeaseRenew has a lease that is held end TTL from when the word arrives, or later if that was said before: words may
	// be late. An origin that is younger than TTL has lost what was held, and believes it.
	LeaseRenew
	// LeaseRelease ends a lease.
	LeaseRelease
)

// LeaseWord is about one lease, named by its key and ID.
type LeaseWord struct {
	Key   window.Key // see SlotsKey
	ID    string
	Verb  LeaseVerb
	Limit int64         // 0 to CountMax: of LeaseAcquire alone
	TTL   time.Duration // 1 ms to SlotsTTLMax; not of LeaseRelease
}

// LeaseAnswer is what came of a word.
type LeaseAnswer struct {
	Held    bool  // the lease is held from now on
	Slots   int64 // of the key that are held in all
	RetryIn time.Duration

	// Err is nil, ErrRecovering (see there: LeaseAcquire grants nothing then), or any other for a word that did nothing.
	Err error
}

// LeaseReply answers words in their order.
type LeaseReply struct {
	Answers []LeaseAnswer
	Now     time.Time // the shard's clock
}

// CheckLeaseWord tells what is out of bounds in a word.
func CheckLeaseWord(w *LeaseWord) error {
	if n := len(w.ID); n < 1 || n > LeaseIDBytesMax {
		return fmt.Errorf("%w: the lease's id has %d bytes (1 to %d)", window.ErrInvalid, n, LeaseIDBytesMax)
	}
	if w.Verb > LeaseRelease {
		return fmt.Errorf("%w: the lease's verb is %d (0 to %d)", window.ErrInvalid, w.Verb, LeaseRelease)
	}
	ask := SlotsAsk{Key: w.Key, Limit: w.Limit, TTL: w.TTL}
	if w.Verb == LeaseRelease {
		ask.TTL = time.Second
	}
	return CheckSlotsAsk(&ask)
}
