package dataplane

import (
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// retryPause is how long a key rests after a failed read before it tries again.
const retryPause = 300 * time.Millisecond

// flight is one read in flight, shared by all who wait for its keys.
type flight struct {
	done      chan struct{} // closed when the answer is merged, or has failed
	err       error         // read after done
	restUntil atomic.Int64  // steadyMs before which its keys try no new read; 0 unless it failed
	end       func(error)   // tells the breaker; nil where it was not asked
}

func newFlight(end func(error)) *flight { return &flight{done: make(chan struct{}), end: end} }

// readingLocked is true while a read is in flight, or rested from.
func (e *entry) readingLocked(now clock.Steady) bool {
	if e.flight == nil {
		return false
	}
	rest := e.flight.restUntil.Load()
	return rest == 0 || int64(now) < rest
}

// joinLocked returns the read in flight; started is false when a new one may begin.
// nil and started: the key rests.
func (e *entry) joinLocked(now clock.Steady) (f *flight, started bool) {
	switch {
	case !e.readingLocked(now):
		return nil, false
	case e.flight.restUntil.Load() != 0:
		return nil, true
	}
	return e.flight, true
}

// wantsRefresh is true when a decision should hear from the origin first.
func (e *entry) wantsRefresh(now clock.Steady, freshForMs int64) bool {
	return int64(now)-e.heardAt.Load() >= freshForMs || e.isStrict(now)
}

// known is what counts against a limit at nowMs, as far as is known here, without a claim to be of one instant.
func (e *entry) known(nowMs, durationMs int64) int64 {
	seq := e.seq.Load()
	slot := slotOf(seq)
	known := wordCount(e.words[slot].Load()) + e.others[slot].Load()
	if before := wordCount(e.words[previousSlot(slot)].Load()) + e.others[previousSlot(slot)].Load(); before > 0 {
		start := window.Start(seq, durationMs)
		if uncovered := durationMs - max(0, nowMs-start); uncovered > 0 {
			known += window.Carried(before, uncovered, durationMs)
		}
	}
	return known
}

// failed is true once the answer has failed.
func (f *flight) failed() bool {
	select {
	case <-f.done:
		return f.err != nil
	default:
		return false
	}
}

// fail ends a read that got no answer: what is known stays, and its keys rest.
func (f *flight) fail(err error, now clock.Steady) {
	f.err = err
	f.restUntil.Store(int64(now) + retryPause.Milliseconds())
	close(f.done)
}

// lostTotal is a total that the origin has named, and has lost since.
type lostTotal struct {
	Cell window.Cell
	Cost int64
}

// join returns the read in flight, or the one that begin starts, nil while the entry rests. Called by begin, under the
// entry's lock, nothing may take that again.
func (e *entry) join(now clock.Steady, begin func() *flight) *flight {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f, started := e.joinLocked(now); started {
		return f
	}
	f := begin()
	if f != nil {
		e.flight = f
	}
	return f
}

// cellsToRead are the previous cell and the current one.
func (e *entry) cellsToRead() [2]window.Cell {
	seq := e.seq.Load()
	return [2]window.Cell{e.cell(seq - 1), e.cell(seq)}
}

// refreshed is when the origin last spoke about the current cell, by the steady clock; 0: never.
func (e *entry) refreshed() clock.Steady { return clock.Steady(e.heardAt.Load()) }

// hydrate merges the totals of two neighbouring cells and ends the read. It returns
// whether others had contributed, and what the origin should be told because it has
// lost it.
func (e *entry) hydrate(m *counters, sequence, previous, current int64, now clock.Steady) (grew bool, missing []lostTotal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flight = nil
	for i, total := range [2]int64{previous, current} {
		s := sequence + int64(i)
		slot, ok := e.slotLocked(s)
		if !ok {
			continue
		}
		more, lost := e.absorbLocked(m, slot, total, false)
		if lost {
			missing = append(missing, lostTotal{e.cell(s), e.namedLocked(slot)})
		}
		grew = grew || more
	}
	if sequence+1 == e.seq.Load() {
		e.hear(now)
	}
	return grew, missing
}

// rest keeps e from asking the origin for a while.
func (e *entry) rest(now clock.Steady) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.readingLocked(now) {
		e.flight = &flight{}
		e.flight.restUntil.Store(int64(now) + retryPause.Milliseconds())
	}
}

// restsFor is how long e tries no new read.
func (e *entry) restsFor(now clock.Steady) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flight == nil {
		return 0
	}
	return max(0, time.Duration(e.flight.restUntil.Load()-int64(now))*time.Millisecond)
}
