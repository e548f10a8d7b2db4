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

// Reads is the part of an entry that has to do with reading it from the origin: when the origin last answered about it,
// the read in flight, and until when decisions ask the origin first.
//
// It owns Entry.refreshedAt, behind.strictUntil and behind.flight.
type Reads struct{ e *Entry }

// Reads returns the part of the entry that has to do with reading it from the origin.
func (e *Entry) Reads() Reads { return Reads{e} }

// readingLocked is true while a read is in flight, or rested from.
func (r Reads) readingLocked(now clock.Steady) bool {
	if r.e.flight == nil {
		return false
	}
	rest := r.e.flight.restUntil.Load()
	return rest == 0 || int64(now) < rest
}

// joinLocked returns the read in flight; started is false when a new one may begin.
// nil and started: the key rests.
func (r Reads) joinLocked(now clock.Steady) (f *Flight, started bool) {
	switch {
	case !r.readingLocked(now):
		return nil, false
	case r.e.flight.restUntil.Load() != 0:
		return nil, true
	}
	return r.e.flight, true
}

// WantsRefresh is true when a decision should hear from the origin first.
func (r Reads) WantsRefresh(now clock.Steady, freshForMs int64) bool {
	return int64(now-r.RefreshedAt()) >= freshForMs || r.IsStrict(now)
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
func (r Reads) Join(now clock.Steady, begin func() *Flight) *Flight {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if f, started := r.joinLocked(now); started {
		return f
	}
	f := begin()
	if f != nil {
		r.e.flight = f
	}
	return f
}

// Cells are the previous cell and the current one.
func (r Reads) Cells() [2]window.Cell {
	seq := r.e.counter.sequence()
	return [2]window.Cell{r.e.Cell(seq - 1), r.e.Cell(seq)}
}

// RefreshedAt is when the origin last spoke about the current cell, by the steady clock; 0: never.
func (r Reads) RefreshedAt() clock.Steady { return clock.Steady(r.e.refreshedAt.Load()) }

// Hydrate merges the totals of two neighbouring cells and ends the read. It returns the epochs that the origin has
// lost, 0 for none.
func (r Reads) Hydrate(m *Counters, sequence int64, totals []store.Total, now clock.Steady) (lost [2]store.Epoch) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	r.e.flight = nil
	for i := range lost {
		if slot, ok := r.e.slotLocked(sequence + int64(i)); ok {
			lost[i] = r.e.Ledger().absorbLocked(m, slot, &totals[i])
		}
	}
	if sequence+1 == r.e.counter.sequence() {
		r.markRefreshed(now)
	}
	return lost
}

// Rest keeps e from asking the origin for a while.
func (r Reads) Rest(now clock.Steady) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if !r.readingLocked(now) {
		r.e.flight = &Flight{}
		r.e.flight.restUntil.Store(int64(now) + RetryPause.Milliseconds())
	}
}

// RestsFor is how long e tries no new read.
func (r Reads) RestsFor(now clock.Steady) time.Duration {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if r.e.flight == nil {
		return 0
	}
	return max(0, time.Duration(r.e.flight.restUntil.Load()-int64(now))*time.Millisecond)
}

// BeStrict makes the key's decisions ask the origin first until then. An
// earlier moment never replaces a later one.
func (r Reads) BeStrict(until clock.Steady) (entered bool) {
	if r.e.flags.Load()&flagStrict == 0 {
		r.e.flags.Or(flagStrict)
	}
	return raise(&r.e.behind.strictUntil, int64(until))
}

// IsStrict is true while the key asks the origin before it passes.
func (r Reads) IsStrict(now clock.Steady) bool {
	return r.e.flags.Load()&flagStrict != 0 && now < r.strictUntil()
}

// strictUntil returns until when the key asks the origin first, 0 if it never has.
func (r Reads) strictUntil() clock.Steady { return clock.Steady(r.e.behind.strictUntil.Load()) }

// markRefreshed records that the origin has spoken about the current cell.
func (r Reads) markRefreshed(now clock.Steady) { raise(&r.e.refreshedAt, int64(now)) }

// refreshLocked notes that the origin has answered about a cell. Only who was hydrated gets
// fresher by it: an answer about one cell does not tell of the other.
func (r Reads) refreshLocked(sequence int64, total *store.Total, now clock.Steady) {
	if total.Err == nil && sequence == r.e.counter.sequence() && r.RefreshedAt() != 0 && !r.e.Flags().Estimates() {
		r.markRefreshed(now)
	}
}

// forgetLocked marks the current cell as never read.
func (r Reads) forgetLocked() { r.e.refreshedAt.Store(0) }

// inheritLocked takes over what decisions about another entry of the key wait for.
func (r Reads) inheritLocked(of Reads) {
	r.e.behind.strictUntil.Store(int64(of.strictUntil()))
	if f := of.e.flight; f != nil && f.restUntil.Load() != 0 {
		r.e.flight = f
	}
}
