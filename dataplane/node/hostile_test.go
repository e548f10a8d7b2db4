package node

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/shared/bounded"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
	"github.com/weirhq/weir/shared/window"
)

// hostile is a body that is as long as it may be, and as costly to read as such a body can be.
type hostile struct {
	path, kind string
	body       []byte
	plain      bool // it is sent uncompressed, so that the cost of its transport is visible
}

// throwers is how many callers throw such bodies while a probe is timed.
const throwers = 16

// filled repeats a text between before and after until the whole is about n bytes long.
func filled(n int, before, repeated, after string) string {
	return before + strings.Repeat(repeated, (n-len(before)-len(after))/len(repeated)) + after
}

func hostileBodies() map[string]hostile {
	const many, most, wired = weirv1connect.RateLimitServiceLimitManyProcedure, batchBodyBytesMax, messageBytesMax
	longest, _ := protojson.Marshal(longestBatch(dataplane.BatchMax))
	gzip := func(text string) []byte { return zipped(text, "", "", 0) }
	json := func(text string) hostile { return hostile{many, "application/json", gzip(text), false} }
	return map[string]hostile{
		"white space":          json(filled(most, "", " ", minimal)),
		"white space, plain":   {many, "application/json", []byte(filled(most, "", " ", minimal)), true},
		"white space inside":   json(filled(most, `{"requests":[`, "\n", `]}`)),
		"nested arrays":        json(filled(most, `{"requests":[`, "[", "")),
		"nested objects":       json(filled(most, "", `{"requests":[`, "")),
		"a long string":        json(filled(most, `{"requests":[{"workspace":"`, "x", `"}]}`)),
		"a string of escapes":  json(filled(most, `{"requests":[{"workspace":"`, `\u0061`, `"}]}`)),
		"a string unfinished":  json(filled(most, `{"requests":[{"workspace":"`, `\"`, ``)),
		"a long number":        json(filled(most, `{"requests":[{"limit":`, "9", `}]}`)),
		"empty items by JSON":  json(filled(most, `{"requests":[{}`, ",{}", "]}")),
		"nulls":                json(filled(most, `{"requests":[null`, ",null", "]}")),
		"the longest requests": json(string(longest)),

		"empty items by protobuf":   {many, "application/proto", gzip(filled(wired, "", "\x0a\x00", "")), false},
		"fields that are not known": {many, "application/proto", gzip(filled(wired, "", "\xf8\x01\x01", "")), false},
		"unknown groups":            {many, "application/proto", gzip(filled(wired, "", "\x7b", "")), false},
		"unknown fields of gRPC":    {many, "application/grpc", frame(1, gzip(filled(wired, "", "\xf8\x01\x01", ""))), false},
		"descriptors":               {rls.Procedure, "application/grpc", frame(1, gzip(filled(wired, "", "\x12\x00", ""))), false},
		"entries":                   {rls.Procedure, "application/grpc", frame(1, gzip(filled(wired, "\x12\xa0\x9c\x01", "\x0a\x00", ""))), false},
		"fields of descriptors":     {rls.Procedure, "application/grpc", frame(1, gzip(filled(wired, "", "\xf8\x01\x01", ""))), false},

		"items of a route":     {routes.Paths["multiLimit"], "application/json", gzip(filled(512<<10, "[{}", ",{}", "]")), false},
		"nesting of a route":   {routes.Paths["multiLimit"], "application/json", gzip(filled(512<<10, "[", "[", "]")), false},
		"white space, a route": {routes.Paths["multiLimit"], "application/json", gzip(filled(512<<10, "", " ", "[]")), false},
		"health":               {"/grpc.health.v1.Health/Check", "application/json", gzip(filled(1<<10, "", " ", "{}")), false},
	}
}

