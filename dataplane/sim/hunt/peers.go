package hunt

import (
	"errors"
	"slices"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
)

// publish returns the function that carries a relay's rows to its peers. It sends to every node of each other region,
// because the sender cannot tell which node leads.
func (w *world) publish(from *life) func(store.FeedRow) {
	return func(row store.FeedRow) {
		row.Payload = slices.Clone(row.Payload)
		for _, r := range w.regions {
			if r == from.node.region {
				continue
			}
			for _, n := range r.nodes {
				from.ToPeers.Post("peer", func() { w.apply(n, row) })
			}
		}
	}
}

// apply passes a row to a node's relay, if it leads.
func (w *world) apply(n *node, row store.FeedRow) {
	l := n.life.Load()
	if l == nil || l.Relay == nil || l.ended.Load() {
		return
	}
	err := l.Relay.Apply(row)
	if errors.Is(err, store.ErrRefused) && w.plan.Changes(SetClock) {
		return // its cells have not begun by the clock of this region
	}
	if err != nil && !errors.Is(err, relay.ErrIdle) {
		w.record.violate("error", "%v hears a row of %s: %v", l, row.Region, err)
	}
}
