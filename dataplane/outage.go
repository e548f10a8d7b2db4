package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/rules"
)

// sourceOut returns the Source of a decision by an outage policy.
func sourceOut(p rules.Outage) Source {
	return [...]Source{rules.OutageLocal: SourceDegraded, rules.OutageOpen: SourceDegradedOpen,
		rules.OutageClosed: SourceDegradedClosed}[p]
}

// judgeOut judges a call by an outage policy other than local.
func (g *engine) judgeOut(v *cell.Verdict, e *cell.Entry, c *call, source Source) (alive bool) {
	if source == SourceDegradedClosed {
		alive = e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, false)
		v.Refuse(c.nowMs, g.out.RetryAfter(e, g.clock.Steady()))
		return alive
	}
	alive = e.Judge(v, c.horizon, c.nowMs, c.durationMs, c.limit, c.cost, c.counting())
	if alive && !v.Allowed && c.cost <= c.limit {
		v.Allowed = true
		return !c.counting() || e.Force(v.Sequence, c.limit, c.cost)
	}
	return alive
}
