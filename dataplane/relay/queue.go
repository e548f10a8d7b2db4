package relay

import "slices"

// queue is a first-in, first-out queue that reuses its memory.
type queue[T any] struct {
	items []T
	from  int // items before it were dropped
}

// queueKept is the largest capacity that an empty queue keeps. A larger backlog is rare, so its memory is freed.
const queueKept = 1 << 17

func (q *queue[T]) len() int { return len(q.items) - q.from }

// all returns the items, which are valid until the queue changes.
func (q *queue[T]) all() []T { return q.items[q.from:] }

func (q *queue[T]) push(item T) {
	if q.from > len(q.items)/2 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.all())
		clear(q.items[n:])
		q.items, q.from = q.items[:n], 0
	}
	q.items = append(q.items, item)
}

// drop removes the first n items.
func (q *queue[T]) drop(n int) {
	clear(q.items[q.from : q.from+n])
	if q.from += n; q.from == len(q.items) {
		q.reset()
	}
}

// remove removes the items for which gone returns true.
func (q *queue[T]) remove(gone func(T) bool) {
	left := slices.DeleteFunc(q.all(), gone)
	if q.items = q.items[:q.from+len(left)]; len(left) == 0 {
		q.reset()
	}
}

// reset removes all items.
func (q *queue[T]) reset() {
	clear(q.items)
	if q.items, q.from = q.items[:0], 0; cap(q.items) > queueKept {
		q.items = nil
	}
}
