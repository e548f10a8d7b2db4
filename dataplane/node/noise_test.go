package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// For any bytes on any port, in any pieces: the node continues to serve others, nothing panics, and no invalid request
// reaches the limiter. After the callers have gone, everything that served them is released, including memory.
func TestSoakNoiseAtEveryPort(t *testing.T) {
	length := time.Second
	if os.Getenv("WEIR_LONG") != "" || os.Getenv("WEIR_SOAK") != "" {
		length = 10 * time.Second
	}
	check := func(r dataplane.Request) dataplane.Decision {
		if err := r.Validate(); err != nil {
			panic(err)
		}
		return dataplane.Decision{Allowed: true}
	}
	limiter := scripted{
		allow: func(_ context.Context, r dataplane.Request) dataplane.Decision { return check(r) },
		peek:  func(_ context.Context, r dataplane.Request) dataplane.Decision { return check(r) },
		many: func(_ context.Context, requests []dataplane.Request) dataplane.Batch {
			batch := dataplane.Batch{Allowed: true}
			for _, r := range requests {
				batch.Decisions = append(batch.Decisions, check(r))
			}
			return batch
		},
	}
	rules, _ := writeRules(t, envoyRules+"  - {key: soft, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	h := start(t, limiter, withRoutes(limiter), func(c *Config) {
		c.RLS = &rls.Service{Limiter: limiter, Rules: rules, Workspace: "envoy"}
		c.Routes.Overrides = new(routes.Memory)
	})
	clients := make([]weirv1connect.RateLimitServiceClient, len(doors))
	ask := func(i int) error {
		ctx, done := context.WithTimeout(t.Context(), 30*time.Second)
		defer done()
		_, err := clients[i].Limit(ctx, connect.NewRequest(askedOnTheWire))
		return err
	}
	for i, door := range doors {
		clients[i] = door.open(t, h)
		if err := ask(i); err != nil {
			t.Fatalf("%s, in silence: %v", door.name, err)
		}
	}
	known, heap := goleak.IgnoreCurrent(), heapBytes()

	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var noise sync.WaitGroup
	for i, address := range []net.Addr{h.Addr(), h.GRPCAddr(), h.AdminAddr()} {
		for j := range 4 {
			random := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			if j == 0 && address != h.AdminAddr() {
				noise.Go(func() { babble(ctx, t, address, rand.New(rand.NewPCG(uint64(i), 99))) })
			}
			noise.Go(func() {
				for ctx.Err() == nil {
					shout(ctx, address, utter(random), random)
				}
			})
		}
	}
	asked := 0
	for ; ctx.Err() == nil; asked++ {
		if err := ask(asked % len(doors)); err != nil {
			t.Errorf("%s, amid the noise: %v", doors[asked%len(doors)].name, err)
		}
	}
	noise.Wait()
	if asked == 0 {
		t.Error("nobody asked amid the noise")
	}
	if n := value(h.gate.metrics.panics); n != 0 {
		t.Errorf("%v panics: %s", n, h.log)
	}
	await.True(t, "no goroutine is left of it", func() bool { return goleak.Find(known) == nil })
	if grown := heapBytes() - heap - 4*len(h.log.String()); grown > heapGrownMax {
		t.Errorf("the heap has grown by %d bytes (at most %d)", grown, heapGrownMax)
	}
	for i, door := range doors {
		if err := ask(i); err != nil {
			t.Errorf("%s, in silence again: %v", door.name, err)
		}
	}
	if status, _, answer := curl(t, h.base+routes.Paths["limit"], v2Minimal, "Authorization", "Bearer any"); status != http.StatusOK {
		t.Errorf("the routes, in silence again: %d %s", status, answer)
	}
	for _, path := range []string{"/metrics", "/readyz"} {
		if status, answer := get(t, h.adminBase+path); status != http.StatusOK {
			t.Errorf("%s, in silence again: %d %s", path, status, answer)
		}
	}
}

