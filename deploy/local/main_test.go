package main

import "testing"

// Each port of `make run` is fixed, so that its README and a grpcurl or an Envoy that were set up
// once go on working, and none is given twice.
func TestPortsAreFixedAndApart(t *testing.T) {
	taken := map[int]bool{0: true}
	take := func(port int) {
		if taken[port] {
			t.Errorf("port %d is free to choose, or taken", port)
		}
		taken[port] = true
	}
	for region := range 2 {
		take(ports.Redis(region))
		for node := range 2 {
			take(ports.Node(region, node))
			take(ports.NodeAdmin(region, node))
			take(ports.NodeGRPC(region, node))
		}
	}
	for _, port := range []int{ports.API, ports.Handlers, ports.SQL, ports.RestateIngress, ports.RestateAdmin, ports.RestateFabric} {
		take(port)
	}
	if got := ports.NodeGRPC(1, 1); got != 7212 {
		t.Errorf("us-2 serves gRPC on %d; README says 7212", got)
	}
}
