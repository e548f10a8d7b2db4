package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/bounded"
)

// other is a further API: UnaryCall is its method, EmptyCall its health.
type other struct {
	testpb.UnimplementedTestServiceServer
	call func(context.Context) error // nil: answers
}

func (o *other) UnaryCall(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	if o.call == nil {
		return &testpb.SimpleResponse{Username: "other"}, nil
	}
	return nil, o.call(ctx)
}

func (o *other) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	return &testpb.Empty{}, nil
}

func (o *other) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/other/call" {
		if _, err := o.UnaryCall(r.Context(), nil); err != nil {
			refuseOther(w, err)
			return
		}
	}
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "other %s", body)
}

func refuseOther(w http.ResponseWriter, err error) {
	known := map[codes.Code]int{codes.Unavailable: 503, codes.Unauthenticated: 401, codes.OutOfRange: 416}
	w.WriteHeader(cmp.Or(known[status.Code(err)], 400))
	fmt.Fprint(w, status.Convert(err).Message())
}

// long is a refusal with a status of its own.
type long struct{ error }

func (l long) GRPCStatus() *status.Status { return status.New(codes.OutOfRange, l.Error()) }
func (l long) Unwrap() error              { return l.error }

func fewBraces(message []byte) error {
	if n := ObjectsIn(message); n > 2 {
		return long{&bounded.Refusal{Bound: bounded.BoundItems, Message: fmt.Sprintf("%d are too many", n)}}
	}
	return nil
}

func serveOther(t *testing.T, o *other, adjust ...func(*Config)) (*harness, testpb.TestServiceClient) {
	t.Helper()
	api := &API{
		Service: &testpb.TestService_ServiceDesc, Server: o, HTTP: o, Refuse: refuseOther,
		Methods: []Method{
			{Name: "UnaryCall", Path: "/other/call", Label: "other.Call", BytesMax: 100, CheckMessage: fewBraces,
				CheckBody: fewBraces},
			{Name: "EmptyCall", Path: "/other/health", Probe: true},
		},
	}
	h := start(t, scripted{}, append([]func(*Config){func(c *Config) { c.API = api }}, adjust...)...)
	conn := dial(t, h.GRPCAddr().String())
	return h, testpb.NewTestServiceClient(conn)
}

// A further API is answered on both ports, as far as its methods are named, and counted.
func TestAFurtherAPIIsServed(t *testing.T) {
	h, client := serveOther(t, new(other))
	if r, err := client.UnaryCall(t.Context(), new(testpb.SimpleRequest)); err != nil || r.Username != "other" {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := client.EmptyCall(t.Context(), new(testpb.Empty)); err != nil {
		t.Error(err)
	}
	_, err := client.CacheableUnaryCall(t.Context(), new(testpb.SimpleRequest))
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("a method that is not named: %v", err)
	}
	if code, _, answer := curl(t, h.base+"/other/call", "{}"); code != 200 || answer != "other {}" {
		t.Errorf("%d %s", code, answer)
	}
	if code, answer := get(t, h.base+"/other/health"); code != 200 || answer != "other " {
		t.Errorf("%d %s", code, answer)
	}
	for _, base := range []string{h.base, h.adminBase} {
		code, answer := get(t, base+"/metrics")
		if code != 200 || !strings.Contains(answer, `weir_rpc_requests_total{code="ok",method="other.Call"} 2`) {
			t.Errorf("%d %s", code, answer)
		}
	}
}