// ports returns the ports that take a body of this kind.
func (h hostile) ports(a *attacked) map[string]string {
	ports := map[string]string{"listen": a.base}
	if h.kind == "application/grpc" {
		ports["grpc-listen"] = a.grpcBase
	}
	if h.path == "/grpc.health.v1.Health/Check" {
		ports["admin-listen"] = a.adminBase
	}
	if h.path == rls.Procedure {
		delete(ports, "listen")
	}
	return ports
}

func (h hostile) client(t testing.TB) *http.Client {
	if h.kind == "application/grpc" {
		return http2Client(t)
	}
	return http1Client(t)
}

func (h hostile) throw(ctx context.Context, client *http.Client, base string) error {
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, base+h.path, bytes.NewReader(h.body))
	r.Header.Set("Content-Type", h.kind)
	switch {
	case h.kind == "application/grpc":
		r.Header.Set("TE", "trailers")
		r.Header.Set("Grpc-Encoding", "gzip")
	case !h.plain:
		r.Header.Set("Content-Encoding", "gzip")
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	var answer bytes.Buffer
	_, err = answer.ReadFrom(response.Body)
	_ = response.Body.Close()
	return err
}

// Bodies as long as they may be, costly to decode on each wire, take little memory; meanwhile probes and
// others' calls are answered.
func TestHostileBodies(t *testing.T) {
	for name, body := range hostileBodies() {
		t.Run(name, func(t *testing.T) {
			a := attack(t)
			end := a.watch()
			var throwing sync.WaitGroup
			for _, base := range body.ports(a) {
				for range throwers / 2 {
					client := body.client(t)
					throwing.Go(func() {
						for range 2 {
							_ = body.throw(t.Context(), client, base) // it may be shed
						}
					})
				}
			}
			a.probed(t)
			throwing.Wait()
			end()
			a.judge(t)
		})
	}
}

// A batch that waits for its decision no longer holds a place, so any number of waiting batches do not block the next
// batch.
func TestWaitingBatchesKeepNoneOut(t *testing.T) {
	batch, multi := longestBatch(200), "["+v2Minimal+strings.Repeat(" ", bounded.LightBytes)+"]"
	calls := map[string]func(*testing.T, *harness) error{
		"multiLimit": func(t *testing.T, h *harness) error {
			status, _, answer := curl(t, h.base+routes.Paths["multiLimit"], multi)
			if status != http.StatusOK {
				return fmt.Errorf("%d %s", status, answer)
			}
			return nil
		},
	}
	for _, door := range []door{doors[0], doors[3], doors[5], doors[7]} {
		calls[door.name] = func(t *testing.T, h *harness) error {
			_, err := door.open(t, h).LimitMany(t.Context(), connect.NewRequest(batch))
			return err
		}
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			waiting := 2*runtime.GOMAXPROCS(0) + 1
			limiter := untilAllWait(waiting)
			h := start(t, limiter, withRoutes(limiter))
			var asking sync.WaitGroup
			for range waiting {
				asking.Go(func() {
					if err := call(t, h); err != nil {
						t.Error(err)
					}
				})
			}
			asking.Wait()
		})
	}
}

// untilAllWait decides batches when so many wait.
func untilAllWait(batches int) scripted {
	all := make(chan struct{})
	var waiting atomic.Int64
	return scripted{many: func(ctx context.Context, r []dataplane.Request) dataplane.Batch {
		if int(waiting.Add(1)) == batches {
			close(all)
		}
		select {
		case <-all:
		case <-ctx.Done():
		}
		return dataplane.Batch{Allowed: true, Decisions: make([]dataplane.Decision, len(r))}
	}}
}

// A thousand requests with the longest names and the largest numbers fit into the bound, as text that
// escapes nothing and has a line for each field.
func TestTheLongestBatchFits(t *testing.T) {
	h := start(t, scripted{})
	body, err := protojson.MarshalOptions{UseProtoNames: true, Multiline: true, Indent: "  "}.Marshal(longestBatch(dataplane.BatchMax))
	if err != nil {
		t.Fatal(err)
	}
	if status, _, answer := curl(t, h.base+weirv1connect.RateLimitServiceLimitManyProcedure, string(body)); status != http.StatusOK {
		t.Errorf("%d bytes: %d %.200s", len(body), status, answer)
	}
}

