package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// UnrelayedMax is how long a shard of a region's origin may be without a relay before something is wrong: another node
// takes over within seconds, and says so with its next heartbeat.
const UnrelayedMax = 30 * time.Second

// shardsTold is how many shards are named.
const shardsTold = 3

// Relayed is how a region's origin is relayed, as its live nodes say together.
type Relayed struct {
	Shards int // of the origin; 0: no node has a relay
	held   []int
}

// Add takes in a node: the shards of its origin, and those that it relays.
func (r *Relayed) Add(shards int, held []int) {
	r.Shards = max(r.Shards, min(shards, heartbeat.ShardsMax))
	r.held = append(r.held, held...)
}

// Missing are the shards that no node relays, ascending.
func (r Relayed) Missing() (shards []int) {
	for shard := range r.Shards {
		if !slices.Contains(r.held, shard) {
			shards = append(shards, shard)
		}
	}
	return shards
}

// RelayedBy is how live nodes of one region relay it.
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

// ShardNames puts shards into words: of many, the first few.
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

// OriginDown reports whether the origin, or a part of it, gives the node no answer.
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
