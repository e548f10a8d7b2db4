package slots

import (
	"container/heap"
	"errors"
	"time"
)

// Why a lease has ended.
var (
	// ErrLost ends a lease whose slot could not be kept: the origin did not answer in time, or the node was paused.
	ErrLost = errors.New("slots: the lease's slot could not be renewed in time")

	// ErrRevoked ends a lease whose slot the origin does not know of any more: it has lost what it was told.
	ErrRevoked = errors.New("slots: the origin has lost the lease's slot")

	// ErrExpired ends a lease at its own time.
	ErrExpired = errors.New("slots: the lease's time is over")

	// ErrStopped ends all leases with the node.
	ErrStopped = errors.New("slots: the node has stopped")

	// ErrEnded is what is told of a lease that has ended some time ago.
	ErrEnded = errors.New("slots: the lease has ended")

	errReleased = errors.New("slots: the lease was released")
)

// Lease is one slot that is held. The zero Lease holds none, and never ends. Copies are the same lease.
type Lease struct {
	e          *entry
	index      uint32
	generation uint32
}

// record is the lease's, nil if it has ended. The stripe is locked.
func (l Lease) record() *record {
	if r := &l.e.records[l.index]; r.live && r.generation == l.generation {
		return r
	}
	return nil
}

// Release ends the lease. Of a lease that has ended it does nothing.
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

// Renew has an unattended lease end ttl from now, if that is later than its end. It is false, and nothing changes, if
// the lease has ended.
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

// extend has an unattended lease that has not ended end ttl from now, if that is later. The stripe is locked.
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

// Done is closed when the lease has ended.
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

// Err is nil while the lease is held, and afterwards why it has ended.
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
