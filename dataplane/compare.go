package dataplane

import (
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/evidence"
	"github.com/weirhq/weir/dataplane/internal/rules"
)

// compare judges a decision by both limits of a trial of limits, and counts the outcome. It changes neither the answer
// nor any count of the key. e is the key's entry, or nil.
//
// Both limits are judged at the level of the decision, with the same function, so that equal limits never differ. The
// level has the cost that the limit in force has let pass. So in the shadow mode a lower limit seems to deny more than
// it would if it were in force, and a higher limit less.
func (g *engine) compare(e *cell.Entry, v *cell.Verdict, c *call, by *rules.Rule, source Source) {
	t := by.Trial
	other, ok := t.Other(by, c.request.Identifier, c.limit, c.own, milliseconds(c.durationMs), c.request.Duration)
	if !ok {
		return
	}
	below := by.Estimate != nil && by.Estimate.Below
	before := !by.Shadow && !c.request.Shadow && !fitsCandidate(v, c, c.limit, source, below)
	after := !other.Shadow && !c.request.Shadow && !fitsCandidate(v, c, other.Limit, source, other.Below)
	limit := other.Limit
	if t.Enforced {
		before, after, limit = after, before, c.limit
	}
	out := evidence.OutcomeOf(before, after)
	c.counts.trial[out].Add(1)
	t.Space.Add(stripeAt(c), out)
	if out != evidence.NewlyDenied {
		return
	}
	t.Space.Denied(c.id, c.request.Identifier, limit, g.clock.Steady(), func() cell.Names {
		if e != nil {
			return *e.Names()
		}
		key := c.key()
		return g.table.NamesOf(&key, nil)
	})
}
