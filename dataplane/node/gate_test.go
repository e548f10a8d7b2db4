package node

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// Above MaxInFlight a call is shed immediately: unavailable, with Retry-After, without a decision. When a call ends,
// the next call can use its slot.
func TestShedding(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	h := start(t, scripted{allow: func(context.Context, dataplane.Request) dataplane.Decision {
		in <- struct{}{}
		<-out
		return dataplane.Decision{Allowed: true}
	}}, func(c *Config) { c.MaxInFlight = 2 })

	held := make(chan error)
	hold := func(d door) {
		go func() {
			_, err := d.open(t, h).Limit(t.Context(), connect.NewRequest(askedOnTheWire))
			held <- err
		}()
		<-in
	}
	hold(doors[0])
	hold(doors[5])

	for _, door := range doors {
		_, err := door.open(t, h).Limit(t.Context(), connect.NewRequest(askedOnTheWire))
		if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "more than 2 calls in flight") {
			t.Errorf("%s: third call: %v, want unavailable", door.name, err)
		}
		if problem := new(connect.Error); !errors.As(err, &problem) || retryAfter(t, problem) != time.Second {
			t.Errorf("%s: third call: %v, want RetryInfo of 1s", door.name, err)
		}
	}
	status, header, answer := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, minimal)
	if status != 503 || header.Get("Retry-After") != "1" || !strings.HasPrefix(answer, `{"code":"unavailable","message":"more than 2 calls in flight on this node"`) {
		t.Errorf("third call over HTTP: %d, Retry-After %q, %s", status, header.Get("Retry-After"), answer)
	}
	if got := testutil.ToFloat64(h.gate.metrics.inFlight); got != 2 {
		t.Errorf("weir_rpc_in_flight is %v, want 2", got)
	}
	if status, _ := get(t, h.adminBase+"/readyz"); status != 200 {
		t.Error("a busy node is a ready node")
	}

	out <- struct{}{}
	if err := <-held; err != nil {
		t.Error(err)
	}
	await.True(t, "the slot is free again", func() bool { return testutil.ToFloat64(h.gate.metrics.inFlight) == 1 })
	hold(doors[1])
	close(out)
	for range 2 {
		if err := <-held; err != nil {
			t.Error(err)
		}
	}
}

// A panic gives an internal error, is logged with its stack and counted, and does not affect other calls.
func TestPanic(t *testing.T) {
	h := start(t, scripted{
		allow: func(context.Context, dataplane.Request) dataplane.Decision { panic("secret of the process") },
	})
	for i, door := range doors {
		client := door.open(t, h)
		_, err := client.Limit(t.Context(), connect.NewRequest(askedOnTheWire))
		if connect.CodeOf(err) != connect.CodeInternal || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want internal without details", door.name, err)
		}
		if _, err := client.Peek(t.Context(), connect.NewRequest(&weirv1.PeekRequest{Workspace: "a", Namespace: "b", Identifier: "c", DurationMs: 1000})); err != nil {
			t.Errorf("%s: the call after the panic: %v", door.name, err)
		}
		if got := testutil.ToFloat64(h.gate.metrics.panics); got != float64(i+1) {
			t.Errorf("weir_rpc_panics_total is %v, want %d", got, i+1)
		}
	}
	if log := h.log.String(); !strings.Contains(log, "secret of the process") || !strings.Contains(log, "gate_test.go") {
		t.Errorf("log lacks the panic or its stack: %s", log)
	}
}

// A panic in the middle of an answer leaves nothing of it: no client takes half for the whole.
func TestPanicInTheMiddleOfAnAnswer(t *testing.T) {
	h := start(t, scripted{})
	h.gate.service.all = nil
	h.gate.next = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Half", "1")
		_, _ = io.WriteString(w, `{"allowed":`)
		_ = http.NewResponseController(w).Flush()
		panic("in the middle")
	})
	status, header, answer := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, minimal)
	if status != 500 || header.Get("X-Half") != "" || answer != `{"code":"internal","message":"internal error, see this node's log"}` {
		t.Errorf("%d %v %s", status, header, answer)
	}
	await.True(t, "counted as internal", func() bool { return h.count("Limit", "internal") == 1 })
}

