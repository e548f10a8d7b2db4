package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/outbox"
)

// sweep has the table forget what is over, and sets right what is ahead of the clock.
func (g *engine) sweep() {
	_, unsent := g.table.Sweep(g.clock.ReadMs())
	g.out.Stats.Dropped[outbox.DroppedExpired].Add(unsent)
}

// settle has a call that has read another clock go by the origin's, and reports whether that is known since.
func (g *engine) settle(c *call) (settled bool) {
	if c.known || !g.clock.Known() {
		return false
	}
	c.known, c.nowMs = true, g.clock.Settle(c.nowMs, c.horizon.Given(), g.clockSkewMax)
	return true
}

// wallMs is what the clock shows now of a moment that the steady clock has shown, in Unix ms; 0 of 0. A moment that is
// kept by the steady clock is right again as soon as the wall clock is.
func (g *engine) wallMs(at clock.Steady) int64 {
	if at == 0 {
		return 0
	}
	return g.clock.WallOf(at, g.clock.ReadMs()).UnixMilli()
}
