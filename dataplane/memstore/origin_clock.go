package memstore

import (
	"maps"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// shardClock is the state by which a shard finds out that its clock was set back: see store.Origin.
type shardClock struct {
	last time.Time     // the latest reading, but none from before the clock was set back
	most time.Time     // the latest reading of all; zero unless the clock was set back and has not caught up with it
	back time.Duration // by how much the clock was set back so far, all times together
}

// read records a reading, and reports whether the clock was set back before it.
func (c *shardClock) read(now time.Time) (setBack bool) {
	if setBack = c.last.Sub(now) > store.ClockSetBack; setBack {
		c.back += c.last.Sub(now)
		if c.last.After(c.most) {
			c.most = c.last
		}
		c.last = now
	}
	if now.After(c.last) {
		c.last = now
	}
	if !c.last.Before(c.most) {
		c.most = time.Time{}
	}
	return setBack
}

// steady returns the time by which holds, records, slots and leases end. It never goes back: it is the clock's time
// plus the sum of all steps back.
func (c *shardClock) steady() time.Time { return c.last.Add(c.back) }

func (c *shardClock) steadyMs() int64 { return c.steady().UnixMilli() }

// early reports whether a cell counts as expired because it is ahead of a clock that was set back.
func (c *shardClock) early(of *window.Cell, nowMs int64) bool {
	return !c.most.IsZero() && store.Ahead(of, nowMs)
}

// shardLocked returns a shard and its clock's time. If the clock was set back, the shard drops the cells that are ahead
// of it.
func (s *originServers) shardLocked(shard int) (*originShard, time.Time) {
	at, now := s.shards[shard], s.clock()
	if at.clock.read(now) {
		at.forgetCells(func(c window.Cell) bool { return store.Ahead(&c, now.UnixMilli()) })
	}
	return at, now
}

// forgetCells drops cells with all of their data.
func (s *originShard) forgetCells(gone func(c window.Cell) bool) {
	maps.DeleteFunc(s.cells, func(c window.Cell, _ originRecord) bool { return gone(c) })
	maps.DeleteFunc(s.changed, func(c window.Cell, _ bool) bool { return gone(c) })
	s.holds.ForgetCells(gone)
}
