package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// attackBytesMax is the memory that one client's bodies may add to an idle node.
const attackBytesMax = 200 << 20

// attacked is a node that hostile clients call, with the peak of its process's memory since watch.
type attacked struct {
	*harness
	idle, most uint64
}

// attack starts a node that answers everything that is well formed.
func attack(t testing.TB) *attacked {
	t.Helper()
	limiter := scripted{many: func(_ context.Context, r []dataplane.Request) dataplane.Batch {
		return dataplane.Batch{Allowed: true, Decisions: make([]dataplane.Decision, len(r))}
	}}
	rules, _ := writeRules(t, envoyRules)
	return &attacked{harness: start(t, limiter, withRoutes(limiter), func(c *Config) {
		c.RLS = &rls.Service{Limiter: limiter, Rules: rules, Workspace: "envoy"}
	})}
}

// watch measures until the function that it returns is called.
func (a *attacked) watch() (end func()) {
	debug.FreeOSMemory()
	a.idle = mapped()
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			a.most = max(a.most, mapped())
			<-tick.C
		}
	})
	return func() { stop(); watching.Wait() }
}

// small checks the peak of memory. Under the race detector it only logs the peak, because the detector uses memory and
// slows the collector down. make test runs these tests without the detector too.
func (a *attacked) small(t *testing.T) {
	t.Helper()
	more := int64(a.most) - int64(a.idle)
	t.Logf("%d MiB more than when idle", more>>20)
	if !raced && more > attackBytesMax {
		t.Errorf("%d MiB more than when idle, want at most %d", more>>20, attackBytesMax>>20)
	}
}

// mapped returns the memory that Go has taken from the system and not returned. The process's resident memory consists
// of it.
func mapped() uint64 {
	sample := []runtimemetrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	runtimemetrics.Read(sample)
	return sample[0].Value.Uint64() - sample[1].Value.Uint64()
}

// probed requests health, readiness and metrics, and makes a victim's call, each over its own connection.
func (a *attacked) probed(t *testing.T) {
	t.Helper()
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if status, answer := get(t, a.adminBase+path); status != http.StatusOK {
			t.Errorf("%s: %d %.200s", path, status, answer)
		}
	}
	conn := dial(t, a.GRPCAddr().String())
	if now, err := healthv1.NewHealthClient(conn).Check(t.Context(), new(healthv1.HealthCheckRequest)); err != nil || now.Status != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health on the port for gRPC: %v, %v", now, err)
	}
	for _, door := range []door{doors[5], doors[7]} { // JSON; gRPC on its own port
		await.NoError(t, "a victim's call by "+door.name, func() error {
			ctx, done := context.WithTimeout(t.Context(), 10*time.Second)
			defer done()
			_, err := ask(ctx, door.open(t, a.harness), "victim", 10)
			return err
		})
	}
}

// judge waits until no memory is held, and compares the peak with its bound.
func (a *attacked) judge(t *testing.T) {
	t.Helper()
	a.small(t)
	await.True(t, "nothing is held", func() bool {
		return a.bounds.calls.Used() == 0 && a.bounds.probes.Used() == 0 && a.bounds.streams.Used() == 0
	})
}

