package node

import (
	"bufio"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/grpcreflect"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// Both ports answer grpc.health.v1, for the process and for the service.
func TestHealth(t *testing.T) {
	h := start(t, scripted{})
	for _, address := range []string{h.Addr().String(), h.GRPCAddr().String(), h.AdminAddr().String()} {
		conn := dial(t, address)
		health := healthv1.NewHealthClient(conn)
		for _, name := range []string{"", weirv1connect.RateLimitServiceName} {
			response, err := health.Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
			if err != nil || response.Status != healthv1.HealthCheckResponse_SERVING {
				t.Errorf("%s: %q is %v, error %v", address, name, response.GetStatus(), err)
			}
		}
		if _, err := health.Check(t.Context(), &healthv1.HealthCheckRequest{Service: "no.such.Service"}); err == nil {
			t.Errorf("%s: a service that is not here is healthy", address)
		}
	}
	for path, want := range map[string]string{"/healthz": "live\n", "/readyz": "serving\n"} {
		if status, answer := get(t, h.adminBase+path); status != 200 || answer != want {
			t.Errorf("%s: %d %q", path, status, answer)
		}
		if status, _ := get(t, h.base+path); status != 404 {
			t.Errorf("%s is on the service's port too", path)
		}
	}
}

// A client without any description finds the services and their messages by reflection.
func TestReflection(t *testing.T) {
	h := start(t, scripted{})
	for _, base := range []string{h.base, h.adminBase} {
		stream := grpcreflect.NewClient(http2Client(t), base).NewStream(t.Context())
		names, err := stream.ListServices()
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		if len(names) != 2 || names[0] != "grpc.health.v1.Health" || names[1] != "weir.v1.RateLimitService" {
			t.Errorf("services are %v", names)
		}
		for _, name := range names {
			if files, err := stream.FileContainingSymbol(name); err != nil || len(files) == 0 {
				t.Errorf("%s cannot be described: %v", name, err)
			}
		}
		_, _ = stream.Close()
	}
}

// People keep reflection open for longer than any call may take.
func TestReflectionOutlivesTheDeadlinesOfCalls(t *testing.T) {
	const deadline = time.Second
	h := prepare(t, scripted{})
	h.calls.server.ReadTimeout, h.calls.server.WriteTimeout = deadline, deadline
	h.serve(t)
	client := grpcreflect.NewClient(http2Client(t), h.base)
	var stream *grpcreflect.ClientStream
	await.NoError(t, "a stream is open", func() (err error) { // a busy machine may be late for the first deadline
		stream = client.NewStream(t.Context())
		_, err = stream.ListServices()
		return err
	})
	<-time.After(deadline + deadline/2)
	if _, err := stream.ListServices(); err != nil {
		t.Errorf("past the deadlines: %v", err)
	}
	_, _ = stream.Close()
}

// /metrics shows the node's own registry; each metric of this package is in it,
// and is explained in the README once.
func TestMetricsAreServedAndExplained(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var prose strings.Builder // tables refer to metrics, and explain none
	for line := range strings.Lines(string(readme)) {
		if !strings.HasPrefix(line, "|") {
			prose.WriteString(line)
		}
	}
	h := start(t, scripted{})
	_, page := get(t, h.adminBase+"/metrics")
	var names []string
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 4 && fields[1] == "TYPE" && strings.HasPrefix(fields[2], "weir_") {
			names = append(names, fields[2])
		}
	}
	want := []string{"weir_refused_total", "weir_rpc_in_flight", "weir_rpc_panics_total", "weir_rpc_requests_total", "weir_rpc_seconds", "weir_rpc_stream_requests_total"}
	if !slices.Equal(names, want) {
		t.Errorf("/metrics has %v, want %v", names, want)
	}
	for _, name := range names {
		if n := strings.Count(prose.String(), "`"+name); n != 1 {
			t.Errorf("README explains %s %d times, want once", name, n)
		}
	}
	if status, _ := get(t, h.adminBase+"/debug/pprof/goroutine?debug=1"); status != 200 {
		t.Errorf("/debug/pprof: %d", status)
	}
	if status, _ := get(t, h.base+"/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("profiles are on the service's port: %d", status)
	}
}
