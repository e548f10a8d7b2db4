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

// Add records an answer that took `took` and shows the other clock ahead by `ahead`. An estimate is off by half of its
// took at most. If it is further than that from the quickest answer's, and by more than followStep, the other clock was
// set in between, and Add forgets the earlier answers. Smaller steps may be of several servers that answer in turn.
//
// If the other clock was set back, was is the most by which it can have been ahead before that.
func (o *Offsets) Add(ahead, took time.Duration) (was time.Duration, setBack bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	best, ok := o.best()
	if ok && (ahead-best.ahead).Abs() > (took+best.took)/2+followStep {
		o.samples = [offsetsMax]offset{}
		was, setBack = best.ahead+best.took/2, ahead < best.ahead
	}
	o.samples[o.next] = offset{ahead, took, true}
	o.next = (o.next + 1) % offsetsMax
	return was, setBack
}

// Ahead returns the offset of the quickest answer. ok is false if there is none.
func (o *Offsets) Ahead() (ahead time.Duration, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	best, ok := o.best()
	return best.ahead, ok
}

func (o *Offsets) best() (best offset, ok bool) {
	for _, s := range o.samples {
		if s.ok && (!best.ok || s.took < best.took) {
			best = s
		}
	}
	return best, best.ok
}