// Its faults, panics and refusals are its own API's errors.
func TestAFurtherAPIsCallsAreBounded(t *testing.T) {
	var call func(context.Context) error
	h, client := serveOther(t, &other{call: func(ctx context.Context) error { return call(ctx) }})
	for says, c := range map[string]struct {
		call func(context.Context) error
		text string // of the body, and in the message
		code codes.Code
		http int
	}{
		"gone": {func(context.Context) error { return status.Error(codes.Unavailable, "gone") }, "{}", codes.Unavailable,
			503},
		"internal error,": {func(context.Context) error { panic("other") }, "{}", codes.Internal, 400},
		"3 are too many":  {func(context.Context) error { return errors.New("not called") }, "{{{", codes.OutOfRange, 416},
	} {
		call = c.call
		_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{ResponseStatus: &testpb.EchoStatus{Message: c.text}})
		if status.Code(err) != c.code || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
		for _, kind := range []string{"application/json", "application/grpc", "text/plain"} {
			code, _, answer := curl(t, h.base+"/other/call", c.text, "Content-Type", kind)
			if code != c.http || !strings.Contains(answer, says) {
				t.Errorf("%s: %d %s", says, code, answer)
			}
		}
	}
	code, _, answer := curl(t, h.base+"/other/call", strings.Repeat(" ", 101))
	if code != 400 || answer != "body is longer than 100 bytes" {
		t.Errorf("%d %s", code, answer)
	}
	large := &testpb.Payload{Body: make([]byte, messageBytesMax)}
	_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{Payload: large})
	if status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

// Without a slot its calls are shed, and its health answers.
func TestAFurtherAPIIsShed(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	h, client := serveOther(t, &other{call: func(context.Context) error { close(begun); <-end; return nil }},
		func(c *Config) { c.MaxInFlight = 1 })
	held := make(chan error, 1)
	go func() { _, err := client.UnaryCall(t.Context(), new(testpb.SimpleRequest)); held <- err }()
	<-begun
	if _, err := client.UnaryCall(t.Context(), new(testpb.SimpleRequest)); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if code, header, _ := curl(t, h.base+"/other/call", "{}"); code != 503 || header.Get("Retry-After") == "" {
		t.Errorf("%d %v", code, header)
	}
	if _, err := client.EmptyCall(t.Context(), new(testpb.Empty)); err != nil {
		t.Error(err)
	}
	if code, answer := get(t, h.base+"/other/health"); code != 200 {
		t.Errorf("%d %s", code, answer)
	}
	close(end)
	if err := <-held; err != nil {
		t.Error(err)
	}
}

// Its calls need a token where there are any; its health does not.
func TestAFurtherAPINeedsTokens(t *testing.T) {
	h, client := serveOther(t, new(other), withTokens(t, "secret"))
	known := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret")
	for ctx, want := range map[context.Context]codes.Code{t.Context(): codes.Unauthenticated, known: codes.OK} {
		if _, err := client.UnaryCall(ctx, new(testpb.SimpleRequest)); status.Code(err) != want {
			t.Error(err)
		}
	}
	if code, header, _ := curl(t, h.base+"/other/call", "{}"); code != 401 || header.Get("WWW-Authenticate") == "" {
		t.Errorf("%d %v", code, header)
	}
	if code, _, answer := curl(t, h.base+"/other/call", "{}", "Authorization", "Bearer secret"); code != 200 {
		t.Errorf("%d %s", code, answer)
	}
	if code, _ := get(t, h.base+"/metrics"); code != 401 {
		t.Error(code)
	}
	if code, _ := get(t, h.base+"/other/health"); code != 200 {
		t.Error(code)
	}
	if _, err := client.EmptyCall(t.Context(), new(testpb.Empty)); err != nil {
		t.Error(err)
	}
}

