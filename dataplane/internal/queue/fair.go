package queue

import "slices"

// Fair is a queue that namespaces share. It keeps the values of each namespace in a line of their own, in the order in
// which they were pushed. Pop takes the lines in turn, a value of each. So a namespace with 100,000 waiting values
// delays the next value of any other namespace by a single value.
//
// The zero value is empty. Its methods may not be called concurrently.
type Fair[T any] struct {
	lines map[uint16]*line[T]
	last  *line[T] // the ring of lines: last.next has the turn; nil when the queue is empty
	size  int
}

// line holds the values of a namespace, at least one value.
type line[T any] struct {
	of     uint16
	values []T
	next   *line[T]
}

// Len returns the number of values.
func (q *Fair[T]) Len() int { return q.size }

// Push adds a value behind all others of its namespace. cell.Entry.Group identifies the namespace.
func (q *Fair[T]) Push(of uint16, v T) {
	l := q.lineOf(of)
	l.values = append(l.values, v)
	q.size++
}

// PushFront adds values before all others of their namespace.
func (q *Fair[T]) PushFront(of uint16, values ...T) {
	if len(values) == 0 {
		return
	}
	l := q.lineOf(of)
	l.values = slices.Insert(l.values, 0, values...)
	q.size += len(values)
}

// lineOf returns the line of a namespace. A new line gets its turn after all others.
func (q *Fair[T]) lineOf(of uint16) *line[T] {
	if l := q.lines[of]; l != nil {
		return l
	}
	l := &line[T]{of: of}
	if q.lines == nil {
		q.lines = make(map[uint16]*line[T])
	}
	q.lines[of] = l
	if q.last == nil {
		l.next = l
	} else {
		l.next, q.last.next = q.last.next, l
	}
	q.last = l
	return l
}

// Peek returns the value that Pop would return. ok is false if the queue is empty.
func (q *Fair[T]) Peek() (v T, ok bool) {
	if q.last == nil {
		return v, false
	}
	return q.last.next.values[0], true
}

// Pop removes and returns the next value. ok is false if the queue is empty.
func (q *Fair[T]) Pop() (v T, ok bool) {
	if v, ok = q.Peek(); !ok {
		return v, false
	}
	var none T
	l := q.last.next
	l.values[0] = none // or the array would keep it alive
	l.values = l.values[1:]
	q.size--
	if len(l.values) > 0 {
		q.last = l
	} else {
		q.drop(q.last, l)
	}
	return v, true
}

// Take removes and returns the next n values, or all if there are fewer.
func (q *Fair[T]) Take(n int) []T {
	if q.size == 0 {
		return nil
	}
	taken := make([]T, 0, min(n, q.size))
	for len(taken) < cap(taken) {
		v, _ := q.Pop()
		taken = append(taken, v)
	}
	return taken
}

// Remove removes the first value of a namespace for which matches returns true.
func (q *Fair[T]) Remove(of uint16, matches func(T) bool) {
	l := q.lines[of]
	if l == nil {
		return
	}
	i := slices.IndexFunc(l.values, matches)
	if i < 0 {
		return
	}
	l.values = slices.Delete(l.values, i, i+1)
	q.size--
	if len(l.values) == 0 {
		before := l
		for before.next != l {
			before = before.next
		}
		q.drop(before, l)
	}
}

// drop removes a line; before is the line before it in the ring.
func (q *Fair[T]) drop(before, l *line[T]) {
	delete(q.lines, l.of)
	before.next = l.next
	switch {
	case before == l:
		q.last = nil
	case q.last == l:
		q.last = before
	}
}
