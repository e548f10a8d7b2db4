package node

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/wire"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// batchOf returns a batch of different keys.
func batchOf(n int) *weirv1.LimitManyRequest {
	batch := new(weirv1.LimitManyRequest)
	for i := range n {
		batch.Requests = append(batch.Requests, &weirv1.LimitRequest{Workspace: "acme", Namespace: "api", Identifier: fmt.Sprint("user_", i), Limit: 1e15, DurationMs: 60_000})
	}
	return batch
}

func wireOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The hand-written reader returns the same as protobuf and the service's checks for the same bytes. It reads nothing
// that either of them rejects.
func FuzzFastpathBatch(f *testing.F) {
	f.Add(wireOf(f, batchOf(2)))
	f.Add(wireOf(f, &weirv1.LimitManyRequest{Requests: []*weirv1.LimitRequest{{Workspace: "a", Namespace: "b", Identifier: "\xc3\xa9", DurationMs: 1000, Cost: 0}}}))
	f.Add([]byte("\x0a\x00"))
	f.Add([]byte("\x0a\x15\x0a\x01a\x12\x01b\x1a\x01c\x20\x05\x28\xe8\x07\x38\x01\x0a\x01z"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m fastBatch
		if !m.read(wire.Message(b)) {
			return
		}
		message := new(weirv1.LimitManyRequest)
		if err := proto.Unmarshal(b, message); err != nil {
			t.Fatalf("%x: read, and protobuf says %v", b, err)
		}
		want, err := readLimitMany(message)
		if err != nil || !slices.Equal(m.requests, want) {
			t.Errorf("%x: %+v\nwant %+v, %v", b, m.requests, want, err)
		}
	})
}

// Every message without a fault is read by hand, and the bounds are the service's.
func TestFastpathManyReads(t *testing.T) {
	valid := func(change func(*weirv1.LimitRequest)) *weirv1.LimitManyRequest {
		batch := batchOf(10)
		change(batch.Requests[9])
		return batch
	}
	for _, step := range []struct {
		name  string
		batch *weirv1.LimitManyRequest
		read  bool
	}{
		{"as it is", batchOf(10), true},
		{"as long as may be", batchOf(dataplane.BatchMax), true},
		{"longer", batchOf(dataplane.BatchMax + 1), false},
		{"empty", batchOf(0), false},
		{"cost", valid(func(m *weirv1.LimitRequest) { m.Cost = 7 }), true},
		{"cost 0", valid(func(m *weirv1.LimitRequest) { m.Cost = 0 }), true},
		{"cost below 0", valid(func(m *weirv1.LimitRequest) { m.Cost = -1 }), false},
		{"limit 0", valid(func(m *weirv1.LimitRequest) { m.Limit = 0 }), true},
		{"limit too high", valid(func(m *weirv1.LimitRequest) { m.Limit = 1 << 53 }), false},
		{"no name", valid(func(m *weirv1.LimitRequest) { m.Namespace = "" }), false},
		{"name too long", valid(func(m *weirv1.LimitRequest) { m.Workspace = string(make([]byte, 192)) }), false},
		{"window too short", valid(func(m *weirv1.LimitRequest) { m.DurationMs = 999 }), false},
		{"window that would overflow", valid(func(m *weirv1.LimitRequest) { m.DurationMs = math.MaxInt64 }), false},
		{"window below 0", valid(func(m *weirv1.LimitRequest) { m.DurationMs = -1 }), false},
		{"unknown field", valid(func(m *weirv1.LimitRequest) { m.ProtoReflect().SetUnknown([]byte{0x78, 0x01}) }), false},
	} {
		var m fastBatch
		if got := m.read(wire.Message(wireOf(t, step.batch))); got != step.read {
			t.Errorf("%s: read %v, want %v", step.name, got, step.read)
		}
	}
}

