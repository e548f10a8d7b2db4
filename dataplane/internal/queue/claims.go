package queue

import (
	"slices"
	"sync"

	"github.com/weirhq/weir/dataplane/internal/cell"
)

// Claims are the claims of a shard that wait for a call. One goroutine at a time has the lead: it
// makes the calls until no claim is left. The zero value is empty. All methods may be called
// concurrently.
type Claims struct {
	mu      sync.Mutex // no other lock is taken under it
	waiting []*cell.Claim
	leading bool
}

// Enter adds a claim. It reports whether the caller now has the lead.
func (q *Claims) Enter(c *cell.Claim) (lead bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, c)
	return q.leadLocked()
}

// Lead reports whether the caller now has the lead.
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

// Yield ends the lead if no claim waits, and reports whether it did.
func (q *Claims) Yield() (ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leading = len(q.waiting) > 0
	return !q.leading
}

// Leave removes a claim, unless a call has taken it.
func (q *Claims) Leave(c *cell.Claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, c); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

// Take removes and returns all claims. If there are none, the lead ends.
func (q *Claims) Take() []*cell.Claim {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.waiting
	q.waiting = nil
	q.leading = len(taken) > 0
	return taken
}

// PutBack inserts claims before all others.
func (q *Claims) PutBack(later []*cell.Claim) {
	if len(later) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(later, q.waiting...)
}

// Abandon ends all claims and the lead, because the limiter has stopped.
func (q *Claims) Abandon() {
	for _, c := range q.Take() {
		c.Finish(cell.WayBroken)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leading = false
}

// Len returns the number of waiting claims.
func (q *Claims) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}