// longestBatch is n requests of the longest names and the largest numbers.
func longestBatch(n int) *weirv1.LimitManyRequest {
	batch := new(weirv1.LimitManyRequest)
	for range n {
		batch.Requests = append(batch.Requests, &weirv1.LimitRequest{
			Workspace: strings.Repeat("w", window.WorkspaceBytesMax), Namespace: strings.Repeat("n", window.NamespaceBytesMax),
			Identifier: strings.Repeat("i", window.IdentifierBytesMax), Limit: window.LimitMax, DurationMs: durationMsMax, Cost: window.LimitMax,
		})
	}
	return batch
}

// The answer to a body that is wrong quotes little of it.
func TestErrorsQuoteLittle(t *testing.T) {
	h := start(t, scripted{})
	for name, body := range map[string]string{
		"a number": `{"requests":[{"limit":` + strings.Repeat("9", 1<<19) + `}]}`,
		"a field":  `{"` + strings.Repeat("ü", 1<<18) + `":1}`,
	} {
		status, _, answer := curl(t, h.base+weirv1connect.RateLimitServiceLimitManyProcedure, body)
		if status != http.StatusBadRequest || len(answer) > 2*plainBytesMax || !strings.Contains(answer, "…") {
			t.Errorf("%s: %d, %d bytes: %.200s", name, status, len(answer), answer)
		}
	}
}

// BenchmarkHostileBodies measures the most costly valid bodies, with the client in this process. An operation is one
// body. It also measures the longest waits of /healthz and of a decision while sixteen callers send such bodies.
//
//	go test -run '^$' -bench HostileBodies -benchtime 50x ./dataplane/node
func BenchmarkHostileBodies(b *testing.B) {
	for name, body := range hostileBodies() {
		a := attack(b)
		for port, base := range body.ports(a) {
			b.Run(fmt.Sprintf("%s/%s", name, port), func(b *testing.B) {
				client := body.client(b)
				for b.Loop() {
					if err := body.throw(b.Context(), client, base); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
				b.StopTimer()
				end := body.throwers(b.Context(), func() *http.Client { return body.client(b) }, base)
				health, decision := a.waits(b, 100)
				b.ReportMetric(end(), "thrown/s")
				b.ReportMetric(float64(health.Milliseconds()), "healthz-max-ms")
				b.ReportMetric(float64(decision.Milliseconds()), "decision-max-ms")
			})
		}
	}
}

// throwers sends bodies until the returned function is called, which returns how many it sent per second.
func (h hostile) throwers(ctx context.Context, client func() *http.Client, base string) (end func() float64) {
	ctx, stop := context.WithCancel(ctx)
	var throwing sync.WaitGroup
	var mu sync.Mutex
	thrown, began := 0, time.Now()
	for range throwers {
		mine := client()
		throwing.Go(func() {
			for ctx.Err() == nil {
				_ = h.throw(ctx, mine, base)
				mu.Lock()
				thrown++
				mu.Unlock()
			}
		})
	}
	return func() float64 {
		stop()
		throwing.Wait()
		return float64(thrown) / time.Since(began).Seconds()
	}
}

// waits makes n requests, and returns the longest time of a probe and of a decision.
func (a *attacked) waits(b *testing.B, n int) (health, decision time.Duration) {
	client := http1Client(b)
	for range n {
		began := time.Now()
		response, err := client.Get(a.adminBase + "/healthz")
		if err != nil {
			b.Fatal(err)
		}
		_ = response.Body.Close()
		health = max(health, time.Since(began))
		began = time.Now()
		response, err = client.Post(a.base+weirv1connect.RateLimitServiceLimitProcedure, "application/json", strings.NewReader(minimal))
		if err != nil {
			b.Fatal(err)
		}
		_ = response.Body.Close()
		decision = max(decision, time.Since(began))
	}
	return health, decision
}
