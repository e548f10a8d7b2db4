package cell

import (
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// RetryPause is how long a key rests after a failed read before it tries again.
const RetryPause = 300 * time.Millisecond

// Flight is one read in flight, shared by all who wait for its keys.
type Flight struct {
	Done      chan struct{} // closed when the answer is merged, or has failed
	Err       error         // read after done
	restUntil atomic.Int64  // clock.Steady before which its keys try no new read; 0 unless it failed
}

// NewFlight makes a read that has no answer yet.
func NewFlight() *Flight { return &Flight{Done: make(chan struct{})} }

// readingLocked is true while a read is in flight, or rested from.
func (e *Entry) readingLocked(now clock.Steady) bool {
	if e.flight == nil {
		return false
	}
	rest := e.flight.restUntil.Load()
	return rest == 0 || int64(now) < rest
}

// joinLocked returns the read in flight; started is false when a new one may begin.
// nil and started: the key rests.
func (e *Entry) joinLocked(now clock.Steady) (f *Flight, started bool) {
	switch {
	case !e.readingLocked(now):
		return nil, false
	case e.flight.restUntil.Load() != 0:
		return nil, true
	}
	return e.flight, true
}

// WantsRefresh is true when a decision should hear from the origin first.
func (e *Entry) WantsRefresh(now clock.Steady, freshForMs int64) bool {
	return int64(now)-e.refreshedAt.Load() >= freshForMs || e.IsStrict(now)
}

// Known is what counts against a limit at nowMs, as far as is known here, without a claim to be of one instant.
func (e *Entry) Known(nowMs, durationMs int64) int64 {
	seq := e.counter.sequence()
	slot := slotOf(seq)
	known := e.countIn(slot)
	if before := e.countIn(previousSlot(slot)); before > 0 {
		start := window.Start(seq, durationMs)
		if uncovered := durationMs - max(0, nowMs-start); uncovered > 0 {
			known += window.Carried(before, uncovered, durationMs)
		}
	}
	return known
}

// Failed is true once the answer has failed.
func (f *Flight) Failed() bool {
	select {
	case <-f.Done:
		return f.Err != nil
	default:
		return false
	}
}

// Fail ends a read that got no answer: what is known stays, and its keys rest.
func (f *Flight) Fail(err error, now clock.Steady) {
	f.Err = err
	f.restUntil.Store(int64(now) + RetryPause.Milliseconds())
	close(f.Done)
}

// Skip ends a read that no call was made for. Its keys may be read again at once.
func (f *Flight) Skip(err error) {
	f.Err = err
	f.restUntil.Store(1) // long over
	close(f.Done)
}

// Join returns the read in flight, or the one that begin starts, nil while the entry rests. Called by begin, under the
// entry's lock, nothing may take that again.
func (e *Entry) Join(now clock.Steady, begin func() *Flight) *Flight {
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

// CellsToRead are the previous cell and the current one.
func (e *Entry) CellsToRead() [2]window.Cell {
	seq := e.counter.sequence()
	return [2]window.Cell{e.Cell(seq - 1), e.Cell(seq)}
}

// RefreshedAt is when the origin last spoke about the current cell, by the steady clock; 0: never.
func (e *Entry) RefreshedAt() clock.Steady { return clock.Steady(e.refreshedAt.Load()) }

// Hydrate merges the totals of two neighbouring cells and ends the read. It returns the epochs that the origin has
// lost, 0 for none.
func (e *Entry) Hydrate(m *Counters, sequence int64, totals []store.Total, now clock.Steady) (lost [2]store.Epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flight = nil
	for i := range lost {
		if slot, ok := e.slotLocked(sequence + int64(i)); ok {
			lost[i] = e.absorbLocked(m, slot, &totals[i])
		}
	}
	if sequence+1 == e.counter.sequence() {
		e.markRefreshed(now)
	}
	return lost
}

// Rest keeps e from asking the origin for a while.
func (e *Entry) Rest(now clock.Steady) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.readingLocked(now) {
		e.flight = &Flight{}
		e.flight.restUntil.Store(int64(now) + RetryPause.Milliseconds())
	}
}

// RestsFor is how long e tries no new read.
func (e *Entry) RestsFor(now clock.Steady) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flight == nil {
		return 0
	}
	return max(0, time.Duration(e.flight.restUntil.Load()-int64(now))*time.Millisecond)
}