// Bodies that begin and do not go on, however many and however long, hold no slot, no more memory
// than there may be, and no place that others need.
func TestSlowBodies(t *testing.T) {
	zeros := make([]byte, batchBodyBytesMax)
	long := frame(0, zeros[:messageBytesMax])
	for name, begin := range map[string]func(*testing.T, *attacked, int) io.Closer{
		"over HTTP/1.1": func(t *testing.T, a *attacked, _ int) io.Closer {
			conn, err := net.Dial("tcp", a.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", weirv1connect.RateLimitServiceLimitManyProcedure, batchBodyBytesMax)
				_, _ = conn.Write(zeros[:batchBodyBytesMax-1])
			}()
			return conn
		},
		"by gRPC": func(t *testing.T, a *attacked, i int) io.Closer {
			silent, keep := io.Pipe()
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, a.grpcBase+weirv1connect.RateLimitServiceLimitManyProcedure, silent)
			r.Header.Set("Content-Type", "application/grpc")
			r.Header.Set("TE", "trailers")
			go func() {
				if response, err := http2Client(t).Do(r); err == nil {
					response.Body.Close()
				}
			}()
			go func() {
				_, _ = keep.Write(long[:messageBytesMax-1])
			}()
			return keep
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := attack(t)
			end := a.watch()
			var begun []io.Closer
			for i := range 300 {
				begun = append(begun, begin(t, a, i))
			}
			await.True(t, "the caller's part of the memory is in use", func() bool { return a.bounds.calls.Used() > callsMemoryBytes/3 })
			a.probed(t)
			a.probed(t)
			for _, c := range begun {
				_ = c.Close()
			}
			end()
			a.judge(t)
		})
	}
}

// Callers that request much and do not read hold no slot, and no more memory than the bound.
func TestUnreadAnswers(t *testing.T) {
	a := attack(t)
	one, _ := proto.Marshal(askedOnTheWire)
	batch := bytes.Repeat(append([]byte{0x0a, byte(len(one))}, one...), dataplane.BatchMax)
	end := a.watch()
	for range 4 {
		conn := dial(t, a.GRPCAddr().String(), grpc.WithDefaultCallOptions(grpc.ForceCodec(asBytes{})))
		for range 150 {
			stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, weirv1connect.RateLimitServiceLimitManyProcedure)
			if err != nil {
				break // the connection was closed: its answers were in the way
			}
			if err := stream.SendMsg(batch); err != nil {
				break
			}
			_ = stream.CloseSend()
		}
	}
	a.probed(t)
	if err := a.gate.slots.TakeAll(t.Context()); err != nil {
		t.Errorf("slots are held: %v", err)
	}
	end()
	a.small(t)
}

// A caller that scrapes continuously does not block scrapes of other callers.
func TestScrapesOfOneCaller(t *testing.T) {
	h := start(t, scripted{})
	slow := &slowToCollect{begun: make(chan struct{}, scrapesMax), goOn: make(chan struct{})}
	h.registry.MustRegister(slow)
	scrape := func() int {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		client := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, h.adminBase+"/metrics", nil)
		response, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	var scraping sync.WaitGroup
	for range scrapesMax - 1 {
		scraping.Go(func() { scrape() })
		<-slow.begun
	}
	if status := scrape(); status != http.StatusServiceUnavailable {
		t.Errorf("one more scrape of the same caller: %d", status)
	}
	slow.over.Store(true)
	if status, answer := get(t, h.adminBase+"/metrics"); status != http.StatusOK {
		t.Errorf("another caller's scrape: %d %.100s", status, answer)
	}
	close(slow.goOn)
	scraping.Wait()
	if n := value(h.bounds.refused[bounded.BoundCaller]); n != 1 {
		t.Errorf("%v refusals are counted, want 1", n)
	}
}

// slowToCollect is a collector that takes until goOn is closed, or over is true.
type slowToCollect struct {
	begun, goOn chan struct{}
	over        atomic.Bool
}

func (s *slowToCollect) Describe(chan<- *prometheus.Desc) {}

func (s *slowToCollect) Collect(chan<- prometheus.Metric) {
	if !s.over.Load() {
		s.begun <- struct{}{}
		<-s.goOn
	}
}

// A profile of a thousand million seconds ends when profiles have to.
func TestProfilesEnd(t *testing.T) {
	var deadline time.Time
	handler := profiled(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { deadline, _ = r.Context().Deadline() }))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/debug/pprof/profile?seconds=1000000000", nil))
	if deadline.IsZero() || time.Until(deadline) > profileTimeMax {
		t.Errorf("a profile may go on until %v", deadline)
	}
}

