package dataplane

import (
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/rules"
)

// syncSet holds the keys of a shard that wait for a sync, each at most once.
type syncQueue struct {
	running sync.Mutex // one step at a time
	stream  stream     // under running
	waits   []exchange // of the stream's pending chunk; under running

	mu      sync.Mutex // never held across I/O
	waiting []wanted   // in the order in which they asked
}

// wanted is a key that waits, and the settings that it asked under.
type wanted struct {
	entry *cell.Entry
	set   *rules.Estimate
}

type syncCounts struct {
	queued  atomic.Int64
	refused atomic.Int64 // a namespace's pending_max was reached
}

func (s *syncQueue) add(w ...wanted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, w...)
}

// take removes the first keys of each namespace, as many as its batch_max; the rest is
// carried over.
func (s *syncQueue) take() (batch []wanted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return nil
	}
	taken := make(map[*atomic.Int64]int) // by namespace
	kept := s.waiting[:0]
	for _, w := range s.waiting {
		if taken[w.set.Waiting] < w.set.BatchMax {
			taken[w.set.Waiting]++
			batch = append(batch, w)
		} else {
			kept = append(kept, w)
		}
	}
	clear(s.waiting[len(kept):])
	s.waiting = kept
	return batch
}

func (s *syncQueue) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}
