package node

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

func TestMain(m *testing.M) {
	// net/http lingers for half a second on a connection that it closes in the middle of
	// a body.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// scripted is a Limiter that calls the functions of a test. Without a function it returns the zero decision.
type scripted struct {
	allow func(context.Context, dataplane.Request) dataplane.Decision
	peek  func(context.Context, dataplane.Request) dataplane.Decision
	many  func(context.Context, []dataplane.Request) dataplane.Batch
	back  func(dataplane.Request) (int64, error)
	top   func(dataplane.TopQuery) (dataplane.TopKeys, error)
	stop  func(context.Context) error

	reserve func(context.Context, dataplane.ReserveRequest) dataplane.Reserved
	settle  func(id string, costs []int64) (dataplane.Settlement, error)
}

func (s scripted) Allow(ctx context.Context, r dataplane.Request) dataplane.Decision {
	if s.allow == nil {
		return dataplane.Decision{}
	}
	return s.allow(ctx, r)
}

func (s scripted) Peek(ctx context.Context, r dataplane.Request) dataplane.Decision {
	if s.peek == nil {
		return dataplane.Decision{}
	}
	return s.peek(ctx, r)
}

func (s scripted) AppendAllowMany(ctx context.Context, _ []dataplane.Decision, r []dataplane.Request) dataplane.Batch {
	if s.many == nil {
		return dataplane.Batch{Decisions: make([]dataplane.Decision, len(r))}
	}
	return s.many(ctx, r)
}

func (s scripted) Refund(r dataplane.Request) (int64, error) {
	if s.back == nil {
		return 0, nil
	}
	return s.back(r)
}

func (s scripted) Charge(r dataplane.Request) (int64, error) { return r.Cost, r.Validate() }

func (s scripted) Reserve(ctx context.Context, r dataplane.ReserveRequest) dataplane.Reserved {
	if s.reserve == nil {
		return dataplane.Reserved{}
	}
	return s.reserve(ctx, r)
}

// about stands for all calls about a reservation.
func (s scripted) about(id string, costs ...int64) (dataplane.Settlement, error) {
	if s.settle == nil {
		return dataplane.Settlement{}, nil
	}
	return s.settle(id, costs)
}

func (s scripted) Settle(_ context.Context, id string, costs ...int64) (dataplane.Settlement, error) {
	return s.about(id, costs...)
}

func (s scripted) Spend(_ context.Context, id string, costs ...int64) (dataplane.Settlement, error) {
	return s.about(id, costs...)
}

func (s scripted) Cancel(_ context.Context, id string) (dataplane.Settlement, error) {
	return s.about(id)
}

func (s scripted) Extend(_ context.Context, id string, _ time.Duration) (dataplane.Settlement, error) {
	return s.about(id)
}

func (s scripted) AcquireToken(context.Context, dataplane.ConcurrencyRequest, string,
	bool) (string, dataplane.ConcurrencyDecision) {
	return "", dataplane.ConcurrencyDecision{}
}

func (s scripted) RenewTokens(_ context.Context, _ time.Duration, tokens ...string) []error {
	return make([]error, len(tokens))
}

func (s scripted) ReleaseTokens(_ context.Context, tokens ...string) []error {
	return make([]error, len(tokens))
}

func (s scripted) ExplainConcurrency(dataplane.ConcurrencyRequest) (dataplane.ConcurrencyExplanation, error) {
	return dataplane.ConcurrencyExplanation{}, nil
}

func (s scripted) Explain(dataplane.Request) (dataplane.Explanation, error) {
	return dataplane.Explanation{}, nil
}

func (s scripted) TopKeys(q dataplane.TopQuery) (dataplane.TopKeys, error) {
	if s.top == nil {
		return dataplane.TopKeys{}, nil
	}
	return s.top(q)
}

func (s scripted) Start(context.Context) error { return nil }

func (s scripted) Stop(ctx context.Context) error {
	if s.stop == nil {
		return nil
	}
	return s.stop(ctx)
}

// harness is a running server on loopback, and its log.
type harness struct {
	*Server
	base, grpcBase, adminBase string
	log                       *await.Log
	registry                  *prometheus.Registry
}

// prepare makes a server that listens nowhere yet.
func prepare(t testing.TB, limiter Limiter, adjust ...func(*Config)) *harness {
	t.Helper()
	h := &harness{log: new(await.Log), registry: prometheus.NewRegistry()}
	config := Config{
		Limiter:      limiter,
		Listen:       "127.0.0.1:0",
		GRPCListen:   "127.0.0.1:0",
		AdminListen:  "127.0.0.1:0",
		Registry:     h.registry,
		Logger:       slog.New(slog.NewJSONHandler(h.log, nil)),
		DrainTimeout: 10 * time.Second,
	}
	for _, f := range adjust {
		f(&config)
	}
	server, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	h.Server = server
	return h
}

func start(t testing.TB, limiter Limiter, adjust ...func(*Config)) *harness {
	t.Helper()
	h := prepare(t, limiter, adjust...)
	h.serve(t)
	return h
}

func (h *harness) serve(t testing.TB) {
	t.Helper()
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.abandon(); h.close(); h.running.Wait(); h.gate.readers.Wait() })
	h.base, h.grpcBase, h.adminBase = "http://"+h.Addr().String(), "http://"+h.GRPCAddr().String(), "http://"+h.AdminAddr().String()
}

