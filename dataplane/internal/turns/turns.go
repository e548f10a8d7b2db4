// Package turns lets callers that wait for the same key take turns, in the order in which they came.
package turns

import "sync"

// Lines has a line of callers for each key. The zero Lines is ready to use, and all its methods may be called
// concurrently. It starts no goroutine: callers wait in their own, and each caller that leaves lets the next one know.
// A key takes memory only while a caller is in its line.
type Lines[K comparable] struct {
	mu    sync.Mutex
	lines map[K]*line[K]
}

// Ahead describes the callers before a new caller of a line.
type Ahead struct {
	Any   bool    // there are such callers
	Cost  float64 // of the callers that have called Stay
	Limit int64   // the highest limit of the line since its first caller came
}

// line is a list of turns, from the first to the last. It is never empty while Lines holds it.
type line[K comparable] struct {
	key         K
	first, last *Turn[K]
	cost        float64 // of all turns that stay
	limit       int64   // the highest that a caller came with
}

// Turn is a caller's place in a line.
type Turn[K comparable] struct {
	lines        *Lines[K]
	line         *line[K]
	cost         float64 // 0 before Stay
	came         chan struct{}
	before, next *Turn[K]
}

// Join appends a caller to the line of a key. The caller must call Leave, whether its turn has come or not.
func (l *Lines[K]) Join(key K, limit int64) (t *Turn[K], ahead Ahead) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.lines[key]
	if of == nil {
		if l.lines == nil {
			l.lines = make(map[K]*line[K])
		}
		of = &line[K]{key: key}
		l.lines[key] = of
	}
	t = &Turn[K]{lines: l, line: of, came: make(chan struct{}), before: of.last}
	if t.before == nil {
		of.first = t
		close(t.came)
	} else {
		t.before.next = t
	}
	of.last = t
	ahead = Ahead{Any: t.before != nil, Cost: of.cost, Limit: of.limit}
	of.limit = max(of.limit, limit)
	return t, ahead
}

// Stay adds the caller's cost to its line, until it leaves. Call it when the caller must wait, so that callers that
// leave at once do not count.
func (t *Turn[K]) Stay(cost int64) {
	t.lines.mu.Lock()
	defer t.lines.mu.Unlock()
	t.line.cost += float64(cost) - t.cost
	t.cost = float64(cost)
}

// Came returns a channel that is closed when the caller is the first of its line.
func (t *Turn[K]) Came() <-chan struct{} { return t.came }

// Leave ends a caller's turn, or its wait for it. If the caller was the first of its line, the next one's turn comes.
func (t *Turn[K]) Leave() {
	t.lines.mu.Lock()
	defer t.lines.mu.Unlock()
	of := t.line
	of.cost -= t.cost
	if t.next == nil {
		of.last = t.before
	} else {
		t.next.before = t.before
	}
	if t.before != nil {
		t.before.next = t.next
		return
	}
	of.first = t.next
	if of.first == nil {
		delete(t.lines.lines, of.key)
		return
	}
	close(of.first.came)
}