// A body that is too long is refused by the bound's name, and is not read to its end.
func TestBodyTooLong(t *testing.T) {
	h := start(t, scripted{})
	spaces := strings.Repeat(" ", bodyBytesMax)
	for _, step := range []struct{ name, procedure, body, want string }{
		{"longer than the bound", weirv1connect.RateLimitServiceLimitProcedure, minimal + spaces, "body is longer than 16384 bytes"},
		{"by one byte", weirv1connect.RateLimitServicePeekProcedure, minimal + spaces[:bodyBytesMax-len(minimal)+1], "body is longer than 16384 bytes"},
		{"a batch", weirv1connect.RateLimitServiceLimitManyProcedure, strings.Repeat(" ", batchBodyBytesMax+1), "body is longer than 1048576 bytes"},
	} {
		status, _, answer := curl(t, h.base+step.procedure, step.body)
		if status != 400 || !strings.Contains(answer, step.want) {
			t.Errorf("%s: status %d %s", step.name, status, answer)
		}
	}
	if status, _, answer := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, minimal+spaces[:bodyBytesMax-len(minimal)]); status != 200 {
		t.Errorf("exactly the bound: status %d %s", status, answer)
	}

	endless := &endlessBody{}
	response, err := http1Client(t).Post(h.base+weirv1connect.RateLimitServiceLimitProcedure, "application/json", endless)
	if err == nil {
		defer response.Body.Close()
		if response.StatusCode != 400 {
			t.Errorf("an endless body: status %d", response.StatusCode)
		}
	}
	if taken := endless.read.Load(); taken > 64<<20 {
		t.Errorf("%d bytes of an endless body were taken", taken)
	}
}

// Headers are bounded too.
func TestHeaderTooLong(t *testing.T) {
	h := start(t, scripted{})
	if status, _, _ := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, minimal, "X-Long", strings.Repeat("x", 2*headerBytesMax)); status != 431 {
		t.Errorf("status %d, want 431", status)
	}
}

type endlessBody struct{ read atomic.Int64 }

func (b *endlessBody) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	if b.read.Add(int64(len(p))) > 128<<20 {
		return 0, io.EOF // the test has failed already; do not hang
	}
	return len(p), nil
}

// A small body that decompresses to a large one is stopped at the bound.
func TestCompressedBomb(t *testing.T) {
	h := start(t, scripted{})
	var bomb bytes.Buffer
	writer := gzip.NewWriter(&bomb)
	_, _ = writer.Write(bytes.Repeat([]byte(" "), 2<<20))
	_ = writer.Close()
	status, _, answer := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, bomb.String(), "Content-Encoding", "gzip")
	if status != 400 || !strings.Contains(answer, "body unpacks to more than 16384 bytes") {
		t.Errorf("status %d %s", status, answer)
	}
}

