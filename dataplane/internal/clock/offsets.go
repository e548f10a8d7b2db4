package clock

import (
	"sync"
	"time"
)

const offsetsMax = 16

// Offsets estimate how far another clock is ahead of this one, from that clock's last answers. The
// zero value has no answers. All methods may be called concurrently.
type Offsets struct {
	mu      sync.Mutex
	samples [offsetsMax]offset
	next    int
}

// offset is the estimate from one answer, and how long the answer took.
type offset struct {
	ahead, took time.Duration
	ok          bool
}

// Add records an answer that took `took` and shows the other clock ahead by `ahead`.
func (o *Offsets) Add(ahead, took time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.samples[o.next] = offset{ahead, took, true}
	o.next = (o.next + 1) % offsetsMax
}

// Ahead returns the offset of the quickest answer. ok is false if there is none.
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
