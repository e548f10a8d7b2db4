package slots

// waiter waits for a slot, or for the answer to the next call.
type waiter struct {
	ask        Ask
	once       bool        // answered by the next call, whatever it says
	number     int64       // of the call that has asked for it; 0: none yet
	ready      chan Result // takes the one answer
	queued     bool
	next, prev *waiter
}

// queue is a key's waiters, the first one first.
type queue struct {
	first, last *waiter
	len         int64
}

func (q *queue) add(w *waiter) {
	w.queued, w.prev = true, q.last
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	q.len++
}

func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.queued, w.next, w.prev = false, nil, nil
	q.len--
}

// answer gives those of the waiters that f picks a result.
func (e *entry) answer(result Result, pick func(*waiter) bool) {
	for w := e.waiters.first; w != nil; {
		next := w.next
		if pick(w) {
			e.waiters.remove(w)
			e.stripe.stats.Waiters--
			w.ready <- result
		}
		w = next
	}
}
