package api

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
)

// served returns the API behind its own server and listener, as weir-control has it.
func served(t *testing.T, c Config) (url string) {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Cleanup == nil {
		c.Cleanup = &schedule{}
	}
	if c.Ready == nil {
		c.Ready = func(context.Context) error { return nil }
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(NewHandler(c), c.Log)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(Listen(listener, c.Refused)) })
	t.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return "http://" + listener.Addr().String()
}

func zipped(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(make([]byte, n))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// "Refused is called for every call that runs into a bound": a body, by itself and unpacked, and a host.
func TestRefusedCallsAreCounted(t *testing.T) {
	metrics := controlplane.NewMetrics()
	url := served(t, Config{Loopback: true, Refused: metrics.Refused})
	sendTo(t, url+"/", bytes.Repeat([]byte{' '}, requestBytesMax+1), nil)
	header := http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}
	sendTo(t, url+procedures(t)[0], zipped(t, 10<<20), header)
	sendTo(t, url+procedures(t)[0], zipped(t, 10<<20), header)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "rebound.example"
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	want := map[bounded.Bound]float64{bounded.BoundBody: 1, bounded.BoundUnpacked: 2, bounded.BoundHost: 1}
	for _, b := range bounded.Bounds {
		if got := refused(t, metrics, b); got != want[b] {
			t.Errorf("weir_control_refused_total{bound=%q} is %v, want %v", b, got, want[b])
		}
	}
}

// A connection that is closed in favor of another connection is counted.
func TestClosedConnectionsAreCounted(t *testing.T) {
	metrics := controlplane.NewMetrics()
	bound(metrics.Refused, bounded.BoundConnections)()
	if got := refused(t, metrics, bounded.BoundConnections); got != 1 {
		t.Errorf("%v are counted", got)
	}
	if bound(nil, bounded.BoundConnections) != nil {
		t.Error("nothing is called for connections, and is not nil")
	}
}

func refused(t *testing.T, metrics *controlplane.Metrics, b bounded.Bound) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "weir_control_refused_total" && m.GetLabel()[0].GetValue() == string(b) {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("there is no weir_control_refused_total{bound=%q}", b)
	return 0
}

// Every route has a bound on a body, as it comes and as it unpacks, with and without tokens.
func TestEveryRouteBoundsItsBody(t *testing.T) {
	for _, tokens := range []bool{false, true} {
		url := served(t, Config{RequireTokens: tokens, Tokens: &ring{}, Console: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					http.Error(w, err.Error(), http.StatusTeapot)
				}
			})
		}})
		long, bomb := bytes.Repeat([]byte{' '}, requestBytesMax+1), zipped(t, 10<<20)
		paths := []string{"/", "/healthz", "/readyz", "/metrics", "/console/sign-in", "/console/events", "/grpc.health.v1.Health/Check"}
		for _, path := range append(paths, procedures(t)...) {
			if answer, status := sendTo(t, url+path, long, nil); status < 400 || status == http.StatusTeapot {
				t.Errorf("%s takes %d bytes: %d %s", path, len(long), status, answer)
			}
			for _, kind := range []string{"application/proto", "application/json", "application/grpc+proto"} {
				header := http.Header{"Content-Type": {kind}, "Content-Encoding": {"gzip"}}
				if answer, status := sendTo(t, url+path, bomb, header); status == http.StatusTeapot || status < 400 && kind != "application/grpc+proto" {
					t.Errorf("%s unpacks %s without a bound: %d %.80s", path, kind, status, answer)
				}
			}
		}
	}
}

// A request for a stream must not have a body. The server would read the rest of the body before it responds, and a
// stream has no deadline for that.
func TestAStreamHasNoBody(t *testing.T) {
	metrics := controlplane.NewMetrics()
	begun := 0
	url := served(t, Config{Refused: metrics.Refused, Console: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begun++
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // as a stream's handler does
			_ = http.NewResponseController(w).Flush()
		})
	}})
	for i, fields := range []string{"Content-Length: 10", "Transfer-Encoding: chunked"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		_, _ = fmt.Fprintf(conn, "GET /console/events?topic=fleet HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", fields)
		line, err := bufio.NewReader(conn).ReadString('\n')
		_ = conn.Close()
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 413 ") {
			t.Errorf("%s: %q, %v", fields, line, err)
		}
		if got := refused(t, metrics, bounded.BoundBody); got != float64(i+1) || begun != 0 {
			t.Errorf("%s: %v refused, %d begun", fields, got, begun)
		}
	}
}

// slowMetrics are metrics that take until release is closed to gather.
type slowMetrics struct {
	begun   *atomic.Int64
	release chan struct{}
}

func (slowMetrics) Describe(chan<- *prometheus.Desc) {}

func (m slowMetrics) Collect(chan<- prometheus.Metric) {
	m.begun.Add(1)
	<-m.release
}

