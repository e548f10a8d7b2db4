package main

import (
	"testing"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/shared/heartbeat"
)

// Each pair of regions has the delay of its slowest live node. Without measurements the command prints a note.
func TestFleetPairs(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "fleet", "--pairs"), exitOK, "not measured: no relay has lately read changes of another region\n")
	us := fleet.Node{Live: true}
	us.Region, us.Health.Relay = "us", &heartbeat.Relay{Shards: 1, Held: []int{0}, LagP99Ms: map[string]int64{"eu": 1200, "ap": 12_000}}
	w.fleet.Nodes = []fleet.Node{us}
	w.want(t, w.run(t, "fleet", "--pairs"), exitOK, `
TO  FROM  99 OF 100 WITHIN  NODES
us  ap    12s               1
us  eu    1.2s              1
`)
}
