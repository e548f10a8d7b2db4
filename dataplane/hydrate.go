package dataplane

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
)

// Reading from the origin before a decision: a cold key (hydration), a key that has
// heard nothing for a while, and a key in strict mode are all the same read.

// asksFirst is true when a cost is so large that what other nodes may have been granted lately
// matters: with what a batch asks before it on the same key, it is more than a share of what its limit leaves, on a
// key last heard of more than two ticks ago. A read that was answered settles it for two ticks, and one that was not
// for a rest. A key far from its limit has shares that hold its costs, and a node that is configured as the only one
// has no other to hear of. Heartbeats tell of a node only after it has begun to count, so until they do one other is
// supposed.
func (g *engine) asksFirst(e *cell.Entry, c *call, now clock.Steady, set *rules.Settings) bool {
	n := set.Nodes
	if g.regionNodes == 0 {
		n = max(n, 2)
	}
	if n < 2 || int64(now-e.Reads().RefreshedAt()) <= set.TwoTicksMs {
		return false
	}
	return c.ahead+c.cost > (c.limit-e.Known(c.nowMs, c.durationMs))/(2*n)
}

// refreshFor asks the origin about e, unless what is known already denies r:
// merges only raise counts, so what local state denies stays denied, and a flood
// of requests from a blocked caller costs no I/O at all. (In a namespace that is open
// in an outage, not even then is anything read, but an outage that is known of lets
// it pass.)
func (g *engine) refreshFor(ctx context.Context, e *cell.Entry, c *call,
	outage rules.Outage) (source Source, alive bool) {
	var v cell.Verdict
	alive = e.Judge(&v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, false)
	g.out.Stats.Dropped[outbox.DroppedExpired].Add(v.AgedOut)
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

// within bounds how long one decision waits in all: until ReadTimeout after its first wait began.
// until holds that deadline, counted from the clock's base. It is not a *time.Time, because that
// would put the call on the heap. A nil ctx is allowed and never ends: limiters without an origin
// pass it, and never wait.
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
