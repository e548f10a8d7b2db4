package fleet

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/weirhq/weir/shared/heartbeat"
)

// A pair has the delay of the slowest live node with a shard; other nodes no longer measure anything.
func TestPairs(t *testing.T) {
	node := func(region string, live bool, from map[string]int64, held ...int) Node {
		return Node{Live: live, Heartbeat: heartbeat.Heartbeat{Region: region, Health: heartbeat.Health{Relay: &heartbeat.Relay{Shards: 2, Held: held, LagP99Ms: from}}}}
	}
	f := Fleet{Nodes: []Node{
		node("us", true, map[string]int64{"eu": 900, "ap": 5}, 0), node("us", true, map[string]int64{"eu": 12_000}, 1),
		node("us", true, map[string]int64{"eu": 80_000}), node("us", false, map[string]int64{"eu": 90_000}, 0),
		node("eu", true, map[string]int64{"us": 0}, 0, 1), node("eu", true, nil), {Live: true},
	}}
	want := []Pair{{"us", "eu", 0, 1}, {"ap", "us", 5, 1}, {"eu", "us", 12_000, 2}}
	if got := f.Pairs(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// If nodes report regions that no other node reports, these pairs take no more room than a listing has, and do not
// displace pairs that other nodes measure.
func TestPairsAreBounded(t *testing.T) {
	node := func(region string, from map[string]int64) Node {
		return Node{Live: true, Heartbeat: heartbeat.Heartbeat{Region: region, Health: heartbeat.Health{Relay: &heartbeat.Relay{Shards: 1, Held: []int{0}, LagP99Ms: from}}}}
	}
	f := Fleet{Nodes: []Node{node("eu", map[string]int64{"us": 5}), node("eu", map[string]int64{"us": 7})}}
	for i := range 2 * heartbeat.RegionsMax {
		strange := make(map[string]int64)
		for j := range heartbeat.RegionsMax {
			strange[fmt.Sprint(i, "-", j)] = 1 << 40
		}
		f.Nodes = append(f.Nodes, node(fmt.Sprint("strange-", i), strange))
	}
	got := f.Pairs()
	if len(got) != PairsMax || !slices.Contains(got, Pair{"us", "eu", 7, 2}) {
		t.Errorf("%d pairs, want %d, and that of us and eu among them", len(got), PairsMax)
	}
}
