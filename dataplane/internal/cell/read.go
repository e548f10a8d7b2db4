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

// Flight is a read in flight, shared by all requests that wait for its keys.
type Flight struct {
	Done      chan struct{} // closed when the answer is merged, or has failed
	Err       error         // read after done
	restUntil atomic.Int64  // clock.Steady before which its keys try no new read; 0 unless it failed
}

// NewFlight makes a read that has no answer yet.
func NewFlight() *Flight { return &Flight{Done: make(chan struct{})} }

// Reads is the part of an entry that has to do with reading it from the origin: when the origin last answered about it,
// the read in flight, and until when decisions must read the origin first.
//
// It owns Entry.refreshedAt, behind.strictUntil and behind.flight.
type Reads struct{ e *Entry }

// Reads returns the part of the entry that has to do with reading it from the origin.
func (e *Entry) Reads() Reads { return Reads{e} }

// readingLocked reports whether a read is in flight, or failed so recently that the key rests.
func (r Reads) readingLocked(now clock.Steady) bool {
	f := r.e.flight.Load()
	if f == nil {
		return false
	}
	rest := f.restUntil.Load()
	return rest == 0 || int64(now) < rest
}

// joinLocked returns the read in flight. started is false if a new read can begin. A nil read with started means that
// the key rests.
func (r Reads) joinLocked(now clock.Steady) (f *Flight, started bool) {
	switch {
	case !r.readingLocked(now):
		return nil, false
	case r.e.flight.Load().restUntil.Load() != 0:
		return nil, true
	}
	return r.e.flight.Load(), true
}

// missLocked records that the previous cell has ended after it was last read. The next decision can begin a read of its
// own, because the read in flight is about earlier cells.
func (r Reads) missLocked() {
	r.e.flags.Or(flagUnread)
	if f := r.e.flight.Load(); f != nil && f.restUntil.Load() == 0 {
		r.e.flight.Store(nil)
	}
}

// WantsRefresh reports whether a decision should read the key from the origin first.
func (r Reads) WantsRefresh(now clock.Steady, freshForMs int64) bool {
	return int64(now-r.RefreshedAt()) >= freshForMs || r.IsStrict(now)
}

// MissEnd reports whether the cell before the cell of nowMs was not read since it ended. Other nodes may have added to
// it after the last answer about it.
func (r Reads) MissEnd(nowMs, durationMs int64) bool {
	return r.e.flags.Load()&flagUnread != 0 || nowMs >= window.Start(r.e.counter.sequence()+1, durationMs)
}

// RepliesServe reports whether a reply about the current cell is worth as much to a decision as a read of both cells:
// the origin has answered about the key, and the previous cell has been read since it ended.
func (r Reads) RepliesServe(nowMs, durationMs int64) bool {
	seq := r.e.counter.sequence()
	return r.RefreshedAt() != 0 && nowMs < window.Start(seq+1, durationMs) &&
		r.e.flags.Load()&(flagStale<<previousSlot(slotOf(seq))) == 0
}

// Failed reports whether the read has failed.
func (f *Flight) Failed() bool {
	select {
	case <-f.Done:
		return f.Err != nil
	default:
		return false
	}
}

// Fail ends a read that got no answer: its keys' counts stay, and the keys rest.
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

// Join returns the read in flight, or the read that begin starts, or nil while the entry rests. begin runs under the
// entry's lock, so it must not take the lock again.
func (r Reads) Join(now clock.Steady, begin func() *Flight) *Flight {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if f, started := r.joinLocked(now); started {
		return f
	}
	f := begin()
	if f != nil {
		r.e.flight.Store(f)
	}
	return f
}

// Cells returns the previous cell and the current cell.
func (r Reads) Cells() [2]window.Cell {
	seq := r.e.counter.sequence()
	return [2]window.Cell{r.e.Cell(seq - 1), r.e.Cell(seq)}
}

// RefreshedAt returns when the origin last answered about the current cell, by the steady clock, or 0 for never.
func (r Reads) RefreshedAt() clock.Steady { return clock.Steady(r.e.refreshedAt.Load()) }

// Hydrate merges the totals of two neighbouring cells and ends the read f. A read of later cells that has begun
// meanwhile goes on. It returns the epochs that the origin has lost, 0 for none.
func (r Reads) Hydrate(m *Counters, f *Flight, sequence int64, totals []store.Total,
	now clock.Steady) (lost [2]store.Epoch) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if r.e.flight.Load() == f {
		r.e.flight.Store(nil)
	}
	for i := range lost {
		if slot, ok := r.e.slotLocked(sequence + int64(i)); ok {
			lost[i] = r.e.Ledger().absorbLocked(m, slot, &totals[i])
		}
	}
	if sequence+1 == r.e.counter.sequence() {
		r.markRefreshed(now)
		r.e.flags.And(^uint32(flagUnread))
	}
	return lost
}

// Rest stops new reads of the key for a while.
func (r Reads) Rest(now clock.Steady) {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	if !r.readingLocked(now) {
		f := &Flight{}
		f.restUntil.Store(int64(now) + RetryPause.Milliseconds())
		r.e.flight.Store(f)
	}
}

// RestsFor returns for how long the entry tries no new read. Denials ask it, so it takes no lock.
func (r Reads) RestsFor(now clock.Steady) time.Duration {
	f := r.e.flight.Load()
	if f == nil {
		return 0
	}
	return max(0, time.Duration(f.restUntil.Load()-int64(now))*time.Millisecond)
}

// BeStrict makes the key's decisions read the origin first until a moment. An earlier moment never replaces a later
// moment.
func (r Reads) BeStrict(until clock.Steady) (entered bool) {
	if r.e.flags.Load()&flagStrict == 0 {
		r.e.flags.Or(flagStrict)
	}
	return raise(&r.e.behind.strictUntil, int64(until))
}

// IsStrict reports whether the key's decisions must read the origin before they pass a request.
func (r Reads) IsStrict(now clock.Steady) bool {
	return r.e.flags.Load()&flagStrict != 0 && now < r.strictUntil()
}

// strictUntil returns until when the key's decisions read the origin first, or 0 if they never had to.
func (r Reads) strictUntil() clock.Steady { return clock.Steady(r.e.behind.strictUntil.Load()) }

// markRefreshed records that the origin has answered about the current cell.
func (r Reads) markRefreshed(now clock.Steady) { raise(&r.e.refreshedAt, int64(now)) }

// refreshLocked records that the origin has answered about a cell. Only an entry that was hydrated becomes fresher,
// because an answer about one cell leaves the other cell as it was.
func (r Reads) refreshLocked(sequence int64, total *store.Total, now clock.Steady) {
	if total.Err == nil && sequence == r.e.counter.sequence() && r.RefreshedAt() != 0 && !r.e.Flags().Estimates() {
		r.markRefreshed(now)
	}
}

// forgetLocked marks the current cell as never read.
func (r Reads) forgetLocked() { r.e.refreshedAt.Store(0) }

// inheritLocked takes over the deadlines and the failed read that decisions about another entry of the key wait for.
func (r Reads) inheritLocked(of Reads) {
	r.e.behind.strictUntil.Store(int64(of.strictUntil()))
	if f := of.e.flight.Load(); f != nil && f.restUntil.Load() != 0 {
		r.e.flight.Store(f)
	}
}