// However often one address scrapes, a scrape of another address gets a response.
func TestScrapesOfOneAddressLeaveRoomForAnothers(t *testing.T) {
	m, registry := slowMetrics{new(atomic.Int64), make(chan struct{})}, prometheus.NewRegistry()
	registry.MustRegister(m)
	metrics := controlplane.NewMetrics()
	url := served(t, Config{Metrics: registry, Refused: metrics.Refused})
	release := sync.OnceFunc(func() { close(m.release) })
	t.Cleanup(release)
	var scrapes sync.WaitGroup
	var answered atomic.Int64
	scrape := func(from net.IP) {
		transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}).DialContext}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
		if err != nil {
			t.Error(err)
			return
		}
		response, err := transport.RoundTrip(r)
		if err != nil {
			t.Error(err)
			return
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			answered.Add(1)
		}
	}
	for range metricsMax {
		scrapes.Go(func() { scrape(net.IPv4(127, 0, 0, 2)) })
	}
	await.True(t, "one address has its part, and no more", func() bool {
		return m.begun.Load() == metricsMax-1 && refused(t, metrics, bounded.BoundCaller) == 1
	})
	scrapes.Go(func() { scrape(net.IPv4(127, 0, 0, 3)) })
	await.True(t, "another one does, too", func() bool { return m.begun.Load() == metricsMax })
	release()
	scrapes.Wait()
	if n := answered.Load(); n != metricsMax {
		t.Errorf("%d scrapes were answered, want %d", n, metricsMax)
	}
}

func sendTo(t *testing.T, url string, body []byte, header http.Header) (answer string, status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if r.Header = header; header == nil {
		r.Header = http.Header{"Content-Type": {"application/json"}}
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(r)
	if err != nil { // it was refused, and the connection closed, before all of it was sent
		return err.Error(), http.StatusRequestEntityTooLarge
	}
	defer func() { _ = response.Body.Close() }()
	b, _ := io.ReadAll(response.Body)
	return string(b), response.StatusCode
}

// Calls that hang take all slots that one caller can have, and further calls are rejected. Probes still get responses.
func TestCallsThatHangKeepNoProbeOut(t *testing.T) {
	release := make(chan struct{})
	var entered sync.WaitGroup
	entered.Add(callsMax - callsMax/4)
	url := served(t, Config{Fleet: func(context.Context) (fleet fleet.Fleet, err error) {
		entered.Done()
		<-release
		return fleet, nil
	}})
	var calls sync.WaitGroup
	for range callsMax - callsMax/4 {
		calls.Go(func() { sendTo(t, url+controlv1connect.ControlServiceFleetProcedure, []byte("{}"), nil) })
	}
	entered.Wait()
	answer, status := sendTo(t, url+controlv1connect.ControlServiceFleetProcedure, []byte("{}"), nil)
	if status != http.StatusServiceUnavailable || !strings.Contains(answer, `"code":"unavailable"`) || !strings.Contains(answer, "calls in flight by one caller") {
		t.Errorf("one more: %d %s", status, answer)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if status, body := get(t, url+path, nil); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	close(release)
	calls.Wait()
}

// A connection above the bound replaces the connection that has been idle longest, so that a new connection is served
// however many connections one address holds.
func TestConnectionsAreBounded(t *testing.T) {
	server := NewServer(nil, slog.New(slog.DiscardHandler))
	if server.ReadHeaderTimeout == 0 || server.ReadTimeout == 0 || server.WriteTimeout == 0 || server.IdleTimeout == 0 || server.ConnContext == nil {
		t.Errorf("a connection may be held for ever: %+v", server)
	}
	url := served(t, Config{})
	held := make([]net.Conn, 0, connectionsMax+10)
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	for range connectionsMax + 10 {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	await.NoError(t, "a probe is answered", func() error {
		if status, body := get(t, url+"/healthz", nil); status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
}

// On loopback, requests for an unknown host are rejected, with and without tokens, because pages of other sites must
// not reach endpoints that require no token.
func TestUnknownHostsOnLoopback(t *testing.T) {
	for name, tc := range map[string]struct {
		config Config
		want   int
	}{
		"loopback, tokens":          {Config{RequireTokens: true, Loopback: true}, http.StatusForbidden},
		"loopback, no tokens":       {Config{Loopback: true}, http.StatusForbidden},
		"elsewhere, tokens":         {Config{RequireTokens: true}, http.StatusOK},
		"loopback, an allowed name": {Config{RequireTokens: true, Loopback: true, AllowedHosts: []string{"rebound.example"}}, http.StatusOK},
	} {
		tc.config.Metrics, tc.config.Log, tc.config.Cleanup = prometheus.NewRegistry(), slog.New(slog.DiscardHandler), &schedule{}
		tc.config.Ready = func(context.Context) error { return nil }
		handler := NewHandler(tc.config)
		for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			r.Host = "rebound.example:7080"
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != tc.want {
				t.Errorf("%s: %s: %d %s", name, path, w.Code, w.Body)
			}
		}
	}
}
