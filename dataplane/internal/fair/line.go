package fair

// Line is a queue in which callers take turns. Each caller's waits are in the order in which they were added. If waits
// are served in the order of the line, a caller without a wait is served after at most two waits of each other caller:
// a wait of the turn that is being served, and a wait of the next turn. For example, if a caller adds a hundred waits,
// and then another caller adds its first, that is second in the line.
//
// The zero Line is empty. Add walks from the nearer end of the line to the place of the new wait; all other methods
// take constant time. A Line must not be used concurrently.
type Line[T any] struct {
	first, last *Wait[T]
	callers     map[Caller]*waits // callers with a wait
	served      uint64            // the largest turn that was served
}

// waits are a caller's waits in a Line.
type waits struct {
	n    int64
	turn uint64 // of the last wait
}

// Wait is an element of a Line.
type Wait[T any] struct {
	Value T

	by         Caller
	turn       uint64 // a caller's next wait has the next turn; no two of a caller's waits have the same turn
	queued     bool
	next, prev *Wait[T]
}

// First returns the wait that is served next, or nil.
func (l *Line[T]) First() *Wait[T] { return l.first }

// Next returns the wait after w, or nil.
func (w *Wait[T]) Next() *Wait[T] { return w.next }

// Queued reports whether the wait is in its line.
func (w *Wait[T]) Queued() bool { return w.queued }

// Of returns how many waits a caller has.
func (l *Line[T]) Of(by Caller) int64 {
	if of := l.callers[by]; of != nil {
		return of.n
	}
	return 0
}

// Add adds a wait of a caller.
func (l *Line[T]) Add(by Caller, value T) *Wait[T] {
	of := l.callers[by]
	if of == nil {
		if l.callers == nil {
			l.callers = make(map[Caller]*waits)
		}
		of = new(waits)
		l.callers[by] = of
	}
	of.n++
	of.turn = max(of.turn, l.served) + 1
	w := &Wait[T]{Value: value, by: by, turn: of.turn, queued: true}
	l.insert(w, l.before(w.turn))
	return w
}

// before returns the last wait whose turn is not after turn, or nil. It begins at the nearer end.
func (l *Line[T]) before(turn uint64) *Wait[T] {
	if l.first == nil || l.first.turn > turn {
		return nil
	}
	if turn-l.first.turn < l.last.turn-min(turn, l.last.turn) {
		at := l.first
		for at.next != nil && at.next.turn <= turn {
			at = at.next
		}
		return at
	}
	at := l.last
	for at.turn > turn {
		at = at.prev
	}
	return at
}

// insert puts a wait after another wait, or at the front if after is nil.
func (l *Line[T]) insert(w, after *Wait[T]) {
	if w.prev = after; after == nil {
		w.next, l.first = l.first, w
	} else {
		w.next, after.next = after.next, w
	}
	if w.next == nil {
		l.last = w
	} else {
		w.next.prev = w
	}
}

// Serve notes that it is a wait's turn: waits that are added later come after it. w stays in the line until Remove.
func (l *Line[T]) Serve(w *Wait[T]) { l.served = max(l.served, w.turn) }

// Remove removes a wait.
func (l *Line[T]) Remove(w *Wait[T]) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.queued, w.next, w.prev = false, nil, nil
	if of := l.callers[w.by]; of.n > 1 {
		of.n--
	} else {
		delete(l.callers, w.by)
	}
}
