package dataplane

import (
	"slices"
	"sync"
	"time"
)

// Cells are numbered by the origin's clock, so that the nodes of a region agree on them whatever their own clocks say.
// Each answer has the time at which it was made; with half of its round trip it tells how far this node's clock is from
// that, by at most the other half. Of the last answers the one that took least time is taken.

const samplesMax = 16

// timing is what the last answers of a shard tell of its clock.
type timing struct {
	mu      sync.Mutex
	samples [samplesMax]sample
	next    int
}

// sample is how far the shard's clock is ahead of this node's, and how long the answer took.
type sample struct {
	ahead, took time.Duration
	ok          bool
}

// add takes in an answer.
func (t *timing) add(s sample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.samples[t.next] = s
	t.next = (t.next + 1) % samplesMax
}

// ahead is how far the shard's clock is ahead by the quickest answer.
func (t *timing) ahead() (ahead time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	best := sample{}
	for _, s := range t.samples {
		if s.ok && (!best.ok || s.took < best.took) {
			best = s
		}
	}
	return best.ahead, best.ok
}

// hearTime takes in the time at which a shard has answered a call that began at a moment.
func (l *Limiter) hearTime(sh *shard, began, at time.Time) {
	if at.IsZero() {
		return
	}
	now := l.clock.Own()
	took := now.Sub(began)
	sh.timing.add(sample{at.Sub(now) + took/2, took, true})
	var all []time.Duration
	for _, each := range l.shards {
		if ahead, ok := each.timing.ahead(); ok {
			all = append(all, ahead)
		}
	}
	slices.Sort(all)
	l.clock.Follow(all[(len(all)-1)/2])
}