// The port for probes serves only health. Draining is called once, when a drain begins.
func TestAFurtherAPIsProbesAndItsDrain(t *testing.T) {
	var drains atomic.Int32
	h, _ := serveOther(t, new(other), func(c *Config) {
		c.API.ProbeListen = "127.0.0.1:0"
		c.API.Draining = func() { drains.Add(1) }
	})
	probes := "http://" + h.ProbeAddr().String()
	if code, answer := get(t, probes+"/other/health"); code != 200 {
		t.Errorf("%d %s", code, answer)
	}
	for _, path := range []string{"/other/call", "/metrics", "/readyz", "/weir.v1.RateLimitService/Limit"} {
		if code, answer := get(t, probes+path); code != 404 {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
	if drains.Load() != 0 {
		t.Error("it has heard of a drain")
	}
	if err := h.Drain(); err != nil {
		t.Error(err)
	}
	if drains.Load() != 1 {
		t.Errorf("it has heard of %d drains", drains.Load())
	}
	await.True(t, "the port for probes is closed", func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, probes+"/other/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http1Client(t).Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		return err != nil
	})
}

// "Probe makes it health: it needs neither token nor slot, has memory of its own and takes 1 KiB at most", and metrics
// and traces do not count it.
func TestAProbeOfAFurtherAPIIsSmall(t *testing.T) {
	h, client := serveOther(t, new(other), func(c *Config) { c.API.Methods[0].Probe = true })
	_, err := client.UnaryCall(t.Context(), &testpb.SimpleRequest{Payload: &testpb.Payload{Body: make([]byte, 1024)}})
	if status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	if code, _, answer := curl(t, h.base+"/other/call", strings.Repeat(" ", 1025)); code != 413 {
		t.Errorf("%d %s", code, answer)
	}
	api := h.config.API
	if labels := api.labels(); len(labels) != 0 {
		t.Error(labels)
	}
	if name := api.spanName("/other/call"); name != "" {
		t.Error(name)
	}
	if api.Methods[0].Probe = false; api.spanName("/other/call") != "grpc.testing.TestService/UnaryCall" {
		t.Error(api.spanName("/other/call"))
	}
}

// Methods "are served on GRPCListen, as far as Methods name its unary methods": its streams are not.
func TestAFurtherAPIHasNoStreams(t *testing.T) {
	h, _ := serveOther(t, new(other))
	described := describeAPI(h.config.API, h.gate)
	if len(described.Methods) != 2 || described.Streams != nil {
		t.Errorf("%d methods, %d streams", len(described.Methods), len(described.Streams))
	}
	if h.config.API.Service != &testpb.TestService_ServiceDesc || testpb.TestService_ServiceDesc.Streams == nil {
		t.Error("the API's own description is another")
	}
}

// "metrics count them": each call once, by how it ended, and each refusal by its bound.
func TestAFurtherAPIsCallsAreCounted(t *testing.T) {
	h, _ := serveOther(t, &other{call: func(context.Context) error { return status.Error(codes.Unavailable, "gone") }},
		withTokens(t, "secret"))
	known := []string{"Authorization", "Bearer secret"}
	curl(t, h.base+"/other/call", "{}")
	curl(t, h.base+"/other/call", "{}", known...)
	curl(t, h.base+"/other/call", "{{{", known...)
	curl(t, h.base+"/other/call", "{}", append(known, "Sec-Fetch-Site", "cross-site")...)
	calls := h.gate.metrics.calls["/other/call"].byCode
	await.True(t, "two calls that reached the gate", func() bool {
		return value(calls["unauthenticated"]) == 1 && value(calls["unavailable"]) == 1 && value(calls["ok"]) == 0
	})
	for bound, want := range map[bounded.Bound]float64{bounded.BoundItems: 1, bounded.BoundHost: 1} {
		if got := value(h.bounds.refused[bound]); got != want {
			t.Errorf("%v refusals by %s, want %v", got, bound, want)
		}
	}
}

// A port for probes on loopback is as closed to a web page's own name for it as the others.
func TestThePortForProbesKnowsItsHosts(t *testing.T) {
	h, _ := serveOther(t, new(other), func(c *Config) { c.API.ProbeListen = "127.0.0.1:0" })
	url := "http://" + h.ProbeAddr().String() + "/other/health"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "evil.example"
	response, err := http1Client(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode == 200 {
		t.Error("it answers")
	}
}

// A connection to the port for gRPC ends at its maximal age, and the next call makes another connection.
func TestConnectionsEndAtTheirAge(t *testing.T) {
	h := start(t, scripted{}, func(c *Config) { c.GRPCConnectionAge = 100 * time.Millisecond })
	conn := dial(t, h.GRPCAddr().String())
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		conn.Connect() // again if a connection has reached its age unnoticed
		conn.WaitForStateChange(t.Context(), state)
	}
	conn.WaitForStateChange(t.Context(), connectivity.Ready)
	if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
}