// A body that breaks off is the caller's fault, not the server's.
func TestBodyBreaksOff(t *testing.T) {
	h := start(t, scripted{})
	for name, wire := range map[string]string{
		"bad chunk": "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
		"too short": "Content-Length: 100\r\n\r\n{",
	} {
		conn, err := net.Dial("tcp", h.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		before := h.count("Limit", "invalid_argument") + h.count("Limit", "canceled")
		_, _ = io.WriteString(conn, "POST "+weirv1connect.RateLimitServiceLimitProcedure+" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+wire)
		_ = conn.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(conn)
		_ = conn.Close()
		if len(answer) > 0 && !strings.HasPrefix(string(answer), "HTTP/1.1 4") {
			t.Errorf("%s: %.40q", name, answer)
		}
		await.True(t, name+" is counted as the caller's", func() bool {
			return h.count("Limit", "invalid_argument")+h.count("Limit", "canceled") == before+1
		})
	}
}

// A body that dawdles is cut off in time, and its slot goes to the next call.
func TestBodyDawdles(t *testing.T) {
	h := prepare(t, scripted{}, func(c *Config) { c.MaxInFlight = 1 })
	h.calls.server.ReadTimeout = 100 * time.Millisecond
	h.serve(t)
	for _, client := range []*http.Client{http1Client(t), http2Client(t)} {
		var response *http.Response
		var answer []byte
		await.NoError(t, "the headers arrive in time", func() error { // a busy machine may take longer for them
			silent, neverWritten := io.Pipe()
			defer neverWritten.Close()
			r, err := client.Post(h.base+weirv1connect.RateLimitServiceLimitProcedure, "application/json", silent)
			if err != nil {
				return err
			}
			response = r
			answer, _ = io.ReadAll(r.Body)
			return r.Body.Close()
		})
		if response.StatusCode != 504 || !strings.Contains(string(answer), "body did not arrive in time") {
			t.Errorf("HTTP/%d: status %d %s", response.ProtoMajor, response.StatusCode, answer)
		}
		await.True(t, "the slot is free again", func() bool {
			status, _, _ := curl(t, h.base+weirv1connect.RateLimitServiceLimitProcedure, minimal)
			return status == 200
		})
	}
}

// A request over HTTP/1.1 for a stream is refused. The server then reads the rest of its body, no longer than it reads
// that of another call.
func TestARefusedStreamsBodyDawdles(t *testing.T) {
	h := prepare(t, scripted{})
	h.calls.server.ReadTimeout = 100 * time.Millisecond
	h.serve(t)
	for _, path := range []string{streamProcedure, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"} {
		for _, fields := range []string{"Content-Length: 10", "Transfer-Encoding: chunked"} {
			for _, kind := range []string{"application/connect+json", "application/grpc-web", "text/plain"} {
				var answer []byte
				await.NoError(t, "an answer, and the connection's end", func() (err error) {
					conn, err := net.Dial("tcp", h.Addr().String())
					if err != nil {
						return err
					}
					defer conn.Close()
					_ = conn.SetDeadline(time.Now().Add(time.Minute))
					_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\n%s\r\n\r\n", path, kind, fields)
					answer, err = io.ReadAll(conn)
					if err == nil && len(answer) == 0 {
						return errors.New("the headers took too long, as they may on a busy machine")
					}
					return err
				})
				if !strings.HasPrefix(string(answer), "HTTP/1.1 505 ") {
					t.Errorf("%s, %s, %s: %.60q", path, kind, fields, answer)
				}
			}
		}
	}
}

// Every call is counted once, by its method and by the code the caller was given,
// whichever layer gave it; all of them are there at 0 before the first call.
func TestCallsAreCounted(t *testing.T) {
	h := start(t, scripted{
		allow: func(ctx context.Context, r dataplane.Request) dataplane.Decision {
			if r.Identifier == "panic" {
				panic("as told")
			}
			return dataplane.Decision{}
		},
	})
	methods := 20 + len(routes.Paths)
	if got := testutil.CollectAndCount(h.registry, "weir_rpc_requests_total"); got != methods*len(codesPublished) {
		t.Errorf("%d series at the start, want %d", got, methods*len(codesPublished))
	}
	if got := testutil.CollectAndCount(h.registry, "weir_rpc_seconds"); got != methods-1 {
		t.Errorf("%d histograms at the start, want %d", got, methods-1)
	}
	for _, door := range doors {
		client := door.open(t, h)
		ok, invalid, internal := h.count("Limit", "ok"), h.count("Limit", "invalid_argument"), h.count("Limit", "internal")
		_, _ = client.Limit(t.Context(), connect.NewRequest(askedOnTheWire))
		_, _ = client.Limit(t.Context(), connect.NewRequest(&weirv1.LimitRequest{}))
		_, _ = client.Limit(t.Context(), connect.NewRequest(&weirv1.LimitRequest{Workspace: "a", Namespace: "b", Identifier: "panic", DurationMs: 1000}))
		await.True(t, door.name+": one ok, one invalid_argument, one internal more", func() bool {
			return h.count("Limit", "ok") == ok+1 && h.count("Limit", "invalid_argument") == invalid+1 && h.count("Limit", "internal") == internal+1
		})
	}
	url := h.base + weirv1connect.RateLimitServicePeekProcedure
	curl(t, url, `{"limt":1}`) // refused by the codec
	curl(t, url, minimal, "Content-Type", "text/plain")
	curl(t, url, minimal, "Content-Encoding", "br")
	curl(t, url, minimal, "Connect-Timeout-Ms", "soon")
	curl(t, url, minimal, "Connect-Timeout-Ms", "0")
	await.True(t, "peeks that never reached the service are counted", func() bool {
		return h.count("Peek", "invalid_argument") == 2 && h.count("Peek", "unimplemented") == 2 && h.count("Peek", "deadline_exceeded") == 1 && h.count("Peek", "ok") == 0
	})
}

func value(c prometheus.Collector) float64 { return testutil.ToFloat64(c) }

func (h *harness) streamed() float64 { return testutil.ToFloat64(h.gate.metrics.streamed) }

func (h *harness) count(method, code string) float64 {
	path := "/" + weirv1connect.RateLimitServiceName + "/" + method
	return testutil.ToFloat64(h.gate.metrics.calls[path].byCode[code])
}
