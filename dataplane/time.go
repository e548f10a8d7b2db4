package dataplane

import (
	"slices"
	"time"
)

// Cells are numbered by the origin's clock, so that the nodes of a region agree on them whatever their own clocks say.
// Each answer has the time at which it was made; with half of its round trip it tells how far this node's clock is from
// that, by at most the other half. Of the last answers the one that took least time is taken.

// hearTime takes in the time at which a shard has answered a call that began at a moment.
func (l *Limiter) hearTime(sh *shard, began, at time.Time) {
	if at.IsZero() {
		return
	}
	now := l.clock.Own()
	took := now.Sub(began)
	sh.offsets.Add(at.Sub(now)+took/2, took)
	var all []time.Duration
	for _, each := range l.shards {
		if ahead, ok := each.offsets.Ahead(); ok {
			all = append(all, ahead)
		}
	}
	slices.Sort(all)
	l.clock.Follow(all[(len(all)-1)/2])
}
