package clock

import (
	"sync"
	"time"
)

const offsetsMax = 16

// Offsets are how far another clock is ahead of this one, by its last answers. The zero value has none. It is safe for
// concurrent use.
type Offsets struct {
	mu      sync.Mutex
	samples [offsetsMax]offset
	next    int
}

// offset is what one answer shows, and how long the answer took.
type offset struct {
	ahead, took time.Duration
	ok          bool
}

// Add takes in an answer that took some time and shows the other clock ahead by an amount.
func (o *Offsets) Add(ahead, took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.samples[o.next] = offset{ahead, took, true}
	o.next = (o.next + 1) % offsetsMax
}

// Ahead is the offset by the quickest answer; ok is false without any.
func (o *Offsets) Ahead() (ahead time.Duration, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	best := offset{}
	for _, s := range o.samples {
		if s.ok && (!best.ok || s.took < best.took) {
			best = s
		}
	}
	return best.ahead, best.ok
}
