package controlplane

import (
	"reflect"
	"testing"

	"github.com/weirhq/weir/shared/heartbeat"
)

// A pair is as late as the slowest live node says that relays; others measure nothing any more.
func TestPairs(t *testing.T) {
	node := func(region string, live bool, from map[string]int64, held ...int) Node {
		return Node{Live: live, Beat: heartbeat.Beat{Region: region, Health: heartbeat.Health{Relay: &heartbeat.Relay{Shards: 2, Held: held, LagP99Ms: from}}}}
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
