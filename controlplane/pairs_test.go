package controlplane

import (
	"reflect"
	"testing"

	"github.com/weirhq/weir/shared/heartbeat"
)

// A pair is as late as its slowest live node says; older nodes, which say nothing, are not
// measured.
func TestPairs(t *testing.T) {
	node := func(region string, live bool, from map[string]int64) Node {
		return Node{Live: live, Beat: heartbeat.Beat{Region: region, Health: heartbeat.Health{ConvergenceFromMs: from}}}
	}
	f := Fleet{Nodes: []Node{
		node("us", true, map[string]int64{"eu": 900, "ap": 5}), node("us", true, map[string]int64{"eu": 12_000}),
		node("us", false, map[string]int64{"eu": 90_000}), node("eu", true, map[string]int64{"us": 0}), node("eu", true, nil),
	}}
	want := []Pair{{"us", "eu", 0, 1}, {"ap", "us", 5, 1}, {"eu", "us", 12_000, 2}}
	if got := f.Pairs(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
