package node

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/bounded"
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

// The streams of one caller, if all of their decisions wait, hold a sixteenth of the slots. Calls and streams of other
// callers get responses, and none of them is shed.
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

// Health is watched without a token, so watches do not use the bounds of streams: any number of open watches ends no
// stream, not even a stream of the same address. The single message of a watch is short.
func TestWatchesOfHealthEndNoStreams(t *testing.T) {
	h := start(t, scripted{})
	stream := doors[7].open(t, h).LimitStream(t.Context())
	answered := func() error {
		if err := stream.Send(&weirv1.LimitStreamRequest{Request: numbered(1)}); err != nil {
			return err
		}
		_, err := stream.Receive()
		return err
	}
	if err := answered(); err != nil {
		t.Fatal(err)
	}
	of := h.bounds.streams.Used()
	conn := dial(t, h.GRPCAddr().String())
	const watches = 95
	for i := range watches {
		watch, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
		if err == nil {
			_, err = watch.Recv()
		}
		if err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
	}
	if err := answered(); err != nil {
		t.Errorf("a stream that was silent meanwhile: %v", err)
	}
	if n := h.bounds.streams.Used(); n != of {
		t.Errorf("streams hold %d bytes, and held %d before", n, of)
	}
	if n, most := h.bounds.probes.Used(), int64(watches*(bounded.CallBytes+probeBytesMax)); n == 0 || n > most {
		t.Errorf("watches hold %d bytes, want %d at most", n, most)
	}
	long, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{Service: strings.Repeat("x", 2*probeBytesMax)})
	if err == nil {
		_, err = long.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a long message: %v", err)
	}
	_ = stream.CloseRequest()
	_ = stream.CloseResponse()
}
