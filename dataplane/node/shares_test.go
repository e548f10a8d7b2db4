package node

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// clientFrom makes a client that calls from an address of this machine.
func clientFrom(t testing.TB, h *harness, d door, address net.IP) weirv1connect.RateLimitServiceClient {
	client := d.client(t)
	transport, _ := client.Transport.(*http.Transport)
	transport.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: address}}).DialContext
	base := h.base
	if d.grpcGo {
		base = h.grpcBase
	}
	return weirv1connect.NewRateLimitServiceClient(client, base, d.options...)
}

// One caller's streams, all of whose decisions wait, hold a sixteenth of the slots: calls and streams of other callers
// are answered, and none of them is shed.
func TestStreamsOfOneCallerLeaveSlotsForOthers(t *testing.T) {
	for _, door := range streamDoors() {
		t.Run(door.name, func(t *testing.T) {
			var stuck atomic.Int64
			goOn := make(chan struct{})
			h := start(t, scripted{allow: func(_ context.Context, r dataplane.Request) dataplane.Decision {
				if r.Namespace == "flood" {
					stuck.Add(1)
					<-goOn
				}
				return dataplane.Decision{Allowed: true}
			}}, func(c *Config) { c.MaxInFlight = 32 })
			defer close(goOn)
			flood := clientFrom(t, h, door, net.IPv4(127, 0, 0, 2))
			request := &weirv1.LimitRequest{Workspace: "w", Namespace: "flood", Identifier: "i", Limit: 1, DurationMs: 60_000}
			for range 64 {
				stream := flood.LimitStream(t.Context())
				if err := stream.Send(&weirv1.LimitStreamRequest{Request: request}); err != nil {
					t.Fatal(err)
				}
			}
			await.True(t, "the flood has its slots", func() bool { return stuck.Load() >= 2 })
			other := clientFrom(t, h, door, net.IPv4(127, 0, 0, 3))
			for range 100 {
				if _, err := other.Limit(t.Context(), connect.NewRequest(askedOnTheWire)); err != nil {
					t.Fatalf("another caller's call: %v", err)
				}
			}
			stream := other.LimitStream(t.Context())
			if err := stream.Send(&weirv1.LimitStreamRequest{Request: numbered(1)}); err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Receive(); err != nil {
				t.Errorf("another caller's stream: %v", err)
			}
			_ = stream.CloseRequest()
			_ = stream.CloseResponse()
			if n := stuck.Load(); n != 2 {
				t.Errorf("one caller's streams hold %d of 32 slots, want 2", n)
			}
		})
	}
}
