package relay

import "slices"

// queue is first in, first out, and uses its memory again.
type queue[T any] struct {
	items []T
	from  int // items before it were taken
}

// queueKept is how many items a queue has room for that is empty: what took more may not come again.
const queueKept = 1 << 17

func (q *queue[T]) len() int { return len(q.items) - q.from }

// all are valid until the queue is changed.
func (q *queue[T]) all() []T { return q.items[q.from:] }

func (q *queue[T]) push(item T) {
	if q.from > len(q.items)/2 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.all())
		clear(q.items[n:])
		q.items, q.from = q.items[:n], 0
	}
	q.items = append(q.items, item)
}

// drop takes the first n.
func (q *queue[T]) drop(n int) {
	clear(q.items[q.from : q.from+n])
	if q.from += n; q.from == len(q.items) {
		q.reset()
	}
}

// remove takes those that gone is true of.
func (q *queue[T]) remove(gone func(T) bool) {
	left := slices.DeleteFunc(q.all(), gone)
	if q.items = q.items[:q.from+len(left)]; len(left) == 0 {
		q.reset()
	}
}

// reset empties it.
func (q *queue[T]) reset() {
	clear(q.items)
	if q.items, q.from = q.items[:0], 0; cap(q.items) > queueKept {
		q.items = nil
	}
}
