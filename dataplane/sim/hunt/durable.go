package hunt

import (
	"context"
	"slices"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// durable holds what relays keep in MySQL and at their origins to what package relay says of it.
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

// stored holds a stored count to what was accepted and to what the origin holds: see relay.StoreFloor. A cell that an
// emptied origin was raised to has no limit, and so nothing to store, until a node counts in it.
func (c *check) stored(a *account, r *region, total, stored int64) {
	if _, high := c.ledger.bounds(r, a.cell); stored > high {
		c.violate("stored", "%d of %s are stored for %s, and at most %d were accepted",
			stored, cellName(a.cell), r.name, high)
	}
	if c.plan.changes(Override, Unset) {
		return // what is to be stored depends on the limit that nodes sent last
	}
	t := c.plan.slowest()
	limit := c.plan.Fleet.Keys[a.key].Limit
	if !c.converges(a) || !c.plan.shares(a.cell.Duration) || c.plan.claims() || !c.ledger.usedIn(r, a) ||
		float64(total) < max(t.Floor, relay.StoreFloor)*float64(limit) {
		return
	}
	grown := float64(total-stored) >= relay.StoreSteps*t.Step*float64(limit)
	if total > stored && (stored == 0 || grown || total >= limit && stored < limit) {
		c.violate("stored", "%d of %s are stored for %s, which holds %d", stored, cellName(a.cell), r.name, total)
	}
}

// healed holds origins to what they have told: an emptied one is raised to it. What it forgets in its epoch, and what
// MySQL loses, no relay can raise it to; nor what a killed one has told its peers and not stored.
func (c *check) healed(a *account, held []map[window.Cell]store.Total) {
	forgets := func(s Step) bool {
		return s.Do == Failover || s.Do == LoseFeed || c.plan.Fleet.PeerTrip > 0 && (s.Do == Kill || s.Do == Die)
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
			c.violate("R6", "%s was told of %d of %s, and others hold %d", r.name, foreign, cellName(a.cell), others)
		}
	}
}

// taken holds relays to taking off their origins what they have told.
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
