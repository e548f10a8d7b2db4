package nodecmd

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/traces/tracestest"
)

// OpenTelemetry traces RPCs and background work: calls of traced callers, on both ports, and the limiter's work for
// them.
func TestCallsAndBackgroundWorkAreTraced(t *testing.T) {
	sink := tracestest.NewSink(t)
	c := begin(t, "--region=eu", "--node-id=node-1", "--redis-url=redis://"+servers.RedisForTest(t).Addr())
	c.ask(t, "k", 1) // its caller is not traced

	body := `{"workspace":"acme","namespace":"api","identifier":"k","limit":10,"duration_ms":60000}`
	for _, path := range []string{"/weir.v1.RateLimitService/Limit", "/healthz", "/weir.v1.RateLimitService/Nothing", "/v2/nothing"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.listen+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Traceparent", tracestest.Parent)
		transport := new(http.Transport)
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		transport.CloseIdleConnections()
	}
	c.peek(metadata.AppendToOutgoingContext(t.Context(), "traceparent", tracestest.Parent), t)

	c.endWell(t)
	names := sink.Names()
	for _, want := range []string{"weir.v1.RateLimitService/Limit", "weir.v1.RateLimitService/Peek"} {
		if n := len(names) - len(slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == want })); n != 1 {
			t.Errorf("%d spans of %s", n, want)
		}
	}
	background := []string{"replay", "settings"}
	for _, want := range background {
		if !slices.Contains(names, want) {
			t.Errorf("no span of %s", want)
		}
	}
	for _, name := range names {
		if !slices.Contains(background, name) && !strings.HasPrefix(name, "weir.v1.RateLimitService/") {
			t.Errorf("a span of %s", name)
		}
	}
	if from := sink.From(); from["service.name"] != "weir-node" || from["service.instance.id"] != "node-1" || from["weir.region"] != "eu" {
		t.Errorf("from %v", from)
	}
}

// peek calls the port for gRPC.
func (c *command) peek(ctx context.Context, t *testing.T) {
	t.Helper()
	connection, err := grpc.NewClient(c.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	request := &weirv1.PeekRequest{Workspace: "acme", Namespace: "api", Identifier: "k", Limit: 10, DurationMs: 60_000}
	if err := connection.Invoke(ctx, weirv1connect.RateLimitServicePeekProcedure, request,
		new(weirv1.PeekResponse)); err != nil {
		t.Fatal(err)
	}
}
