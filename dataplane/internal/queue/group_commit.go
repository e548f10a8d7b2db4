// Package queue holds entries, claims and costs that wait for a call to a shard of the origin.
package queue

import "sync"

// GroupCommit is a queue whose values wait for a call. One goroutine at a time has the lead, and makes the calls. All
// values that arrive during a call go together in the next call, like commits that share a write to a log. The lead
// ends when no value is left. Namespaces, which cell.Entry.Group identifies, take turns.
//
// The zero value is empty. All methods may be called concurrently.
type GroupCommit[T any] struct {
	mu      sync.Mutex // no other lock is taken under it
	waiting Fair[T]
	leading bool
}

// Enter adds a value. It reports whether the caller now has the lead.
func (q *GroupCommit[T]) Enter(of uint16, v T) (lead bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting.Push(of, v)
	return q.leadLocked()
}

// Lead reports whether the caller now has the lead.
func (q *GroupCommit[T]) Lead() (lead bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leadLocked()
}

func (q *GroupCommit[T]) leadLocked() (lead bool) {
	lead = !q.leading
	q.leading = true
	return lead
}

// Yield ends the lead if no value waits, and reports whether it did.
func (q *GroupCommit[T]) Yield() (ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leading = q.waiting.Len() > 0
	return !q.leading
}

// Take removes and returns the next values: as many as fit into room, by the size of each, and at least one. If no
// value waits, the lead ends.
func (q *GroupCommit[T]) Take(room int, size func(T) int) (taken []T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for next, ok := q.waiting.Peek(); ok; next, ok = q.waiting.Peek() {
		if room -= size(next); room < 0 && len(taken) > 0 {
			break
		}
		q.waiting.Pop()
		taken = append(taken, next)
	}
	q.leading = len(taken) > 0
	return taken
}

// TakeAll removes and returns all values. The lead stays.
func (q *GroupCommit[T]) TakeAll() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.Take(q.waiting.Len())
}

// PutBack inserts values of a namespace before all others of it.
func (q *GroupCommit[T]) PutBack(of uint16, values ...T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting.PushFront(of, values...)
}

// Leave removes the first value of a namespace that matches, unless a call has taken it.
func (q *GroupCommit[T]) Leave(of uint16, matches func(T) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting.Remove(of, matches)
}

// Len returns the number of waiting values.
func (q *GroupCommit[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.Len()
}
