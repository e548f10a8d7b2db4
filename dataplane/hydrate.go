package dataplane

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
)

// A decision reads the origin first for a cold key (hydration), for a stale key, and for a key in strict mode. All
// three use the same read.

// asksFirst reports whether a decision must read the key first because of cost that was recently granted to other
// nodes. That is so in two cases:
//
//   - The cost is more than a node share of the remaining limit, and the key was last read more than two ticks ago.
//   - With the cost, more than half of the limit is used, and the previous cell was not read since it ended. Its cost
//     counts almost in full, and other nodes may have added to it after the last answer about it.
//
// The cost includes the earlier items of its batch on the same key. A reply of the origin suffices for two ticks, and a
// failed read for one rest. A key far from its limit has shares that are larger than its costs. If a node is configured
// as the only node, there is no other node to read from. Heartbeats report a node only after it has begun to count, so
// without a configured number asksFirst assumes at least one other node.
func (g *engine) asksFirst(e *cell.Entry, c *call, now clock.Steady, set *rules.Settings) bool {
	n := set.Nodes
	if g.regionNodes == 0 {
		n = max(n, 2)
	}
	if n < 2 {
		return false
	}
	misses, old := e.Reads().MissEnd(c.nowMs, c.durationMs), int64(now-e.Reads().RefreshedAt()) > set.TwoTicksMs
	if !misses && !old {
		return false
	}
	known, _ := e.InWindow(c.nowMs)
	cost, left := c.ahead+c.cost, c.limit-known
	return old && cost > left/(2*n) || misses && 2*(left-cost) < c.limit
}

// refreshFor reads e from the origin, unless this node's counts already deny the call. Merges only raise counts, so a
// denial from local state stays a denial. So a flood of requests from a blocked caller costs no I/O at all. In a
// namespace with the outage policy open, a denied call causes no read either, but it passes during an outage that
// this node has already noticed.
func (g *engine) refreshFor(ctx context.Context, e *cell.Entry, c *call,
	outage rules.Outage) (source Source, alive bool) {
	var v cell.Verdict
	alive = e.Judge(&v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, false)
	g.out.Stats.Dropped[outbox.DroppedExpired].Add(v.AgedOut)
	g.usage.AcceptUnnamed(v.AgedOut)
	refuses := outage != rules.OutageLocal && g.out.Refuses(e)
	switch {
	case alive && outage == rules.OutageOpen && (refuses || !v.Allowed && g.out.OutOf(e, g.clock.Steady())):
		return SourceDegradedOpen, true
	case !alive || !v.Allowed:
		return SourceLocal, alive
	case refuses:
		return SourceDegradedClosed, true // without writes, other nodes' cost may be missing from the answer
	}
	f := g.out.Read(g.clock.Steady(), e)
	if f == nil {
		return sourceOut(outage), true
	}
	ctx, cancel := g.within(ctx, &c.until)
	defer cancel()
	if outbox.Wait(ctx, f) {
		return SourceOrigin, true
	}
	return sourceOut(outage), true
}

// within bounds the total wait of one decision, to ReadTimeout after its first wait began. until holds that deadline,
// counted from the clock's base. It is not a *time.Time, because that would put the call on the heap. A nil ctx is
// allowed and never ends: limiters without an origin pass it, and never wait.
func (g *engine) within(ctx context.Context, until *time.Duration) (context.Context, context.CancelFunc) {
	now := g.clock.Since()
	if *until == 0 {
		*until = now + g.readTimeout
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, *until-now)
}
