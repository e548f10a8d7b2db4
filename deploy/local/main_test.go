package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weirhq/weir/deploy/local/stack"
)

// Each port of `make run` is fixed, so that its README, and a grpcurl or an Envoy that was set up once, keep working.
// No port is used twice.
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

// The default of grpc-listen is the HTTP port of another node here, and the pages about gRPC say so.
func TestPagesNameThePortsThatDiffer(t *testing.T) {
	for page, wants := range map[string][]string{
		"../../dataplane/node/README.md": {fmt.Sprintf("HTTP of the node eu-2 on %d.", ports.Node(0, 1)),
			fmt.Sprintf("`make run` has gRPC of eu-1 on %d", ports.NodeGRPC(0, 0))},
		"../../dataplane/node/rls/README.md": {fmt.Sprintf("%d under `make run`", ports.NodeGRPC(0, 0))},
	} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
				t.Errorf("%s does not have %q", page, want)
			}
		}
	}
}

// The list of nodes shows which node relays each region, which would be next, and which cannot.
func TestRolesAreShown(t *testing.T) {
	relay, next := &stack.Node{ID: "eu-1", Region: "eu"}, &stack.Node{ID: "eu-2", Region: "eu"}
	other := &stack.Node{ID: "us-2", Region: "us"}
	for _, c := range []struct {
		node, relay *stack.Node
		hasMySQL    bool
		want        string
	}{
		{relay, relay, true, "relays eu"},
		{next, relay, true, "relays eu next"},
		{next, nil, true, "relays eu next"},
		{other, nil, false, "no MySQL"},
	} {
		if got := role(c.node, c.relay, c.hasMySQL); got != c.want {
			t.Errorf("%s: %q, want %q", c.node.ID, got, c.want)
		}
	}
}

// A node's end is printed with the node that relays its region then.
func TestAnEndedNodeIsShown(t *testing.T) {
	ended, next := &stack.Node{ID: "eu-1", Region: "eu"}, &stack.Node{ID: "eu-2", Region: "eu"}
	if got, want := left(ended, next), "node eu-1 has ended. node eu-2 relays eu."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	want := "node eu-1 has ended. No node relays eu: other regions do not receive its counts."
	if got := left(ended, nil); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
