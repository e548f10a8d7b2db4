package dataplane

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/weirhq/weir/dataplane/internal/cell"
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

// regionNodesMax bounds n; more would leave no share worth having.
const regionNodesMax = 10_000

func parseNodeShare(text string) (waits bool, err error) {
	switch text {
	case "", "flush":
		return false, nil
	case "wait":
		return true, nil
	}
	return false, fmt.Errorf("%w: node_share is %q (flush or wait)", ErrInvalid, text)
}

// nodesOf is how many nodes the region has, by its heartbeats or by configuration.
func (l *Limiter) nodesOf(set *settings) int64 {
	n := l.cfg.RegionNodes
	if n == 0 {
		n = set.nodes
	}
	return int64(min(max(1, n), regionNodesMax))
}

// setNodes takes the settings' number of nodes into what decisions go by.
func (l *Limiter) setNodes(set *settings) {
	n := l.nodesOf(set)
	l.nodes.Store(n)
	if l.alone() {
		return
	}
	l.nearShift.Store(uint32(bits.Len64(uint64(4*n - 1)))) // 2^shift >= 4n
}

// flushOverHalf flushes a key whose unsent cost is past half its share. It is called for costs
// past 1/4n of the limit only, the previous cell's included: at the start of a cell it is
// what leaves little to share.
func (l *Limiter) flushOverHalf(e *cell.Entry, v *cell.Verdict, c *call) {
	if e.NodeShare().OverHalf(v, c.durationMs, c.limit, c.ahead, c.cost, l.nodes.Load()) {
		l.out.Flush(e)
	}
}

// judgeByNodeShare decides in a namespace that waits, into v, and counts.
func (l *Limiter) judgeByNodeShare(ctx context.Context, v *cell.Verdict, e *cell.Entry, c *call, source Source,
	by *rule) (Source, bool) {
	e.NodeShare().Mark()
	n := l.nodes.Load()
	v.Against = c.limit
	safe := max(0, c.limit/(2*n)-1)
	if alive := e.Judge(v, c.horizon, c.nowMs, c.durationMs, safe, c.cost, c.counting()); !alive || v.Allowed {
		return source, alive // far from the limit, or the entry is gone
	}
	ctx, cancel := l.within(ctx, &c.until)
	defer cancel()
	for {
		w, alive := e.NodeShare().Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.counting(), n)
		switch {
		case !alive:
			return source, false
		case w == cell.WayReply:
			w = l.out.FlushAndWait(ctx, e)
		case w == cell.WayClaim:
			w = l.out.Claim(ctx, v, e, c.limit, c.cost, true, by.outage != outageClosed)
		default:
			return source, true
		}
		switch w {
		case cell.WayMade:
			return SourceOrigin, true
		case cell.WayOverShare:
			v.DenyOverShare(c.nowMs, l.settings.Load().twoTicksMs)
			return SourceOrigin, true
		case cell.WayBroken:
			return l.nodeShareBroken(v, e, c, by.outage)
		}
		source = SourceOrigin
	}
}

// nodeShareBroken decides by the outage policy.
func (l *Limiter) nodeShareBroken(v *cell.Verdict, e *cell.Entry, c *call,
	outage outagePolicy) (source Source, alive bool) {
	source = outage.source()
	if outage != outageLocal {
		return source, l.judgeOut(v, e, c, source)
	}
	return source, e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.counting())
}
