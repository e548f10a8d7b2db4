package dataplane

import (
	"context"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/rules"
)

// The node share bounds the cost that a node has accepted and the origin has not confirmed, because other nodes
// cannot see that cost. With n nodes in the region, a key's share of the remaining limit is
//
//	share = max(cost, (limit - confirmed) / 2n)
//
// So all nodes together stay within half of the remaining limit, and within all of it while a share holds one cost.
//
//   - If the unsent cost is past half the share, the node flushes the key at once instead of at the next tick.
//   - If it is past the share and the namespace is set to "wait", the next decision waits for that reply.
//   - If a share would not hold more than the cost, the decision is made at the origin, by a claim.
//
// So a limit of up to 2n costs is exact from its first cost to its last. Where costs differ, a claim leaves room for
// the cost that other nodes may have accepted within their shares; see roomForOthers.
//
// A key far from its limit, below 1/4n of it with all of its previous cell, costs a shift and a comparison.

// flushOverHalf flushes a key whose unsent cost is past half its share. It is called only if the key's cost is past
// 1/4n of the limit, with the previous cell included, because at the start of a cell the previous cell leaves little
// to share.
func (g *engine) flushOverHalf(e *cell.Entry, v *cell.Verdict, c *call) {
	if e.NodeShare().OverHalf(v, c.durationMs, c.limit, c.ahead, c.cost, g.rules.InForce().Nodes) {
		g.out.Flush(e)
	}
}

// waitsAnyway reports whether a key that should be read before a decision is in a namespace that waits for its share.
// Then the reply that the decision waits for can replace the read. Otherwise a decision near the limit would wait for
// the read, and then for a claim.
func (g *engine) waitsAnyway(e *cell.Entry, c *call, by *rules.Rule, now clock.Steady) bool {
	return by.Waits && c.known && c.counting() && e.Reads().RepliesServe(c.nowMs, c.durationMs) &&
		!g.out.Refuses(e) && !g.out.OutOf(e, now)
}

// judgeByNodeShare decides in a namespace that waits, into v, and counts. If fresh is false, the key is read before a
// cost within the node's share is counted.
func (g *engine) judgeByNodeShare(ctx context.Context, v *cell.Verdict, e *cell.Entry, c *call, source Source,
	by *rules.Rule, fresh bool) (Source, bool) {
	e.NodeShare().Mark()
	set := g.rules.InForce()
	v.Against = c.limit
	if fresh {
		safe := max(0, c.limit>>(set.NearShift-1)-1)
		if alive := e.Judge(v, c.horizon, c.nowMs, c.durationMs, safe, c.cost, c.counting()); !alive || v.Allowed {
			return source, alive // far from the limit, or the entry is gone
		}
	}
	waits := false
	for {
		w, alive := e.NodeShare().Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.counting(), fresh, set.Nodes)
		switch {
		case !alive || w == cell.WayMade:
			return source, alive
		case w == cell.WayRead:
			if source, alive = g.refreshFor(ctx, e, c, by.Outage); !alive {
				return source, false
			}
			if source.Degraded() {
				return g.judgeWithout(v, e, c, source)
			}
			fresh = true
			continue
		}
		if !waits {
			var cancel context.CancelFunc
			ctx, cancel = g.within(ctx, &c.until)
			defer cancel()
			waits = true
		}
		if w == cell.WayReply {
			w = g.out.FlushAndWait(ctx, e)
			fresh = true
		} else {
			w = g.out.Claim(ctx, v, e, c.limit, c.cost, true, by.Outage != rules.OutageClosed)
		}
		source = SourceOrigin
		switch w {
		case cell.WayMade:
			return source, true
		case cell.WayOverShare:
			v.DenyOverShare(c.nowMs, g.rules.InForce().TwoTicksMs)
			return source, true
		case cell.WayKept:
			return sourceOut(by.Outage), true
		case cell.WayBroken:
			return g.judgeWithout(v, e, c, sourceOut(by.Outage))
		}
	}
}

// judgeWithout decides by the outage policy that source stands for.
func (g *engine) judgeWithout(v *cell.Verdict, e *cell.Entry, c *call, source Source) (_ Source, alive bool) {
	if source != SourceDegraded {
		return source, g.judgeOut(v, e, c, source)
	}
	return source, e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.counting())
}
