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

	// HolderBytesMax is how long a holder's name may be.
	HolderBytesMax = leases.HolderBytesMax

	// LeaseIDBytesMax is how long a holder's id for a lease may be.
	LeaseIDBytesMax = store.LeaseIDBytesMax
)

// Why a lease has ended: see Lease.Err.
var (
	// ErrLeaseLost ends a lease whose slot could not be renewed within its TTL: the origin did not answer, or the
	// process was paused. Another holder may have the slot.
	ErrLeaseLost = slots.ErrLost

	// ErrLeaseRevoked ends a lease that the origin has no longer, because it lost its data.
	ErrLeaseRevoked = slots.ErrRevoked

	// ErrLeaseExpired ends a lease at its AgeMax, or when its holder has not renewed it.
	ErrLeaseExpired = slots.ErrExpired

	// ErrLeaseStopped ends all leases when the limiter stops.
	ErrLeaseStopped = slots.ErrStopped
)

// Lease is a slot that its holder has until it releases it, or loses it. A holder that can stop its work early should
// watch Done. Before a step that must not be done twice, such as a payment, it should check Err.
//
// The zero Lease holds no slot and never ends: that of a request that was denied, shadowed, or let in by an outage
// policy. Copies are the same lease. All methods may run concurrently.
type Lease struct{ slot slots.Lease }

// Release ends the lease. A second Release does nothing.
func (l Lease) Release() { l.slot.Release() }

// Renew extends a lease that is RenewedByHolder to ttl from now, LeaseTTLMin to LeaseTTLMax; it never shortens one. It
// returns the error of Err if the lease has ended: then acquire a new lease.
func (l Lease) Renew(ttl time.Duration) error {
	if err := checkTTL(ttl, LeaseTTLMin, LeaseTTLMax); err != nil {
		return err
	}
	if !l.slot.Renew(ttl) {
		return l.slot.Err()
	}
	return nil
}

// Done is closed once the lease has ended, whether lost or released; for the zero Lease it is nil.
func (l Lease) Done() <-chan struct{} { return l.slot.Done() }

// Err is nil while the lease is held, and otherwise why it has ended. It is exact where Done may be some 50 ms late.
func (l Lease) Err() error { return l.slot.Err() }
