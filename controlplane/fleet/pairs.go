package fleet

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirhq/weir/shared/heartbeat"
)

// Pair is the delay after which a region reads the changes of another region.
type Pair struct {
	From, To string
	P99Ms    int64 // of the slowest node
	Nodes    int   // nodes that measured it
}

// PairsMax bounds the pairs of a listing: all pairs of a fleet of heartbeat.RegionsMax regions.
const PairsMax = heartbeat.RegionsMax * heartbeat.RegionsMax

// Pairs returns the pairs that live nodes with a shard have measured lately, by to, then from. It ignores a node that
// reports more than heartbeat.RegionsMax regions. Of more than PairsMax pairs it keeps the pairs that most nodes have
// measured, the slowest first.
func (f *Fleet) Pairs() (pairs []Pair) {
	type way struct{ from, to string }
	found := make(map[way]Pair)
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if !n.Live || !Relays(*n) || len(n.Health.Relay.LagP99Ms) > heartbeat.RegionsMax {
			continue
		}
		for from, ms := range n.Health.Relay.LagP99Ms {
			w := way{from, n.Region}
			p := found[w]
			found[w] = Pair{from, n.Region, max(p.P99Ms, ms), p.Nodes + 1}
		}
	}
	for _, p := range found {
		pairs = append(pairs, p)
	}
	if len(pairs) > PairsMax {
		slices.SortFunc(pairs, func(a, b Pair) int {
			return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(b.P99Ms, a.P99Ms))
		})
		pairs = pairs[:PairsMax]
	}
	slices.SortFunc(pairs, func(a, b Pair) int {
		return cmp.Or(strings.Compare(a.To, b.To), strings.Compare(a.From, b.From))
	})
	return pairs
}
