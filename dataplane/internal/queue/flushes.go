package queue

import (
	"slices"
	"sync"

	"github.com/weirhq/weir/dataplane/internal/cell"
)

// Flushes are the entries of a shard to send before the next tick. Each is in the queue at most once:
// see cell.Ledger.MarkFlush. Make Flushes with NewFlushes. All methods may be called concurrently.
type Flushes struct {
	Woken chan struct{} // receives a value when there may be entries to send

	mu      sync.Mutex // no other lock is taken under it
	entries Fair[*cell.Entry]
	awaited map[*cell.Entry]*cell.Flight // each ends when the reply to its flush is merged
}

// NewFlushes returns an empty queue.
func NewFlushes() *Flushes {
	return &Flushes{Woken: make(chan struct{}, 1), awaited: make(map[*cell.Entry]*cell.Flight)}
}

// Add adds an entry and wakes the loop that sends it.
func (k *Flushes) Add(e *cell.Entry) {
	k.mu.Lock()
	k.entries.Push(e.Group(), e)
	k.mu.Unlock()
	select {
	case k.Woken <- struct{}{}:
	default:
	}
}

// Take removes and returns n entries, or all if there are fewer. Namespaces take turns.
func (k *Flushes) Take(n int) []*cell.Entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.entries.Take(n)
}

// Await returns a flight that ends when the reply to the next send of e is merged, or when no reply
// will come.
func (k *Flushes) Await(e *cell.Entry) *cell.Flight {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.awaited[e]
	if f == nil {
		f = cell.NewFlight()
		k.awaited[e] = f
	}
	return f
}

// Answer ends the flights of the flushed entries; err is why the entries in failed were not sent.
func (k *Flushes) Answer(flushing, failed []*cell.Entry, err error) {
	if len(flushing) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range flushing {
		if f := k.awaited[e]; f != nil {
			delete(k.awaited, e)
			if slices.Contains(failed, e) {
				f.Err = err
			}
			close(f.Done)
		}
	}
}
