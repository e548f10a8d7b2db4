package slots

import "github.com/weirhq/weir/dataplane/internal/fair"

// waiter is a request that waits for a slot, or for the answer to the next call.
type waiter struct {
	ask    Ask
	once   bool        // answered after the next call, with or without a slot
	number int64       // number of the call that has requested its slot; 0: none yet
	ready  chan Result // receives the result
	at     *fair.Wait[*waiter]
}

// queue is a key's waiters, among whom callers take turns.
type queue struct {
	line fair.Line[*waiter]
	len  int64
}

// hasRoom reports whether another request of a caller may wait, if at most most may wait.
func (q *queue) hasRoom(by fair.Caller, most int64) bool {
	own := int64(0)
	if by.Labelled() {
		own = q.line.Of(by)
	}
	return fair.HasRoom(own, own, most-q.len, most)
}

func (q *queue) add(w *waiter) {
	w.at = q.line.Add(w.ask.By, w)
	q.len++
}

func (q *queue) remove(w *waiter) {
	q.line.Remove(w.at)
	q.len--
}

// all yields the waiters in their order. The callee may remove the current waiter.
func (q *queue) all(yield func(*waiter) bool) {
	for at := q.line.First(); at != nil; {
		next := at.Next()
		if !yield(at.Value) {
			return
		}
		at = next
	}
}

// answer sends a result to the waiters that pick selects, and removes them.
func (e *entry) answer(result Result, pick func(*waiter) bool) {
	for w := range e.waiters.all {
		if pick(w) {
			e.waiters.remove(w)
			e.stripe.stats.Waiters--
			w.ready <- result
		}
	}
}
