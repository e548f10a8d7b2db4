package bounded

import (
	"container/list"
	"context"
	"sync"
)

// Slots bound the calls in work at a time. A caller's calls can have at most three quarters of the slots, and the
// messages of its streams a sixteenth, so there is always room for other callers.
//
// Use Take for calls, which are rejected if there is no room, and Wait for messages of streams, which wait instead. A
// waiting message takes no processor time, so a caller with thousands of streams delays others no more than a caller
// with a few. Each caller has its own queue of messages, and the queues take turns. So a message never waits behind
// messages of another caller, nor behind its own caller's calls, which may wait for the origin.
//
// All methods are safe for concurrent use. A nil caller has no bound of its own.
type Slots struct {
	kind                             Kind
	most, callerMost, callerWaitMost int64

	mu     sync.Mutex
	used   int64
	queues list.List     // of *Caller with a waiting message; the front is served next
	nobody Caller        // represents the nil caller in queues
	empty  chan struct{} // closed when no slot is in use; nil unless TakeAll waits, or has taken all
}

// share is the part of the Slots of one kind that a caller uses. The Slots guard it.
type share struct {
	working, waited int64         // slots taken by Take, and by Wait
	waiting         list.List     // of chan struct{}: each is closed when its message gets a slot
	queued          *list.Element // in Slots.queues; nil if no message waits
}

// callerWaitPart: the messages of one caller's streams can hold 1/callerWaitPart of all slots.
const callerWaitPart = 16

// NewSlots returns most slots; most must be at least 1.
func NewSlots(kind Kind, most int) *Slots {
	n := int64(most)
	return &Slots{kind: kind, most: n, callerMost: n - n/4, callerWaitMost: max(1, n/callerWaitPart)}
}

func (s *Slots) shareOf(c *Caller) *share {
	if c == nil {
		c = &s.nobody
	}
	return &c.shares[s.kind]
}

// Take takes a slot, or returns a Refusal if none is free for the caller.
func (s *Slots) Take(c *Caller) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.shareOf(c)
	switch {
	case s.used >= s.most || s.empty != nil:
		return refuse(BoundSlots, "more than %d calls in flight on this node", s.most)
	case c != nil && of.working >= s.callerMost:
		return refuse(BoundCaller, "more than %d calls in flight by one caller on this node", s.callerMost)
	}
	s.used++
	of.working++
	return nil
}

// Give gives back a slot that Take took for the same caller.
func (s *Slots) Give(c *Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.shareOf(c).working--
	s.serveLocked()
}

// Wait waits until the caller can have a slot for a message of a stream, and takes it.
func (s *Slots) Wait(ctx context.Context, c *Caller) error {
	s.mu.Lock()
	of := s.shareOf(c)
	if s.fitsLocked(c, of) { // then no message of c waits: see serveLocked
		s.takeLocked(of)
		s.mu.Unlock()
		return nil
	}
	ready := make(chan struct{})
	place := of.waiting.PushBack(ready)
	if of.queued == nil {
		of.queued = s.queues.PushBack(c)
	}
	s.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return s.leave(ctx, c, place, ready)
	}
}

// leave removes a waiting message from the queue. It returns nil if the message got its slot in the
// meantime.
func (s *Slots) leave(ctx context.Context, c *Caller, place *list.Element, ready chan struct{}) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-ready:
		return nil
	default:
	}
	of := s.shareOf(c)
	of.waiting.Remove(place)
	s.unqueueLocked(of)
	return context.Cause(ctx)
}

// GiveWaited gives back a slot that Wait took for the same caller.
func (s *Slots) GiveWaited(c *Caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.shareOf(c).waited--
	s.serveLocked()
}

// fitsLocked reports whether a message of c can have a slot now.
func (s *Slots) fitsLocked(c *Caller, of *share) bool {
	return s.empty == nil && s.used < s.most && (c == nil || of.waited < s.callerWaitMost)
}

func (s *Slots) takeLocked(of *share) {
	s.used++
	of.waited++
}

// serveLocked gives free slots to waiting messages, one slot per caller in turn.
func (s *Slots) serveLocked() {
	if s.empty != nil {
		if s.used == 0 {
			close(s.empty)
		}
		return
	}
	for e := s.queues.Front(); e != nil && s.used < s.most; {
		next := e.Next()
		c, _ := e.Value.(*Caller)
		if of := s.shareOf(c); s.fitsLocked(c, of) {
			first := of.waiting.Front()
			ready, _ := of.waiting.Remove(first).(chan struct{})
			s.takeLocked(of)
			close(ready)
			s.queues.MoveToBack(e)
			s.unqueueLocked(of)
			next = s.queues.Front()
		}
		e = next
	}
}

// unqueueLocked removes a caller from the queues if it has no waiting message.
func (s *Slots) unqueueLocked(of *share) {
	if of.queued != nil && of.waiting.Len() == 0 {
		s.queues.Remove(of.queued)
		of.queued = nil
	}
}

// TakeAll waits until no slot is in use, and then takes all of them. While it waits, all other calls of Take are
// rejected and calls of Wait wait. If ctx ends first, it returns the context's error and takes none.
func (s *Slots) TakeAll(ctx context.Context) error {
	s.mu.Lock()
	empty := make(chan struct{})
	s.empty = empty
	s.serveLocked()
	s.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-empty:
		return nil
	default:
	}
	s.empty = nil
	s.serveLocked()
	return context.Cause(ctx)
}
