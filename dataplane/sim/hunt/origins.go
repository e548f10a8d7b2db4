package hunt

import (
	"context"

	"github.com/weirhq/weir/dataplane/store"
)

// watchedOrigin is a region's origin behind all links. It holds what relays tell it to what others have accepted, and
// what it grants to what was asked of it.
type watchedOrigin struct {
	store.RelayOrigin
	world  *world
	region *region
}

// Tell implements store.RelayOrigin.
func (o watchedOrigin) Tell(ctx context.Context, shard int, totals []store.Foreign) (int, error) {
	for _, f := range totals {
		if most := o.world.ledger.others(o.region, f.Cell); f.Count > most {
			o.world.record.violate("R1", "%s believes %d of others in %s, and others accepted at most %d",
				o.region.name, f.Count, cellName(f.Cell), most)
		}
	}
	return o.RelayOrigin.Tell(ctx, shard, totals)
}

// Claim implements store.Origin. A call that is made again, to find out what was added, asks for nothing.
func (o watchedOrigin) Claim(ctx context.Context, call store.Claims) store.ClaimReply {
	reply := o.RelayOrigin.Claim(ctx, call)
	for i, added := range reply.Added {
		if added && call.Claims[i].AtMost >= 0 {
			o.world.ledger.claimed(o.region, call.Claims[i].Cell, call.Claims[i].Cost)
		}
		if total, atMost := reply.Totals[i].Region, call.Claims[i].AtMost; added && atMost >= 0 && total > atMost {
			o.world.record.violate("claim", "%s grants %d of %s up to %d, and holds %d", o.region.name, call.Claims[i].Cost,
				cellName(call.Claims[i].Cell), call.Claims[i].AtMost, total)
		}
	}
	return reply
}