// heapGrownMax is far above the memory that the process keeps for reuse, and far below the bytes that a second of noise
// sends.
const heapGrownMax = 32 << 20

// heapBytes returns the heap in use. Pools are empty after two collections.
func heapBytes() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// shout sends bytes in a few pieces, and reads responses for a moment.
func shout(ctx context.Context, address net.Addr, bytes []byte, random *rand.Rand) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address.String())
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(50 * time.Millisecond))
	for len(bytes) > 0 {
		n := min(len(bytes), 1+random.IntN(64<<10))
		if _, err := conn.Write(bytes[:n]); err != nil {
			return
		}
		bytes = bytes[n:]
	}
	_, _ = io.Copy(io.Discard, conn)
}

// utter makes bytes that resemble calls to different degrees: random bytes; an HTTP/1.1 call with a random body or
// header; the beginning of HTTP/2 and random frames; a body far above its bound.
func utter(random *rand.Rand) []byte {
	procedures := []string{
		weirv1connect.RateLimitServiceLimitProcedure, weirv1connect.RateLimitServiceLimitManyProcedure, streamProcedure,
		rls.Procedure, reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName, "/metrics", "/readyz", "/",
		routes.Paths["limit"], routes.Paths["multiLimit"], routes.Paths["setOverride"], routes.Paths["listOverrides"],
	}
	types := []string{"application/json", "application/grpc", "application/grpc-web+proto", "application/proto", "application/connect+proto"}
	var out bytes.Buffer
	junk := func(n int) []byte {
		b := make([]byte, random.IntN(n))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	headOf := func(procedure, contentType string, length int) {
		out.WriteString("POST " + procedure + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + contentType + "\r\nContent-Length: ")
		out.WriteString(strconv.Itoa(length) + "\r\n\r\n")
	}
	head := func(length int) {
		headOf(procedures[random.IntN(len(procedures))], types[random.IntN(len(types))], length)
	}
	switch random.IntN(5) {
	case 0:
		out.Write(junk(4096))
	case 1:
		body := junk(2048)
		head(len(body) + random.IntN(3) - 1)
		out.Write(body)
	case 2:
		call := [][2]string{
			{weirv1connect.RateLimitServiceLimitProcedure, plainBody},
			{routes.Paths["limit"], v2Minimal},
			{routes.Paths["setOverride"], v2Minimal},
			{routes.Paths["multiLimit"], "[" + v2Minimal + "," + v2Minimal + "]"},
		}[random.IntN(4)]
		body := []byte(call[1])
		body[random.IntN(len(body))] = byte(random.Uint32())
		headOf(call[0], "application/json", len(body))
		out.Write(body)
	case 3:
		out.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		for range random.IntN(30) {
			payload := junk(300)
			frame := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(random.IntN(12)))
			frame = append(frame, byte(random.Uint32()))
			frame = binary.BigEndian.AppendUint32(frame, uint32(random.IntN(5)))
			out.Write(append(frame, payload...))
		}
	case 4:
		head(8 << 20)
		out.WriteString(strings.Repeat("[", 8<<20))
	}
	return out.Bytes()
}

// A message above its bound is rejected on the port for gRPC as well, and the connection continues.
func TestOversizedMessages(t *testing.T) {
	h := start(t, scripted{})
	for _, door := range doors {
		client := door.open(t, h)
		long := numbered(1)
		long.Identifier = strings.Repeat("x", batchBodyBytesMax+1)
		_, err := client.Limit(t.Context(), connect.NewRequest(long))
		if code := connect.CodeOf(err); code != connect.CodeResourceExhausted && code != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", door.name, errors.Unwrap(err))
		}
		if _, err := client.Limit(t.Context(), connect.NewRequest(askedOnTheWire)); err != nil {
			t.Errorf("%s, the call after it: %v", door.name, err)
		}
	}
}
