// Package resend is what an Origin value remembers of the chunks that it sends: the number of each
// stream's last answered chunk, the epoch that a chunk was first sent in, and chunks answered in the
// store.KeepFor before the last answer, in case that a replica that lacks them is promoted. While a
// server does not answer a stream that is in use, what is kept stays until its windows are over.
package resend

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// ID names a sequence of numbers that a server keeps by itself: a stream, or where a chunk is sent
// in several commands, one part of it.
type ID struct {
	Stream       uint64
	Shard        int
	Bucket, Part int
}

// Chunk is an answered one, or a part of it. Its costs are shared and must not be changed.
type Chunk struct {
	Number int64
	Costs  []store.Cost
	at     time.Time // when the server is known to have applied it last, as far as no failover has lost it
	again  bool      // it was sent again since, and no answer has come
	endsAt time.Time // when no decision depends on any of the costs any more, at the latest
}

// Streams is what is remembered of all streams. The zero value is empty. All methods may run
// concurrently.
type Streams struct {
	mu      sync.Mutex
	byID    map[ID]*stream
	costs   int       // kept, of all streams
	sweptAt time.Time // when what is of no use any more was dropped last
	sweepAt int       // size of byID at which idle streams are removed
}

type stream struct {
	epoch  store.Epoch // of the last answer
	last   int64       // answered number
	usedAt time.Time

	answeredAt time.Time

	sending int64       // number that stamp belongs to
	stamp   store.Epoch // in which it was first sent

	kept []Chunk // by number
}

const (
	sweepMin   = 64
	sweepEvery = store.KeepFor

	// unusedFor is how long what is kept stays after the last use of its stream.
	unusedFor = time.Minute

	// CostsMax bounds the costs that are kept, some 120 B each with their names elsewhere. A chunk that
	// has no room is not kept.
	CostsMax = 200_000
)

// Stamp returns the epoch that chunk number was first sent in: current if that is now. A sender that
// does not know the epoch yet asks with 0 before it finds out, so that a chunk that may have been on
// its way since belongs to the first epoch that the sender learns.
func (s *Streams) Stamp(id ID, number int64, current, first store.Epoch, now time.Time) store.Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streamLocked(id, now)
	switch {
	case st.sending != number:
		st.sending, st.stamp = number, current
	case st.stamp == 0:
		st.stamp = first
	}
	return st.stamp
}

// Last is the stream's last answered number and the epoch of that answer, 0 and 0 if there is none.
func (s *Streams) Last(id ID) (number int64, epoch store.Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.byID[id]; st != nil {
		return st.last, st.epoch
	}
	return 0, 0
}

// Untouched are the other sequences of a stream that have kept chunks and no answer since atLeast ago: an
// answer of theirs tells whether the chunks are still there.
func (s *Streams) Untouched(stream uint64, shard int, atLeast time.Duration, now time.Time) (ids []ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, st := range s.byID {
		if id.Stream == stream && id.Shard == shard && len(st.kept) > 0 && now.Sub(st.answeredAt) >= atLeast {
			ids = append(ids, id)
		}
	}
	return ids
}

// After are the kept chunks with larger numbers, in their order, to be sent again: the next failover may lose them
// again.
func (s *Streams) After(id ID, number int64) []Chunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.byID[id]
	if st == nil {
		return nil
	}
	var after []Chunk
	for i := range st.kept {
		if c := &st.kept[i]; c.Number > number {
			c.again = true
			after = append(after, *c)
		}
	}
	return after
}

// Answered records that the server has answered a chunk, in an epoch, and keeps its costs, which the
// caller must not change afterwards. It returns whether kept chunks have been sent again with it, or before.
func (s *Streams) Answered(id ID, number int64, epoch store.Epoch, costs []store.Cost, now time.Time) (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streamLocked(id, now)
	if st.epoch != epoch { // what an earlier epoch has lost, its nodes restore
		s.dropLocked(st, len(st.kept))
		st.epoch, st.last = epoch, 0
	}
	for i := range st.kept {
		if c := &st.kept[i]; c.again {
			c.at, c.again, again = now, false, true
		}
	}
	s.expireLocked(st, now)
	st.answeredAt = now
	if number <= st.last {
		return again
	}
	st.last = number
	if len(costs) > 0 && s.costs+len(costs) <= CostsMax {
		st.kept = append(st.kept, Chunk{Number: number, Costs: costs, at: now, endsAt: now.Add(longest(costs))})
		s.costs += len(costs)
	}
	return again
}

// longest is how long decisions depend on costs: until the window that follows theirs has ended, which may have to
// begin.
func longest(costs []store.Cost) (d time.Duration) {
	for i := range costs {
		d = max(d, 3*costs[i].Cell.Duration)
	}
	return d
}

func (s *Streams) streamLocked(id ID, now time.Time) *stream {
	if st := s.byID[id]; st != nil {
		st.usedAt = now
	}
	s.dropOldLocked(now)
	st := s.byID[id]
	if st == nil {
		if s.byID == nil {
			s.byID = make(map[ID]*stream)
		}
		s.sweepLocked(now)
		st = &stream{}
		s.byID[id] = st
	}
	st.usedAt = now
	return st
}

func (s *Streams) expireLocked(st *stream, now time.Time) {
	n := 0
	for n < len(st.kept) && now.Sub(st.kept[n].at) >= store.KeepFor {
		n++
	}
	s.dropLocked(st, n)
}

// dropOldLocked drops what is kept of streams that are used no more, and chunks whose windows are over.
func (s *Streams) dropOldLocked(now time.Time) {
	if now.Sub(s.sweptAt) < sweepEvery {
		return
	}
	s.sweptAt = now
	for _, st := range s.byID {
		unused := now.Sub(st.usedAt) >= unusedFor
		st.kept = slices.DeleteFunc(st.kept, func(c Chunk) bool {
			old := unused || !now.Before(c.endsAt)
			if old {
				s.costs -= len(c.Costs)
			}
			return old
		})
		if len(st.kept) == 0 {
			st.kept = nil
		}
	}
}

func (s *Streams) dropLocked(st *stream, n int) {
	for i := range n {
		s.costs -= len(st.kept[i].Costs)
		st.kept[i] = Chunk{}
	}
	if st.kept = st.kept[n:]; len(st.kept) == 0 {
		st.kept = nil
	}
}

// sweepLocked removes what has expired, and streams that the servers have forgotten as well.
func (s *Streams) sweepLocked(now time.Time) {
	if len(s.byID) < max(s.sweepAt, sweepMin) {
		return
	}
	maps.DeleteFunc(s.byID, func(_ ID, st *stream) bool {
		old := now.Sub(st.usedAt) >= store.StreamKeptFor
		if old {
			s.dropLocked(st, len(st.kept))
		}
		return old
	})
	s.sweepAt = 2 * len(s.byID)
}
