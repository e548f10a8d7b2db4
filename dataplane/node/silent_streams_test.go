package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/rls"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// silent is a flood of calls over HTTP/2 whose callers take no byte of an answer's body.
type silent struct {
	address    func(*attacked) net.Addr
	path, kind string
	body       []byte
	begun      func(*attacked) bool // the answers, or as many as there may be, wait for their callers
}

// silentConnections come from four addresses.
const silentConnections = 80

func silentFloods() map[string]silent {
	one, _ := proto.Marshal(askedOnTheWire)
	batch := bytes.Repeat(append([]byte{0x0a, byte(len(one))}, one...), 150)
	envoy, _ := proto.Marshal(&rlsv3.RateLimitRequest{Domain: "edge", Descriptors: slices.Repeat([]*ratelimitv3.RateLimitDescriptor{{
		Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: "u"}},
	}}, 20)})
	answered := func(path string) func(*attacked) bool {
		return func(a *attacked) bool {
			all := 0.0
			for _, n := range a.gate.metrics.calls[path].byCode {
				all += testutil.ToFloat64(n)
			}
			return all >= silentConnections*streamsMax/2
		}
	}
	limit, many := weirv1connect.RateLimitServiceLimitProcedure, weirv1connect.RateLimitServiceLimitManyProcedure
	return map[string]silent{
		"calls": {func(a *attacked) net.Addr { return a.Addr() }, limit, "application/json", nil,
			func(a *attacked) bool { return a.bounds.calls.Used() > callsMemoryBytes/4 }},
		"probes": {func(a *attacked) net.Addr { return a.AdminAddr() }, "/readyz", "application/json", nil,
			func(a *attacked) bool { return a.bounds.probes.Used() > probeMemoryBytes/4 }},
		"calls by gRPC":   {func(a *attacked) net.Addr { return a.GRPCAddr() }, limit, "application/grpc", frame(0, one), answered(limit)},
		"batches by gRPC": {func(a *attacked) net.Addr { return a.GRPCAddr() }, many, "application/grpc", frame(0, batch), answered(many)},
		"Envoy's calls":   {func(a *attacked) net.Addr { return a.GRPCAddr() }, rls.Procedure, "application/grpc", frame(0, envoy), answered(rls.Procedure)},
	}
}

// Connections over HTTP/2 whose caller takes no bytes of an answer hold no more of them than there is
// memory for, of short answers too; others, and probes, are answered.
func TestStreamsThatTakeNoBytes(t *testing.T) {
	for name, flood := range silentFloods() {
		t.Run(name, func(t *testing.T) {
			a := attack(t)
			end := a.watch()
			sent := flood.connection(t)
			var begun []net.Conn
			for i := range silentConnections {
				conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%4))}}).Dial("tcp", flood.address(a).String())
				if err != nil {
					t.Fatal(err)
				}
				begun = append(begun, conn)
				go func() { _, _ = io.Copy(io.Discard, conn) }()
				_, _ = conn.Write(sent)
			}
			await.True(t, "answers wait for their callers", func() bool { return flood.begun(a) })
			a.probed(t)
			for _, conn := range begun {
				_ = conn.Close()
			}
			end()
			a.judge(t)
		})
	}
}

// connection returns all bytes that a connection sends: as many calls as it may have, none of which lets a byte of an
// answer's body through.
func (s silent) connection(t *testing.T) []byte {
	var sent, fields bytes.Buffer
	_, _ = sent.WriteString(http2.ClientPreface)
	frames, packed := http2.NewFramer(&sent, nil), hpack.NewEncoder(&fields)
	err := frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range uint32(streamsMax) {
		fields.Reset()
		for _, f := range []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "localhost"}, {Name: ":path", Value: s.path},
			{Name: "content-type", Value: s.kind}, {Name: "te", Value: "trailers"},
		} {
			err = errors.Join(err, packed.WriteField(f))
		}
		err = errors.Join(err,
			frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: fields.Bytes(), EndHeaders: true}),
			frames.WriteData(2*i+1, true, s.body))
	}
	if err != nil {
		t.Fatal(err)
	}
	return sent.Bytes()
}

// A client that multiplexes a hundred calls on a connection has all of them worked on at a time.
func TestAConnectionCarriesAHundredCalls(t *testing.T) {
	for _, door := range []door{doors[0], doors[3], doors[6], doors[7]} {
		t.Run(door.name, func(t *testing.T) {
			const calls = 100
			all := make(chan struct{})
			var waiting atomic.Int64
			h := start(t, scripted{allow: func(ctx context.Context, _ dataplane.Request) dataplane.Decision {
				if waiting.Add(1) == calls+1 { // the first call opens the connection
					close(all)
				}
				if waiting.Load() > 1 {
					select {
					case <-all:
					case <-ctx.Done():
					}
				}
				return dataplane.Decision{Allowed: true}
			}})
			client := door.open(t, h)
			if _, err := ask(t.Context(), client, "first", 10); err != nil {
				t.Fatal(err)
			}
			var asking sync.WaitGroup
			for range calls {
				asking.Go(func() {
					if _, err := ask(t.Context(), client, "one of many", 10); err != nil {
						t.Error(err)
					}
				})
			}
			asking.Wait()
		})
	}
}

// An address can begin a bounded number of calls. A further call is rejected without using memory of the node, and a
// call of another address is served.
func TestAnAddressBeginsSoManyCalls(t *testing.T) {
	h := start(t, scripted{})
	from := func(address net.IP) *http.Client {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: address}}
		return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	}
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", h.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var busy *bounded.Caller
	await.True(t, "the connection is accepted", func() bool { busy = h.bounds.callers.At(conn.LocalAddr()); return busy != nil })
	for range begunMax {
		if !busy.Begin(bounded.Calls, begunMax) {
			t.Fatal("refused below the bound")
		}
	}
	for client, want := range map[*http.Client]int{from(net.IPv4(127, 0, 0, 2)): http.StatusServiceUnavailable, from(net.IPv4(127, 0, 0, 3)): http.StatusOK} {
		response, err := client.Post(h.base+weirv1connect.RateLimitServiceLimitProcedure, "application/json", strings.NewReader(minimal))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != want || want != http.StatusOK && (len(body) > 0 || response.Header.Get("Retry-After") == "") {
			t.Errorf("%d %q, want %d", response.StatusCode, body, want)
		}
	}
	if n := value(h.bounds.refused[bounded.BoundCaller]); n != 1 {
		t.Errorf("%v refusals are counted, want 1", n)
	}
	for range begunMax {
		busy.End(bounded.Calls)
	}
}
