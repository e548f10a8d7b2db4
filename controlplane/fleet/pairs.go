package fleet

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirhq/weir/shared/heartbeat"
)

// Pair is how late the news of one region is read by another.
type Pair struct {
	From, To string
	P99Ms    int64 // of the slowest node
	Nodes    int   // that measured it
}

// PairsMax is how many pairs one listing holds: all of a fleet of heartbeat.RegionsMax regions.
const PairsMax = heartbeat.RegionsMax * heartbeat.RegionsMax

// Pairs are those that live nodes, which relay a shard, have measured lately, by to, then from. Of a node no more than
// heartbeat.RegionsMax are taken; of more than PairsMax in all, those that most nodes have measured, the slowest first.
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
