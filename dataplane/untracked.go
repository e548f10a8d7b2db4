package dataplane

import (
	"context"
	"runtime"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// findOrAdd finds or adds the entry of a call's key. If the table has no room, it returns a temporary entry and
// cell.Untracked; the caller must then call used when it has decided.
//
// A temporary entry must be for a cell of the origin's clock. If this node has not read that clock yet, findOrAdd
// first reads it from the origin. Estimates do not wait for it, because the origin never receives the cost of a
// temporary entry.
func (g *engine) findOrAdd(ctx context.Context, c *call, by *rules.Rule) (*cell.Entry, cell.Contact) {
	t := g.table
	if e := t.FindUntracked(c.id); e != nil {
		return e, cell.Untracked
	}
	key, sequence := c.key(), window.Sequence(c.nowMs, c.durationMs)
	if !t.TurnsAway(c.id, &key, sequence) {
		if e, met := t.Add(c.id, &key, by.Reset, by.Precise, c.horizon, sequence, c.nowMs); met != cell.Untracked {
			return e, met
		}
	}
	if !c.known && by.Estimate == nil {
		within, cancel := g.within(ctx, &c.until)
		g.out.LearnTime(within, &key)
		cancel()
		g.settle(c)
	}
	return g.addUntracked(c, by, window.Sequence(c.nowMs, c.durationMs))
}

// used ends a decision's use of its entry, and returns the entry if the table holds it.
func (g *engine) used(e *cell.Entry, met cell.Contact, c *call, source Source) *cell.Entry {
	if met == cell.Untracked {
		return g.usedUntracked(c, source)
	}
	return e
}

func (g *engine) usedUntracked(c *call, source Source) *cell.Entry {
	g.stats.untracked.decided(source)
	g.table.UntrackedKeys.Release(c.id)
	return nil
}

func (g *engine) addUntracked(c *call, by *rules.Rule, sequence int64) (*cell.Entry, cell.Contact) {
	key := c.key()
	return g.table.AddUntracked(c.id, &key, by.Reset, by.Precise, c.horizon, sequence)
}

// judgeUntracked is judgeInFleet for an untracked key. Within one deadline it reads the key from the origin, unless
// this node's counts already deny the call, and then counts the cost at the origin with a claim.
func (g *engine) judgeUntracked(ctx context.Context, v *cell.Verdict, e *cell.Entry, c *call,
	by *rules.Rule) (source Source, alive bool) {
	ctx, cancel := g.within(ctx, &c.until)
	defer cancel()
	source = SourceLocal
	if by.Outage == rules.OutageClosed && g.out.Refuses(e) {
		source = SourceDegradedClosed
	} else if e.Reads().RefreshedAt() == 0 {
		alive = e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, false)
		if !alive || !v.Allowed && by.Outage != rules.OutageOpen { // an open policy allows it
			return source, alive
		}
		if source = SourceOrigin; !outbox.Wait(ctx, g.out.Read(g.clock.Steady(), e)) {
			source = sourceOut(by.Outage)
		} else if g.settle(c) && g.out.Renumber(e, c.horizon, c.nowMs) {
			return source, false
		}
	}
	switch {
	case source == SourceDegraded:
		return source, e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.counting())
	case source.Degraded():
		return source, g.judgeOut(v, e, c, source)
	}
	for ; ctx.Err() == nil; source = SourceOrigin {
		alive = e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, false)
		if !alive || !v.Allowed || !c.counting() {
			return source, alive
		}
		// false, because an untracked key cannot store that it was refused to leave room for other nodes
		switch g.out.Claim(ctx, v, e, c.limit, c.cost, false, by.Outage != rules.OutageClosed) {
		case cell.WayMade:
			v.Claimed = true
			return SourceOrigin, true
		case cell.WayKept:
			v.Claimed = true
			return sourceOut(by.Outage), true
		case cell.WayBroken:
			return g.judgeWithout(v, e, c, sourceOut(by.Outage))
		}
		runtime.Gosched() // a batch is about to publish that its cost is in flight
	}
	return g.judgeWithout(v, e, c, sourceOut(by.Outage))
}
