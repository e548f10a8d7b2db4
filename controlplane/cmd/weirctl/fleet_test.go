package main

import (
	"testing"

	"github.com/weirhq/weir/controlplane"
)

// Each pair of regions is as late as its slowest live node says; without any it says so.
func TestFleetPairs(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "fleet", "--pairs"), exitOK, "not measured: no node has lately used cost of another region, or all are older than this\n")
	us := controlplane.Node{Live: true}
	us.Region, us.Health.ConvergenceFromMs = "us", map[string]int64{"eu": 1200, "ap": 12_000}
	w.fleet.Nodes = []controlplane.Node{us}
	w.want(t, w.run(t, "fleet", "--pairs"), exitOK, `
TO  FROM  99 OF 100 WITHIN  NODES
us  ap    12s               1
us  eu    1.2s              1
`)
}
