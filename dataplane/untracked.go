package dataplane

import (
	"context"
	"runtime"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// findOrAdd finds or adds the entry of a call's key. If the table has no room, it returns a temporary
// entry and cell.Untracked; the caller must then call used when it has decided.
//
// A temporary entry must be for a cell of the origin's clock. If that clock is not known yet, findOrAdd
// first reads it from the origin. Estimates do not wait for it, because the origin never receives
// the cost of a temporary entry.
func (l *Limiter) findOrAdd(ctx context.Context, c *call, by *rules.Rule) (*cell.Entry, cell.Contact) {
	t := l.table
	if e := t.FindUntracked(c.id); e != nil {
		return e, cell.Untracked
	}
	key, sequence := c.key(), window.Sequence(c.nowMs, c.durationMs)
	if !t.TurnsAway(c.id, &key, sequence) {
		if e, met := t.Add(c.id, &key, by.Reset, c.horizon, sequence, c.nowMs); met != cell.Untracked {
			return e, met
		}
	}
	if !c.known && by.Estimate == nil {
		within, cancel := l.within(ctx, &c.until)
		l.learnTime(within, &key)
		cancel()
		l.settle(c)
	}
	return l.addUntracked(c, by, window.Sequence(c.nowMs, c.durationMs))
}

// used ends a decision's use of its entry, and returns it if the table holds it.
func (l *Limiter) used(e *cell.Entry, met cell.Contact, c *call, source Source) *cell.Entry {
	if met == cell.Untracked {
		return l.usedUntracked(c, source)
	}
	return e
}

func (l *Limiter) usedUntracked(c *call, source Source) *cell.Entry {
	l.metrics.untracked.decided(source)
	l.table.UntrackedKeys.Release(c.id)
	return nil
}

func (l *Limiter) addUntracked(c *call, by *rules.Rule, sequence int64) (*cell.Entry, cell.Contact) {
	key := c.key()
	return l.table.AddUntracked(c.id, &key, by.Reset, c.horizon, sequence)
}

// spill counts in the overflow what was accepted on an untracked key and is at no origin.
func (l *Limiter) spill(e *cell.Entry, sequence, cost int64) {
	if cost <= 0 {
		return
	}
	l.table.Spill(e, sequence, cost)
	l.metrics.dropped[droppedFull].Add(cost)
	e.SettleUnnamed(sequence, cost)
}

// judgeUntracked is judgeInFleet for an untracked key: within one deadline it hears what the origin has, unless
// what is known denies, and has the origin count.
func (l *Limiter) judgeUntracked(ctx context.Context, v *cell.Verdict, e *cell.Entry, c *call,
	by *rules.Rule) (source Source, alive bool) {
	ctx, cancel := l.within(ctx, &c.until)
	defer cancel()
	source = SourceLocal
	if by.Outage == rules.OutageClosed && l.refuses(e) {
		source = SourceDegradedClosed
	} else if e.RefreshedAt() == 0 {
		alive = e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, false)
		if !alive || !v.Allowed && by.Outage != rules.OutageOpen { // an open outage lets pass what the overflow would deny
			return source, alive
		}
		if source = SourceOrigin; !l.wait(ctx, l.read(l.clock.Steady(), e)) {
			source = sourceOut(by.Outage)
		} else if l.settle(c) && l.renumber(e, c) {
			return source, false
		}
	}
	switch {
	case source == SourceDegraded:
		return source, e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.counting())
	case source.Degraded():
		return source, l.judgeOut(v, e, c, source)
	}
	for ; ctx.Err() == nil; source = SourceOrigin {
		alive = e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, false)
		if !alive || !v.Allowed || !c.counting() {
			return source, alive
		}
		// an untracked key would not remember that it was refused for others' room
		switch l.claim(ctx, v, e, c, by.Outage, false) {
		case cell.WayMade:
			v.Claimed = true
			return SourceOrigin, true
		case cell.WayBroken:
			return l.nodeShareBroken(v, e, c, by.Outage)
		}
		runtime.Gosched() // a batch is about to say that its cost is on its way
	}
	return l.nodeShareBroken(v, e, c, by.Outage)
}

// settleUntracked counts elsewhere what a batch has counted on untracked keys and not claimed: at the origin, in one
// call a shard, since no replay would send it, or else in the overflow. It waits for that like for anything that a
// decision waits for; until then the keys stay untracked keys.
func (l *Limiter) settleUntracked(ctx context.Context, w *workspace, allowed bool) {
	var sent map[*shard][]outgoing
	for _, i := range w.order {
		it := &w.items[i]
		switch {
		case it.met != cell.Untracked || it.before == 0 || !allowed && !it.rule.Offered():
		case it.rule.Estimate != nil || l.shards == nil || it.source.Degraded():
			l.spill(it.entry, it.verdict.Sequence, it.unclaimed())
		default:
			cost := it.entry.Unpaid(it.verdict.Sequence, it.unclaimed())
			if cost == 0 {
				continue
			}
			if sent == nil {
				sent = make(map[*shard][]outgoing, 1)
			}
			sh := l.shardOf(it.entry)
			sent[sh] = append(sent[sh], outgoing{it.entry, it.verdict.Sequence, cost})
		}
	}
	if sent == nil {
		return
	}
	var done []*untrackedCosts
	for sh, all := range sent {
		done = append(done, l.enterUntracked(sh, all))
	}
	ctx, cancel := l.within(ctx, &w.until)
	defer cancel()
	for _, costs := range done {
		select {
		case <-costs.ended:
		case <-ctx.Done():
			return
		}
	}
}

// releaseUntracked ends a batch's use of untracked keys.
func (l *Limiter) releaseUntracked(w *workspace) {
	for _, i := range w.order {
		if it := &w.items[i]; it.met == cell.Untracked {
			l.metrics.untracked.decided(it.source)
			l.table.UntrackedKeys.Release(it.id)
			it.entry, it.met = nil, cell.Known
		}
	}
}