// The hand-written response equals protobuf's, byte for byte.
func FuzzFastpathAnswer(f *testing.F) {
	f.Add(true, int64(10), int64(9), int64(60_000), int64(0), 1.0, uint8(1), "", true)
	f.Add(false, int64(1<<53-1), int64(0), int64(1_795_203_540_000), int64(1), math.Copysign(0, -1), uint8(3), "user_*", false)
	f.Fuzz(func(t *testing.T, yes bool, limit, remaining, resetMs, retry int64, current float64, source uint8, override string, other bool) {
		if !utf8.ValidString(override) {
			return // protobuf has no bytes for it: see TestFastpathOverrideIsNoText
		}
		d := dataplane.Decision{
			Allowed: yes, Limit: limit, Remaining: remaining, ResetAt: time.UnixMilli(resetMs), RetryAfter: time.Duration(retry), Current: current,
			Source: dataplane.Source(source), Override: override, Shadowed: other, CandidateDenied: !other, Duration: time.Duration(limit),
		}
		want := wireOf(t, writeDecision(d))
		if got := appendDecision(nil, &d); !bytes.Equal(got, want) {
			t.Errorf("%+v:\n%x\nwant\n%x", d, got, want)
		}
		batch := dataplane.Batch{Allowed: yes, Decisions: []dataplane.Decision{d, {}, d}}
		if got, want := appendBatch(nil, &batch), wireOf(t, writeBatch(batch)); !bytes.Equal(got, want) {
			t.Errorf("a batch of %+v:\n%x\nwant\n%x", d, got, want)
		}
	})
}

// On both ports, with and without protobuf, a caller gets the same response: an override that is not UTF-8 is the
// node's fault, and counts once.
func TestFastpathOverrideIsNoText(t *testing.T) {
	asked := 0
	h := start(t, scripted{many: func(_ context.Context, r []dataplane.Request) dataplane.Batch {
		asked++
		return dataplane.Batch{Allowed: true, Decisions: []dataplane.Decision{{Allowed: true, Override: "\xff"}}}
	}})
	for _, door := range []door{doors[0], doors[7]} {
		_, err := door.open(t, h).LimitMany(t.Context(), connect.NewRequest(batchOf(1)))
		if connect.CodeOf(err) != connect.CodeInternal {
			t.Errorf("%s: %v, want internal", door.name, err)
		}
	}
	if asked != 2 {
		t.Errorf("decided %d times, want twice", asked)
	}
}

// A malformed message is its sender's fault.
func TestUnreadableMessage(t *testing.T) {
	h := start(t, scripted{})
	c := dialGRPC(t, h.GRPCAddr())
	broken := new(weirv1.LimitRequest)
	broken.ProtoReflect().SetUnknown([]byte("\x0a\xff")) // a string that lacks its length
	for _, procedure := range []string{weirv1connect.RateLimitServiceLimitProcedure, weirv1connect.RateLimitServiceLimitManyProcedure, weirv1connect.RateLimitServicePeekProcedure} {
		err := c.call(t.Context(), procedure, broken, new(weirv1.LimitResponse))
		if status.Code(err) != codes.InvalidArgument || !strings.HasPrefix(status.Convert(err).Message(), "unmarshal message: ") {
			t.Errorf("%s: %v, want invalid argument", procedure, err)
		}
	}
}

// batchAllocsMax bounds the allocations of a batch of ten between its message and its response: the response's bytes,
// the slice of them that gRPC takes, and the allocations of AppendAllowMany for more than eight items.
const batchAllocsMax = 6

func TestBatchAllocations(t *testing.T) {
	s := service{all: newLimiter(t, nil)}
	message := string(wireOf(t, batchOf(10)))
	allocs := testing.AllocsPerRun(1000, func() {
		answer, ok, _ := s.fastpathBatch(t.Context(), message)
		if !ok {
			t.Fatal("was left to protobuf")
		}
		slices, _ := answer.(mem.BufferSlice)
		slices.Free()
	})
	if !raced && allocs > batchAllocsMax {
		t.Errorf("a batch of ten allocates %v times, want at most %d", allocs, batchAllocsMax)
	}
}
