package slots

import (
	"container/heap"
	"errors"
	"time"
)

// Reasons for which a lease has ended.
var (
	// ErrLost ends a lease whose slot could not be renewed: the origin did not answer in time, or the node was paused.
	ErrLost = errors.New("slots: the lease's slot could not be renewed in time")

	// ErrRevoked ends a lease whose slot the origin has lost, for example because its data was lost.
	ErrRevoked = errors.New("slots: the origin has lost the lease's slot")

	// ErrExpired ends a lease at its own end.
	ErrExpired = errors.New("slots: the lease has expired")

	// ErrStopped ends all leases when the node stops.
	ErrStopped = errors.New("slots: the node has stopped")

	// ErrEnded is returned for a lease that has ended, if the reason is no longer stored.
	ErrEnded = errors.New("slots: the lease has ended")

	errReleased = errors.New("slots: the lease was released")
)

// Lease is a slot that is held. The zero Lease holds none, and never ends. Copies are the same lease.
type Lease struct {
	e          *entry
	index      uint32
	generation uint32
}

// record returns the lease's record, or nil if the lease has ended. The stripe must be locked.
func (l Lease) record() *record {
	if r := &l.e.records[l.index]; r.live && r.generation == l.generation {
		return r
	}
	return nil
}

// Release ends the lease. If the lease has ended, it does nothing.
func (l Lease) Release() {
	if l.e == nil {
		return
	}
	s := l.e.stripe
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.record() == nil {
		return
	}
	l.e.finish(l.index, errReleased)
	l.e.returned(s.table.now)
}

// Renew extends an unattended lease to ttl from now, if that is later than its end. It returns false, and changes
// nothing, if the lease has ended.
func (l Lease) Renew(ttl time.Duration) bool {
	if l.e == nil {
		return true
	}
	s := l.e.stripe
	now := s.table.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	l.e.expire(now)
	if l.record() == nil {
		return false
	}
	l.extend(now, ttl)
	return true
}

// extend extends an unattended lease that has not ended to ttl from now, if that is later than its end. The stripe must
// be locked.
func (l Lease) extend(now, ttl time.Duration) {
	r := l.record()
	if !r.attended && now+ttl <= r.deadline {
		return
	}
	l.e.setTTL(r, ttl)
	if !r.attended {
		r.deadline = now + ttl
		heap.Fix((*byEnd)(&l.e.limitLeases), r.place)
		l.e.endBy(r.deadline)
	}
	if l.e.validUntil > now+ttl {
		l.e.askBy(now)
	}
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done returns a channel that is closed when the lease has ended.
func (l Lease) Done() <-chan struct{} {
	if l.e == nil {
		return nil
	}
	s := l.e.stripe
	s.mu.Lock()
	defer s.mu.Unlock()
	r := l.record()
	if r == nil {
		return closed
	}
	if r.done == nil {
		r.done = make(chan struct{})
	}
	return r.done
}

// Err returns nil while the lease is held, and afterwards the reason for its end.
func (l Lease) Err() error {
	if l.e == nil {
		return nil
	}
	s := l.e.stripe
	now := s.table.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := l.record(); r != nil {
		switch {
		case now >= l.e.validUntil:
			return ErrLost
		case now >= r.deadline:
			return ErrExpired
		}
		return nil
	}
	if r := &l.e.records[l.index]; r.generation == l.generation+1 && r.was != nil {
		return r.was
	}
	return ErrEnded
}
