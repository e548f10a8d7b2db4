package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/leases"
	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/store"
)

const (
	// LeaseTTLMin is the shortest ConcurrencyRequest.TTL.
	LeaseTTLMin = time.Second
	// LeaseTTLDefault is used if ConcurrencyRequest.TTL is 0.
	LeaseTTLDefault = 10 * time.Second
	// LeaseTTLMax is the longest ConcurrencyRequest.TTL.
	LeaseTTLMax = leases.TTLMax

	// HolderBytesMax is the longest holder's name, in bytes.
	HolderBytesMax = leases.HolderBytesMax

	// LeaseIDBytesMax is the longest id that a holder can choose for a lease, in bytes.
	LeaseIDBytesMax = store.LeaseIDBytesMax
)

// The reasons for which a lease ends: see Lease.Err.
var (
	// ErrLeaseLost ends a lease whose slot was not renewed within its TTL, because the origin did not answer or the
	// process was paused. Another holder may have the slot.
	ErrLeaseLost = slots.ErrLost

	// ErrLeaseRevoked ends a lease that the origin no longer has, because it lost its data.
	ErrLeaseRevoked = slots.ErrRevoked

	// ErrLeaseExpired ends a lease at its AgeMax, or when its holder has not renewed it.
	ErrLeaseExpired = slots.ErrExpired

	// ErrLeaseStopped ends all leases when the limiter stops.
	ErrLeaseStopped = slots.ErrStopped
)

// Lease is a slot that its holder keeps until it releases or loses the slot. A holder that can stop its work early
// should watch Done. Before a step that must not be done twice, such as a payment, it should check Err.
//
// The zero Lease holds no slot and never ends. Acquire returns it for a request that was denied, shadowed, or allowed
// by an outage policy. Copies are the same lease. All methods may run concurrently.
type Lease struct{ slot slots.Lease }

// Release ends the lease. A second Release does nothing.
func (l Lease) Release() { l.slot.Release() }

// Renew extends a lease that is RenewedByHolder to ttl from now, LeaseTTLMin to LeaseTTLMax; it never shortens a
// lease. If the lease has ended, Renew returns the error of Err, and the holder must acquire a new lease.
func (l Lease) Renew(ttl time.Duration) error {
	if err := checkTTL(ttl, LeaseTTLMin, LeaseTTLMax); err != nil {
		return err
	}
	if !l.slot.Renew(ttl) {
		return l.slot.Err()
	}
	return nil
}

// Done returns a channel that is closed when the lease has ended, whether lost or released; for the zero Lease it is
// nil.
func (l Lease) Done() <-chan struct{} { return l.slot.Done() }

// Err returns nil while the lease is held, and the reason of its end afterwards. It is exact, while Done may be some
// 50 ms late.
func (l Lease) Err() error { return l.slot.Err() }
