package dataplane

import (
	"context"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// Cells are numbered by the origin's clock, so that the nodes of a region agree on them whatever their own clocks say.
// Each answer has the time at which it was made; with half of its round trip it tells how far this node's clock is from
// that, by at most the other half. Of the last answers the one that took least time is taken.

// setRight replaces an entry whose cell has not begun by the clock, which was set back; false if it is as it should be.
func (l *Limiter) setRight(e *cell.Entry) bool {
	unsent, replaced := l.table.SetRight(e)
	l.forgot(e, unsent)
	if replaced && !l.clock.Known() { // its cost is unsent, and in no queue any more
		if e = l.table.Get(e.Identity()); e != nil {
			l.resend(l.shardOf(e), e)
		}
	}
	return replaced
}

// sweep has the table forget what is over, and sets right what is ahead of the clock.
func (l *Limiter) sweep() {
	_, unsent := l.table.Sweep(l.nowMs())
	l.metrics.dropped[droppedExpired].Add(unsent)
}

// tookMax is longer than any call to an origin takes.
const tookMax = 10 * time.Second

// observeTime takes in the time at which a shard has answered a call that began at a moment.
func (l *Limiter) observeTime(sh *shard, began, at time.Time) {
	if at.IsZero() {
		return
	}
	now := l.clock.Own()
	took := now.Sub(began)
	if took < 0 || took > tookMax {
		return // this node's own clock was set meanwhile: half of that is no half of a round trip
	}
	sh.offsets.Add(at.Sub(now)+took/2, took)
	var all []time.Duration
	for _, each := range l.shards {
		if ahead, ok := each.offsets.Ahead(); ok {
			all = append(all, ahead)
		}
	}
	slices.Sort(all)
	known := l.clock.Known()
	if l.clock.Follow(all[(len(all)-1)/2]); !known {
		l.table.Walk(l.place)
		l.table.PlaceSpilled(l.nowMs())
	}
}

// place has the cost of an entry that was counted in before the origin's clock was known sent in the cell that this
// clock shows.
func (l *Limiter) place(e *cell.Entry) {
	if placed, expired := l.table.Place(e, l.nowMs(), l.clock.Own().UnixMilli()); placed != nil {
		l.forgot(e, expired)
		l.resend(l.shardOf(placed), placed)
	}
}

// renumber readies an entry for a decision that began before the origin's clock was known. again reports whether the
// decision must look the key up and read it once more.
func (l *Limiter) renumber(e *cell.Entry, c *call) (again bool) {
	l.place(e)
	unsent, again := l.table.Renumber(e, c.horizon, c.nowMs)
	l.forgot(e, unsent)
	return again
}

// settle has a call that has read another clock go by the origin's, and reports whether that is known since.
func (l *Limiter) settle(c *call) (settled bool) {
	if c.known || !l.clock.Known() {
		return false
	}
	c.known, c.nowMs = true, l.clock.Settle(c.nowMs, c.horizon.Given(), l.cfg.ClockSkewMax)
	return true
}

// learnTime has the origin tell its time, if it has not yet, by a read of a key.
func (l *Limiter) learnTime(ctx context.Context, key *window.Key) {
	if l.clock.Known() || !l.calls.Begin() {
		return
	}
	defer l.calls.Done()
	ctx, cancel := context.WithTimeout(ctx, l.cfg.ReadTimeout)
	defer cancel()
	sh := l.shards[l.cfg.Origin.ShardOf(key)]
	if end, ok := sh.asks.Begin(); ok {
		_, _ = l.get(ctx, sh, []window.Cell{{Key: *key, Sequence: window.Sequence(l.nowMs(), key.DurationMs())}}, end)
	}
}

// askTime has the origin tell its time, if it has not yet, by a chunk without costs: until then none is sent.
func (l *Limiter) askTime(ctx context.Context, sh *shard, s *stream) error {
	if l.clock.Known() {
		return nil
	}
	reply, err := l.ship(ctx, sh, s, &chunk{})
	if err == nil && reply.Now.IsZero() {
		l.clock.FollowNone()
	}
	return err
}

// wallMs is what the clock shows now of a moment that the steady clock has shown, in Unix ms; 0 of 0. A moment that is
// kept by the steady clock is right again as soon as the wall clock is.
func (l *Limiter) wallMs(at int64) int64 {
	if at == 0 {
		return 0
	}
	return l.clock.WallOf(clock.Steady(at), l.nowMs()).UnixMilli()
}
