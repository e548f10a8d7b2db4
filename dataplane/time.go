package dataplane

import (
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
)

// Cells are numbered by the origin's clock, so that the nodes of a region agree on them whatever their own clocks say.
// Each answer has the time at which it was made; with half of its round trip it tells how far this node's clock is from
// that, by at most the other half. Of the last answers the one that took least time is taken.

// setRight replaces an entry whose cell has not begun by the clock, which was set back; false if it is as it should be.
func (l *Limiter) setRight(e *cell.Entry) bool {
	unsent, replaced := l.table.SetRight(e)
	l.forgot(e, unsent)
	return replaced
}

// sweep has the table forget what is over, and sets right what is ahead of the clock.
func (l *Limiter) sweep() {
	_, unsent := l.table.Sweep(l.nowMs())
	l.metrics.dropped[droppedExpired].Add(unsent)
}

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
