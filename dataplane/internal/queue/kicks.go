// Package queue has what waits for a call to a shard of the origin: entries that are to be sent at once, and claims.
package queue

import (
	"slices"
	"sync"

	"github.com/weirhq/weir/dataplane/internal/cell"
)

// Kicks are the entries of a shard that are to be sent at once, each once: see cell.Entry.MarkKicked. Make them with
// NewKicks. All methods may be called at once.
type Kicks struct {
	Woken chan struct{} // takes a value when there may be entries to send

	mu      sync.Mutex // nothing else is locked under it
	entries []*cell.Entry
	awaited map[*cell.Entry]*cell.Flight // closed when the reply to a kick is merged
}

// NewKicks makes an empty queue.
func NewKicks() *Kicks {
	return &Kicks{Woken: make(chan struct{}, 1), awaited: make(map[*cell.Entry]*cell.Flight)}
}

// Add adds an entry, and wakes the loop that sends it.
func (k *Kicks) Add(e *cell.Entry) {
	k.mu.Lock()
	k.entries = append(k.entries, e)
	k.mu.Unlock()
	select {
	case k.Woken <- struct{}{}:
	default:
	}
}

// Take removes the first n entries, or fewer if there are fewer.
func (k *Kicks) Take(n int) []*cell.Entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	n = min(n, len(k.entries))
	taken := k.entries[:n:n]
	if k.entries = k.entries[n:]; len(k.entries) == 0 {
		k.entries = nil
	}
	return taken
}

// Await returns a flight that ends when the reply to the next send of e is merged, or when there will be none.
func (k *Kicks) Await(e *cell.Entry) *cell.Flight {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.awaited[e]
	if f == nil {
		f = cell.NewFlight(nil)
		k.awaited[e] = f
	}
	return f
}

// Answer ends the flights of entries; err is why those of failed were not sent.
func (k *Kicks) Answer(kicked, failed []*cell.Entry, err error) {
	if len(kicked) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range kicked {
		if f := k.awaited[e]; f != nil {
			delete(k.awaited, e)
			if slices.Contains(failed, e) {
				f.Err = err
			}
			close(f.Done)
		}
	}
}
