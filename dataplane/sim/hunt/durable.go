package hunt

import (
	"context"
	"slices"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// durable checks the counts that relays keep in MySQL and at their origins against the promises of package relay.
func (c *check) durable(held []map[window.Cell]store.Total) {
	stored := make(map[window.Cell]map[string]int64)
	for _, row := range c.Counts.Rows() {
		if stored[row.Cell] == nil {
			stored[row.Cell] = make(map[string]int64)
		}
		stored[row.Cell][row.Region] = row.Count
	}
	for _, a := range c.ledger.all() {
		for i, r := range c.regions {
			c.stored(a, r, held[i][a.cell].Region, stored[a.cell][r.name])
		}
		c.healed(a, held)
	}
	c.taken()
}

// stored compares a stored count with the accepted cost and with the origin's total: see relay.StoreFloor. A relay that
// has raised an emptied origin to a cell has no limit for the cell, and so stores nothing of it, until a node counts in
// it.
func (c *check) stored(a *account, r *region, total, stored int64) {
	if _, high := c.ledger.bounds(r, a.cell); stored > high {
		c.violate("stored", "%d of %s are stored for %s, and at most %d were accepted",
			stored, cellName(a.cell), r.name, high)
	}
	if c.plan.Changes(Override, Unset) || c.plan.MixesLimits() {
		return // whether a count must be stored depends on the limit that nodes sent last
	}
	t := c.plan.Slowest()
	limit := c.plan.Fleet.Keys[a.key].Limit
	if !c.converges(a) || !c.plan.Shares(a.cell.Duration) || c.plan.Claims() || !c.ledger.usedIn(r, a) ||
		float64(total) < max(t.Floor, relay.StoreFloor)*float64(limit) {
		return
	}
	grown := float64(total-stored) >= relay.StoreSteps*t.Step*float64(limit)
	if total > stored && (stored == 0 || grown || total >= limit && stored < limit) {
		c.violate("stored", "%d of %s are stored for %s, which holds %d", stored, cellName(a.cell), r.name, total)
	}
}

// healed checks that each origin holds at least the cost that it has published, because relays raise an emptied origin
// to it. Relays cannot raise it to cost that it forgets within its epoch, to cost that MySQL loses, nor to cost that a
// killed relay has published to its peers but not stored.
func (c *check) healed(a *account, held []map[window.Cell]store.Total) {
	forgets := func(s Step) bool {
		return s.Do == Failover || s.Do == LoseFeed || s.Do == SetClock ||
			c.plan.Fleet.PeerTrip > 0 && (s.Do == Kill || s.Do == Die)
	}
	if !c.converges(a) || slices.ContainsFunc(c.plan.Steps, forgets) {
		return
	}
	for i, r := range c.regions {
		others := int64(0)
		for j := range c.regions {
			if j != i {
				others += held[j][a.cell].Region
			}
		}
		if foreign := held[i][a.cell].Foreign; foreign > others {
			c.violate("R6", "%s holds %d foreign cost of %s, and others hold %d", r.name, foreign, cellName(a.cell), others)
		}
	}
}

// taken checks that relays have acked at their origins all changes that they have published.
func (c *check) taken() {
	for _, r := range c.regions {
		for shard := range c.plan.Fleet.Shards {
			changes, err := r.client().Changes(context.Background(), shard, 1)
			if err != nil || len(changes.Cells) > 0 {
				c.violate("taken", "shard %d of %s has changes that no relay has taken off: %v (%v)", shard, r.name,
					changes.Cells, err)
			}
		}
	}
}
