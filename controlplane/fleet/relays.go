package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// UnrelayedMax is how long a shard of a region's origin can be without a relay before that is a problem. Normally
// another node takes over within seconds, and reports that in its next heartbeat.
const UnrelayedMax = 30 * time.Second

// shardsTold bounds the shards that a text names.
const shardsTold = 3

// Relayed is the shards of a region's origin that its live nodes relay together.
type Relayed struct {
	Shards int // of the origin; 0: no node has a relay
	held   []int
}

// Add adds a node: the number of its origin's shards, and the shards that it relays.
func (r *Relayed) Add(shards int, held []int) {
	r.Shards = max(r.Shards, min(shards, heartbeat.ShardsMax))
	r.held = append(r.held, held...)
}

// Missing returns the shards that no node relays, ascending.
func (r Relayed) Missing() (shards []int) {
	for shard := range r.Shards {
		if !slices.Contains(r.held, shard) {
			shards = append(shards, shard)
		}
	}
	return shards
}

// RelayedBy returns how the live nodes of a region relay it.
func RelayedBy(nodes []Node) (r Relayed) {
	for i := range nodes {
		if n := nodes[i].Health.Relay; n != nil && nodes[i].Live {
			r.Add(n.Shards, n.Held)
		}
	}
	return r
}

// Relays reports whether a node relays a shard.
func Relays(n Node) bool { return n.Health.Relay != nil && len(n.Health.Relay.Held) > 0 }

// ShardNames names shards, for example "shards 0, 1, 2 and 5 more".
func ShardNames(shards []int) string {
	var names []string
	for _, shard := range shards[:min(len(shards), shardsTold)] {
		names = append(names, strconv.Itoa(shard))
	}
	if len(shards) == 1 {
		return "shard " + names[0]
	}
	text := "shards " + strings.Join(names, ", ")
	if more := len(shards) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// OriginDown reports whether the origin, or a part of it, does not answer the node.
func OriginDown(n Node) bool { return n.Health.BreakersOpen > 0 }

// Select returns the nodes for which has is true.
func Select(nodes []Node, has func(Node) bool) (found []Node) {
	for _, n := range nodes {
		if has(n) {
			found = append(found, n)
		}
	}
	return found
}
