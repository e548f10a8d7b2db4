package queue

import (
	"sync"

	"github.com/weirhq/weir/dataplane/internal/cell"
)

// Claims are the claims of a shard that wait for a call. One goroutine at a time has the lead: it
// makes the calls until no claim is left. The zero value is empty. All methods may be called
// concurrently.
type Claims struct {
	mu      sync.Mutex // no other lock is taken under it
	waiting Fair[*cell.Claim]
	leading bool
}

// Enter adds a claim. It reports whether the caller now has the lead.
func (q *Claims) Enter(c *cell.Claim) (lead bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting.Push(c.Entry.Group(), c)
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
	q.leading = q.waiting.Len() > 0
	return !q.leading
}

// Leave removes a claim, unless a call has taken it.
func (q *Claims) Leave(c *cell.Claim) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting.Remove(c.Entry.Group(), func(waiting *cell.Claim) bool { return waiting == c })
}

// Take removes and returns n claims, or all if there are fewer. Namespaces take turns. If no claim waits, the lead
// ends.
func (q *Claims) Take(n int) []*cell.Claim {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leading = q.waiting.Len() > 0
	return q.waiting.Take(n)
}

// TakeAll removes and returns all claims. The lead stays.
func (q *Claims) TakeAll() []*cell.Claim {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.Take(q.waiting.Len())
}

// PutBack inserts claims before all others of their namespaces.
func (q *Claims) PutBack(later []*cell.Claim) {
	byGroup := make(map[uint16][]*cell.Claim)
	for _, c := range later {
		byGroup[c.Entry.Group()] = append(byGroup[c.Entry.Group()], c)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for of, claims := range byGroup {
		q.waiting.PushFront(of, claims...)
	}
}

// Abandon ends all claims and the lead, because the limiter has stopped.
func (q *Claims) Abandon() {
	for _, c := range q.TakeAll() {
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
	return q.waiting.Len()
}
