package node

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// BenchmarkLimit makes a unary call over loopback on each port and protocol. Client and server run in this process, and
// both count.
func BenchmarkLimit(b *testing.B) {
	h := start(b, newLimiter(b, nil))
	for _, door := range []door{doors[0], doors[3], doors[5]} {
		b.Run(door.name, func(b *testing.B) {
			client := door.open(b, h)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := ask(b.Context(), client, "user_42", 1e15); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
	b.Run("gRPC by grpc-go on its own port", func(b *testing.B) {
		c := dialGRPC(b, h.GRPCAddr())
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			response := new(weirv1.LimitResponse)
			for pb.Next() {
				if err := c.call(b.Context(), weirv1connect.RateLimitServiceLimitProcedure, askedOnTheWire, response); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// BenchmarkHandler measures the server without sockets and without a client.
func BenchmarkHandler(b *testing.B) {
	h := prepare(b, newLimiter(b, nil))
	handler := h.calls.server.Handler
	b.ReportAllocs()
	for b.Loop() {
		r, _ := http.NewRequest(http.MethodPost, weirv1connect.RateLimitServiceLimitProcedure, strings.NewReader(minimal))
		r.Header.Set("Content-Type", "application/json")
		handler.ServeHTTP(discard{make(http.Header)}, r)
	}
}

// BenchmarkLimitMany is a batch of 32, in a decision's share.
func BenchmarkLimitMany(b *testing.B) {
	h := start(b, newLimiter(b, nil))
	client := doors[0].open(b, h)
	batch := new(weirv1.LimitManyRequest)
	for i := range 32 {
		batch.Requests = append(batch.Requests, &weirv1.LimitRequest{Workspace: "acme", Namespace: "api", Identifier: string(rune('a' + i)), Limit: 1e15, DurationMs: 60_000})
	}
	for b.Loop() {
		if _, err := client.LimitMany(b.Context(), connect.NewRequest(batch)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/32, "ns/decision")
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
