package bounded

import (
	"container/list"
	"context"
	"sync"
)

// Slots bound the calls that are worked on at a time. One caller's calls have at most three quarters of
// them and the messages of its streams a sixteenth, so that there is always room for another caller.
//
// Take is for calls that are refused when there is no room. Wait is for the messages of streams, which wait instead. A
// message that waits is not runnable, so thousands of streams of one caller delay other callers no longer than a few
// do. A message never waits behind another caller's, because each caller has a queue of its own and the queues take
// turns; nor behind calls of its own caller, which may wait for the origin.
//
// All methods may be called concurrently. A nil caller has no share of its own.
type Slots struct {
	kind                             Kind
	most, callerMost, callerWaitMost int64

	mu     sync.Mutex
	used   int64
	queues list.List     // of *Caller: those that have a message waiting, the next to be served first
	nobody Caller        // stands for the nil caller in queues
	empty  chan struct{} // closed when no slot is in use; nil unless TakeAll waits, or has taken all
}

// share is a caller's part of the Slots of a kind, and guarded by them.
type share struct {
	working, waited int64         // slots in use: those that Take took, and those that Wait took
	waiting         list.List     // of chan struct{}, closed when the message has its slot
	queued          *list.Element // in Slots.queues; nil without a message that waits
}

// callerWaitPart is the part of all slots that the messages of one caller's streams may hold.
const callerWaitPart = 16

// NewSlots makes so many, at least 1.
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

// Take takes a slot if there is one.
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

// Wait takes a slot for a message of a stream as soon as its caller may have one.
func (s *Slots) Wait(ctx context.Context, c *Caller) error {
	s.mu.Lock()
	of := s.shareOf(c)
	if of.waiting.Len() == 0 && s.fitsLocked(c, of) {
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

// leave is for a message that waits no longer. It returns nil if the message got its slot at the last moment.
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

// fitsLocked reports whether a message of c may have a slot.
func (s *Slots) fitsLocked(c *Caller, of *share) bool {
	return s.empty == nil && s.used < s.most && (c == nil || of.waited < s.callerWaitMost)
}

func (s *Slots) takeLocked(of *share) {
	s.used++
	of.waited++
}

// serveLocked gives slots to messages that wait, to one of each caller in turn.
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

// unqueueLocked takes a caller out of the queues if none of its messages waits.
func (s *Slots) unqueueLocked(of *share) {
	if of.queued != nil && of.waiting.Len() == 0 {
		s.queues.Remove(of.queued)
		of.queued = nil
	}
}

// TakeAll waits until no slot is in use, and takes them all. Meanwhile nothing else takes one. If ctx ends first, it
// returns the context's error and takes none.
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
