package hunt

import (
	"context"

	"github.com/weirhq/weir/dataplane/store"
)

// watchedOrigin is a region's origin behind all links. It holds what relays tell it to what others have accepted, and
// what it grants to what was asked of it.
type watchedOrigin struct {
	store.FullOrigin
	world *world
	life  *life
}

// Apply implements store.Relayed.
func (o watchedOrigin) Apply(ctx context.Context, shard int, totals []store.Foreign) (int, error) {
	for _, f := range totals {
		if most := o.world.others(o.life.node.region, f.Cell); f.Count > most {
			o.world.record.violate("R1", "%s believes %d of others in %s, and others accepted at most %d",
				o.life.node.region.name, f.Count, cellName(f.Cell), most)
		}
	}
	return o.FullOrigin.Apply(ctx, shard, totals)
}

// Claim implements store.Origin. A call that is made again, to find out what was added, asks for nothing; one that
// arrives twice is decided when it comes first, and others may have been added since.
func (o watchedOrigin) Claim(ctx context.Context, call store.Claims) store.ClaimReply {
	reply := o.FullOrigin.Claim(ctx, call)
	for i, added := range reply.Added {
		c, total := call.Claims[i], reply.Totals[i]
		first := added && c.AtMost >= 0 && c.Cell.Namespace == namespace && o.world.ledger.claimed(o.life.node.region,
			claimID{call.Stream, call.Number, i, c.Cell, total.Epoch}, c.Cost)
		if first && total.Region > c.AtMost {
			o.world.record.violate("claim", "%s grants %d of %s up to %d, and holds %d", o.life.node.region.name, c.Cost,
				cellName(c.Cell), c.AtMost, total.Region)
		}
	}
	return reply
}
