package controlplane

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// unrelayedMax is how long a shard of a region's origin may be without a relay before something is wrong: another node
// takes over within seconds, and says so with its next heartbeat.
const unrelayedMax = 30 * time.Second

// shardsTold is how many shards are named.
const shardsTold = 3

// relayed is how a region's origin is relayed, as its live nodes say together.
type relayed struct {
	shards int // of the origin; 0: no node has a relay
	held   []int
}

func (r *relayed) add(shards int, held []int) {
	r.shards = max(r.shards, min(shards, heartbeat.ShardsMax))
	r.held = append(r.held, held...)
}

// missing are the shards that no node relays, ascending.
func (r relayed) missing() (shards []int) {
	for shard := range r.shards {
		if !slices.Contains(r.held, shard) {
			shards = append(shards, shard)
		}
	}
	return shards
}

// relayedBy is how live nodes of one region relay it.
func relayedBy(nodes []Node) (r relayed) {
	for i := range nodes {
		if n := nodes[i].Health.Relay; n != nil && nodes[i].Live {
			r.add(n.Shards, n.Held)
		}
	}
	return r
}

// relays is true of a node that relays a shard.
func relays(n Node) bool { return n.Health.Relay != nil && len(n.Health.Relay.Held) > 0 }

// shardNames puts shards into words: of many, the first few.
func shardNames(shards []int) string {
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

func originDown(n Node) bool { return n.Health.BreakersOpen > 0 }

func filter(nodes []Node, has func(Node) bool) (found []Node) {
	for _, n := range nodes {
		if has(n) {
			found = append(found, n)
		}
	}
	return found
}