// A node that stops does not wait for callers that send slowly or do not read.
func TestDrainDoesNotWaitForSlowCallers(t *testing.T) {
	h := start(t, scripted{}, func(c *Config) { c.DrainTimeout = 10 * time.Minute })
	for _, address := range []net.Addr{h.Addr(), h.AdminAddr()} {
		conn, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "POST "+weirv1connect.RateLimitServiceLimitProcedure+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	}
	silent, keep := io.Pipe()
	defer keep.Close()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, h.grpcBase+weirv1connect.RateLimitServiceLimitProcedure, silent)
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("TE", "trailers")
	go func() {
		if response, err := http2Client(t).Do(r); err == nil {
			response.Body.Close()
		}
	}()
	await.True(t, "both calls are being read", func() bool { return value(h.gate.metrics.inFlight) == 2 })
	if err := h.Drain(); err != nil { // waits five minutes for calls that hold it up
		t.Errorf("drain: %v", err)
	}
}

// More connections than the bound do not keep other callers out.
func TestConnectionsDoNotExcludeOthers(t *testing.T) {
	h := start(t, scripted{}, func(c *Config) { c.ConnectionsMax = 10 })
	for _, address := range []net.Addr{h.Addr(), h.GRPCAddr(), h.AdminAddr()} {
		for range adminConnectionsMax + 10 {
			conn, err := net.Dial("tcp", address.String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
	}
	for _, door := range doors {
		if _, err := ask(t.Context(), door.open(t, h), "victim", 10); err != nil {
			t.Errorf("%s: %v", door.name, err)
		}
	}
	if status, _ := get(t, h.adminBase+"/readyz"); status != 200 {
		t.Errorf("/readyz: %d", status)
	}
	if n := value(h.bounds.refused["connections"]); n < 500 {
		t.Errorf("%v connections were closed, want more than 500", n)
	}
}

// A page whose host name resolves to loopback can read nothing and decide nothing, on any port. Callers over gRPC can
// use any name.
func TestPagesOfOtherSites(t *testing.T) {
	h := start(t, scripted{}, withRoutes(scripted{}), func(c *Config) { c.AllowedHosts = []string{"limits.internal"} })
	for _, url := range []string{
		h.base + weirv1connect.RateLimitServiceLimitProcedure, h.base + routes.Paths["limit"], h.base + "/grpc.health.v1.Health/Check",
		h.adminBase + "/metrics", h.adminBase + "/debug/pprof/cmdline", h.adminBase + "/readyz",
	} {
		for host, want := range map[string]bool{"rebound.example:7001": false, "limits.internal": true, "localhost:1": true} {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(minimal))
			r.Host = host
			r.Header.Set("Content-Type", "application/json")
			if status, _, answer := do(t, r); (status == http.StatusForbidden) == want {
				t.Errorf("%s for %s: %d %.100s", url, host, status, answer)
			}
		}
	}
	for _, base := range []string{h.base, h.grpcBase} {
		conn := dial(t, strings.TrimPrefix(base, "http://"), grpc.WithAuthority("ratelimit_cluster"))
		if _, err := healthv1.NewHealthClient(conn).Check(t.Context(), new(healthv1.HealthCheckRequest)); err != nil {
			t.Errorf("%s as ratelimit_cluster: %v", base, err)
		}
	}
}

// Memory that calls held is given back to the system.
func TestMemoryIsGivenBack(t *testing.T) {
	a := attack(t)
	defer a.watch()()
	body := append([]byte(`{"requests":[`), bytes.Repeat([]byte(" "), batchBodyBytesMax-16)...)
	var sending sync.WaitGroup
	for range 6 {
		sending.Go(func() {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, a.base+weirv1connect.RateLimitServiceLimitManyProcedure, bytes.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			_, _, _ = do(t, r)
		})
	}
	sending.Wait()
	await.True(t, "the reloading loop gives it back", func() bool { return mapped() < a.idle+32<<20 })
}
