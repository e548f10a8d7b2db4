package bounded

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// Slots bound the calls that are worked on at a time. One caller has at most three quarters of
// them, so that there is always room for another one.
type Slots struct {
	kind             Kind
	most, callerMost int64
	all              *semaphore.Weighted
}

// NewSlots makes so many, at least 1.
func NewSlots(kind Kind, most int) *Slots {
	n := int64(most)
	return &Slots{kind: kind, most: n, callerMost: n - n/4, all: semaphore.NewWeighted(n)}
}

// Take takes a slot if there is one. A nil caller has no part of its own.
func (s *Slots) Take(c *Caller) error {
	if !s.all.TryAcquire(1) {
		return refuse(BoundSlots, "more than %d calls in flight on this node", s.most)
	}
	if c != nil && c.working[s.kind].Add(1) > s.callerMost {
		s.Give(c)
		return refuse(BoundCaller, "more than %d calls in flight by one caller on this node", s.callerMost)
	}
	return nil
}

// Wait takes a slot as soon as there is one.
func (s *Slots) Wait(ctx context.Context) error { return s.all.Acquire(ctx, 1) }

// Give gives a slot back, the caller's that took it.
func (s *Slots) Give(c *Caller) {
	s.all.Release(1)
	if c != nil {
		c.working[s.kind].Add(-1)
	}
}

// TakeAll waits until no slot is in use, and takes them all.
func (s *Slots) TakeAll(ctx context.Context) error { return s.all.Acquire(ctx, s.most) }
