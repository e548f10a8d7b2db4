package queue

import (
	"slices"
	"sync"

	"github.com/weirhq/weir/dataplane/internal/cell"
)

// Claims are the claims of a shard that no call has taken yet. One goroutine at a time has the lead: it makes the
// calls, until it finds no claim. The zero value is empty. All methods may be called at once.
type Claims struct {
	mu      sync.Mutex // nothing else is locked under it
	waiting []*cell.Claim
	leading bool
}

// Enter adds a claim. It reports whether the caller has the lead from now on.
func (q *Claims) Enter(c *cell.Claim) (lead bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, c)
	return q.leadLocked()
}

// Lead reports whether the caller has the lead from now on.
func (q *Claims) Lead() (lead bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leadLocked()
}

func (q *Claims) leadLocked() (lead bool) {
	lead = !q.leading
	q.leading = true
	return lead
}

// Yield ends the lead unless a claim waits.
func (q *Claims) Yield() (ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leading = len(q.waiting) > 0
	return !q.leading
}

// Leave removes a claim if no call has taken it.
func (q *Claims) Leave(c *cell.Claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, c); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

// Take removes all claims. With none the lead ends.
func (q *Claims) Take() []*cell.Claim {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.waiting
	q.waiting = nil
	q.leading = len(taken) > 0
	return taken
}

// PutBack adds claims before all others.
func (q *Claims) PutBack(later []*cell.Claim) {
	if len(later) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(later, q.waiting...)
}

// Abandon ends all claims, and the lead: the limiter is stopped.
func (q *Claims) Abandon() {
	for _, c := range q.Take() {
		c.Finish(cell.WayBroken)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leading = false
}

// Len is how many claims wait.
func (q *Claims) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}
