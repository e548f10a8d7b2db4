package hunt

import (
	"context"

	"github.com/weirhq/weir/dataplane/store"
)

// watchedOrigin is a region's origin behind all links. It compares the totals that relays apply with the cost that
// other regions accepted, and grants with their requests.
type watchedOrigin struct {
	store.FullOrigin
	world *world
	life  *life
}

// Apply implements store.Relayed.
func (o watchedOrigin) Apply(ctx context.Context, shard int, totals []store.Foreign) (int, error) {
	for _, f := range totals {
		if most := o.world.others(o.life.node.region, f.Cell); f.Count > most {
			o.world.record.violate("R1", "a relay of %s applies %d of others in %s, and others accepted at most %d",
				o.life.node.region.name, f.Count, cellName(f.Cell), most)
		}
	}
	return o.FullOrigin.Apply(ctx, shard, totals)
}

// Send implements store.Origin. A bounded cost that is sent again, to find out whether it was added, is no new claim. A
// cost that arrives twice is decided at its first arrival, and others may have been added since.
func (o watchedOrigin) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	reply, err := o.FullOrigin.Send(ctx, chunk)
	for i, total := range reply.Totals {
		c := chunk.Costs[i]
		first := total.Added && c.AtMost > 0 && c.Cell.Namespace == namespace && o.world.ledger.claimed(
			o.life.node.region, claimID{chunk.Stream, chunk.Number, i, c.Cell, total.Epoch}, c.Add)
		if first && total.Region > c.AtMost {
			o.world.record.violate("claim", "%s grants %d of %s up to %d, and holds %d", o.life.node.region.name, c.Add,
				cellName(c.Cell), c.AtMost, total.Region)
		}
	}
	return reply, err
}