// door is a way in which calls can reach the node.
type door struct {
	name    string
	client  func(testing.TB) *http.Client
	options []connect.ClientOption
	grpcGo  bool // served by grpc-go, on its own port
}

var doors = []door{
	{"gRPC", http2Client, []connect.ClientOption{connect.WithGRPC()}, false},
	{"gRPC-Web over HTTP/1.1", http1Client, []connect.ClientOption{connect.WithGRPCWeb()}, false},
	{"gRPC-Web over h2c", http2Client, []connect.ClientOption{connect.WithGRPCWeb()}, false},
	{"Connect over h2c", http2Client, nil, false},
	{"Connect over HTTP/1.1, compressed", http1Client, []connect.ClientOption{connect.WithSendGzip()}, false},
	{"JSON over HTTP/1.1", http1Client, []connect.ClientOption{connect.WithProtoJSON()}, false},
	{"JSON over h2c", http2Client, []connect.ClientOption{connect.WithProtoJSON()}, false},
	{"gRPC on its own port", http2Client, []connect.ClientOption{connect.WithGRPC()}, true},
	{"gRPC on its own port, compressed", http2Client, []connect.ClientOption{connect.WithGRPC(), connect.WithSendGzip()}, true},
}

func (d door) open(t testing.TB, h *harness) weirv1connect.RateLimitServiceClient {
	base := h.base
	if d.grpcGo {
		base = h.grpcBase
	}
	return weirv1connect.NewRateLimitServiceClient(d.client(t), base, d.options...)
}

func http1Client(t testing.TB) *http.Client { return httpClient(t, (*http.Protocols).SetHTTP1) }

func http2Client(t testing.TB) *http.Client {
	return httpClient(t, (*http.Protocols).SetUnencryptedHTTP2)
}

func httpClient(t testing.TB, enable func(*http.Protocols, bool)) *http.Client {
	protocols := new(http.Protocols)
	enable(protocols, true)
	transport := &http.Transport{Protocols: protocols, MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// curl posts a body and returns the answer, as a person with curl would see it.
func curl(t testing.TB, url, body string, headers ...string) (status int, header http.Header, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	return do(t, request)
}

func get(t testing.TB, url string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	status, _, answer = do(t, request)
	return status, answer
}

func do(t testing.TB, request *http.Request) (int, http.Header, string) {
	t.Helper()
	response, err := http1Client(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(answer)
}
