package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/dataplane/internal/rules"
)

// The estimate mode's half of the request path. It decides at once from the counts in memory, whatever their age. At
// most it queues the key for a sync with the origin: no request ever waits, reads or sends.

// steadyFor returns the steady time of a decision: cached if the decision's own time is, see soon.
func (g *engine) steadyFor(cached bool) clock.Steady {
	switch {
	case g.alone:
		return 0 // a node without an origin uses no steady times
	case cached:
		return g.clock.Steady()
	}
	return g.clock.ReadSteady()
}

// estimated updates the entry after an estimate, for later requests: it sets flags for the sweep, moves the key's
// tier, and queues a sync if the key needs it. An untracked key is never queued.
func (g *engine) estimated(e *cell.Entry, met cell.Contact, v *cell.Verdict, c *call, k *rules.Estimate) {
	if met == cell.Untracked {
		return
	}
	flags := e.Flags()
	var marks uint32
	if met == cell.Known {
		marks = cell.Used
	}
	t := level.TierOf(v.At+float64(c.ahead+v.Counted), c.limit)
	if t >= level.Normal || !v.Allowed {
		marks |= cell.Denied(v.Sequence)
	}
	if !flags.Have(marks) {
		g.dirty.Mark(e, marks)
	}
	if !flags.Estimates() {
		return
	}
	if was := flags.Tier(); was != t {
		if was = e.Estimates().MoveTier(t); was != t {
			g.table.Tiers.Move(was, t)
		}
	}
	refreshedMs := int64(e.Reads().RefreshedAt())
	switch {
	case t.Overdue(int64(v.Now), refreshedMs, k.SyncBaseMs) &&
		(!t.Costly(refreshedMs) || e.Estimates().Pending() >= level.EffectiveFloor(k.Floor, c.limit)):
		if e.Estimates().Want(c.limit, v.Now) {
			g.out.Stats.SyncsQueued.Add(1)
		}
		if !flags.Asked() {
			g.out.AskSync(e, k)
		}
	case !flags.Asked() && v.Counted > 0 &&
		(t == level.Hot || e.Ledger().UnsentIn(v.Sequence) >= level.Step(k.Floor, c.limit)):
		g.out.AskSync(e, k) // only to send its cost: other nodes' readings depend on it
	}
}
