package dataplane

import (
	"context"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/rules"
)

// The node share bounds what other nodes cannot know: the cost that a node has accepted and
// the origin has not confirmed. With n nodes in the region, a key's share of what is
// left of its limit is
//
//	share = max(cost, (limit - confirmed) / 2n)
//
// so that all nodes together stay within half of what is left, and within all of it
// while a share holds one cost. Past half its share a key is flushed: it is sent at
// once, not at the next tick. Past its share a namespace set to "wait" lets the next
// decision wait for that reply; and once a share would not hold more than the cost, the
// decision is made where the count is, by a claim at the origin. A limit of up to 2n
// costs is so exact from its first cost to its last. Where costs differ, what the others may
// have accepted by their shares is room that a claim leaves; see roomForOthers.
//
// A key far from its limit, below 1/4n of it with all of its previous cell, costs a shift
// and a comparison.

// flushOverHalf flushes a key whose unsent cost is past half its share. It is called for costs
// past 1/4n of the limit only, the previous cell's included: at the start of a cell it is
// what leaves little to share.
func (g *engine) flushOverHalf(e *cell.Entry, v *cell.Verdict, c *call) {
	if e.NodeShare().OverHalf(v, c.durationMs, c.limit, c.ahead, c.cost, g.rules.InForce().Nodes) {
		g.out.Flush(e)
	}
}

// judgeByNodeShare decides in a namespace that waits, into v, and counts.
func (g *engine) judgeByNodeShare(ctx context.Context, v *cell.Verdict, e *cell.Entry, c *call, source Source,
	by *rules.Rule) (Source, bool) {
	e.NodeShare().Mark()
	n := g.rules.InForce().Nodes
	v.Against = c.limit
	safe := max(0, c.limit/(2*n)-1)
	if alive := e.Judge(v, c.horizon, c.nowMs, c.durationMs, safe, c.cost, c.counting()); !alive || v.Allowed {
		return source, alive // far from the limit, or the entry is gone
	}
	ctx, cancel := g.within(ctx, &c.until)
	defer cancel()
	for {
		w, alive := e.NodeShare().Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.counting(), n)
		switch {
		case !alive:
			return source, false
		case w == cell.WayReply:
			w = g.out.FlushAndWait(ctx, e)
		case w == cell.WayClaim:
			w = g.out.Claim(ctx, v, e, c.limit, c.cost, true, by.Outage != rules.OutageClosed)
		default:
			return source, true
		}
		switch w {
		case cell.WayMade:
			return SourceOrigin, true
		case cell.WayOverShare:
			v.DenyOverShare(c.nowMs, g.rules.InForce().TwoTicksMs)
			return SourceOrigin, true
		case cell.WayBroken:
			return g.nodeShareBroken(v, e, c, by.Outage)
		}
		source = SourceOrigin
	}
}

// nodeShareBroken decides by the outage policy.
func (g *engine) nodeShareBroken(v *cell.Verdict, e *cell.Entry, c *call,
	outage rules.Outage) (source Source, alive bool) {
	source = sourceOut(outage)
	if outage != rules.OutageLocal {
		return source, g.judgeOut(v, e, c, source)
	}
	return source, e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.counting())
}
