package rls

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/wire"
)

func wireOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m) // as the keys of dynamic_metadata are written
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func callOf(descriptors int, words ...string) *rlsv3.RateLimitRequest {
	call := &rlsv3.RateLimitRequest{Domain: "shop"}
	for range descriptors {
		call.Descriptors = append(call.Descriptors, descriptorOf(words))
	}
	return call
}

// read reads a call by hand, as Answer does.
func read(t testing.TB, b []byte, then func(*work)) (ok bool) {
	t.Helper()
	w, _ := works.Get().(*work)
	defer w.put()
	if ok = w.read(wire.Message(b)); ok {
		then(w)
	}
	return ok
}

// The hand-written reader returns the same call as protobuf for the same bytes, also if the memory was used before.
func FuzzFastpathCall(f *testing.F) {
	f.Add(wireOf(f, callOf(3, "user", "a", "plan", "")))
	f.Add([]byte("\x0a\x01a\x12\x00\x12\x08\x0a\x06\x0a\x01k\x12\x01v\x18\xff\xff\xff\xff\x7f\x0a\x01b"))
	f.Add([]byte("\x0a\x01a\x12\x08\x0a\x06\x0a\x01\xff\x12\x01\xfe"))
	f.Add([]byte("\x12\x0b\x0a\x09\x0a\x01k\x12\x01v\x12\x01w"))
	f.Fuzz(func(t *testing.T, b []byte) {
		read(t, b, func(w *work) {
			want := new(rlsv3.RateLimitRequest)
			if err := wire.Unmarshal(b, want); err != nil {
				t.Fatalf("%x: read, and protobuf says %v", b, err)
			}
			if !proto.Equal(&w.call, want) {
				t.Errorf("%x: %v, want %v", b, &w.call, want)
			}
		})
	})
}

// A typical call of a proxy is read by hand. A long call, or a call with a descriptor's own hits or limit, is not.
func TestFastpathCallReads(t *testing.T) {
	own := func(a adjust) *rlsv3.RateLimitRequest {
		return &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptorOf([]string{"k", "v"}, a)}}
	}
	for _, step := range []struct {
		name string
		call *rlsv3.RateLimitRequest
		read bool
	}{
		{"one", callOf(1, "user", "a"), true},
		{"ten", callOf(10, "user", "a", "plan", "free"), true},
		{"hits", &rlsv3.RateLimitRequest{Domain: "shop", HitsAddend: 1<<32 - 1}, true},
		{"the most", callOf(fastpathDescriptorsMax, "user", "a"), true},
		{"more", callOf(fastpathDescriptorsMax+1, "user", "a"), false},
		{"more entries", callOf(fastpathDescriptorsMax, "a", "1", "b", "2", "c", "3", "d", "4", "e", "5"), false},
		{"hits of its own", own(addend(0)), false},
		{"a refund", own(negative), false},
		{"a limit of its own", own(limitOf(1, 1, 1)), false},
	} {
		if got := read(t, wireOf(t, step.call), func(*work) {}); got != step.read {
			t.Errorf("%s: read %v, want %v", step.name, got, step.read)
		}
	}
}

// The hand-written response equals protobuf's, byte for byte: for rules below the limit, over it and shadowed, without
// a rule, for overrides, with headers and metadata and without.
func TestFastpathAnswerIsProtobufs(t *testing.T) {
	now := time.UnixMilli(1_795_203_540_250)
	rules := parsed(t, `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: named, rate_limit: {unit: day, requests_per_unit: 4000000000, name: `+string(bytes.Repeat([]byte("long"), 60))+`}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
`)
	var items []item
	for _, key := range []string{"user", "named", "shadow", "free", "none"} {
		limit, _ := rules.match("shop", entries(key, "x"))
		it := item{limit: limit}
		if it.limited() {
			it.decision = dataplane.Decision{Limit: limit.limit, Duration: limit.duration, Remaining: 1 << 40, ResetAt: now.Add(1500 * time.Millisecond)}
		}
		items = append(items, it)
		if !it.limited() {
			continue
		}
		it.over, it.decision.Remaining, it.decision.RetryAfter, it.decision.ResetAt = true, 0, 2*time.Second, now.Add(-time.Second)
		items = append(items, it)
		it.decision.Limit = 7
		items = append(items, it)
		it.decision.Duration, it.decision.ResetAt = 90*time.Second, now.Add(36*time.Hour)
		items = append(items, it)
		it.decision.NeverPasses = true
		items = append(items, it)
		it.over, it.decision.Shadowed = false, true
		items = append(items, it)
	}
	for _, h := range []Headers{HeadersOnDenial, HeadersAlways, HeadersNever} {
		for _, denied := range []bool{false, true} {
			for n := range len(items) + 1 { // the metadata describes each of them at least once
				s := &Service{Headers: h, Metadata: n > 0}
				some := items[max(0, n-1):]
				got, want := s.appendAnswer(nil, some, denied, now), wireOf(t, s.answer(some, denied, now))
				if !bytes.Equal(got, want) {
					t.Errorf("headers %v, denied %v, from %d:\n%x\nwant\n%x", h, denied, n, got, want)
				}
			}
		}
	}
}

// By hand or by protobuf, the same calls are decided the same, and refused the same.
func TestAnswerDecidesAsShouldRateLimit(t *testing.T) {
	const two = "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 2}}\n"
	fast, plain := newService(t, two), newService(t, two)
	for i, call := range []*rlsv3.RateLimitRequest{
		callOf(1, "user", "a"), callOf(2, "user", "a"), callOf(1, "user", "a"), callOf(1, "user", "a"),
		callOf(3, "user", "b"), callOf(2, "user", "b"), callOf(1, "other", "c"),
		callOf(0), {Descriptors: callOf(1, "user", "a").Descriptors},
	} {
		answer, ok, err := fast.Answer(t.Context(), string(wireOf(t, call)))
		want, wantErr := plain.ShouldRateLimit(t.Context(), call)
		if !ok || status.Code(err) != status.Code(wantErr) || status.Convert(err).Message() != status.Convert(wantErr).Message() {
			t.Errorf("call %d: %v, error %v; want %v", i, ok, err, wantErr)
			continue
		}
		got := new(rlsv3.RateLimitResponse)
		if err := proto.Unmarshal(answer, got); err != nil {
			t.Fatal(err)
		}
		for _, r := range []*rlsv3.RateLimitResponse{got, want} { // the two decisions were made at different times
			if r != nil {
				r.ResponseHeadersToAdd = nil
				for _, s := range r.Statuses {
					s.DurationUntilReset = nil
				}
			}
		}
		if wantErr == nil && !proto.Equal(got, want) {
			t.Errorf("call %d: %v, want %v", i, got, want)
		}
	}
	if _, _, err := fast.Answer(t.Context(), ""); status.Code(err) != codes.InvalidArgument {
		t.Errorf("nothing: %v, want invalid argument", err)
	}
}

// answerAllocsMax bounds the allocations of a call of ten descriptors between its message and its response: the
// identifiers, the response's bytes, and the allocations of AppendAllowMany for more than eight items.
const answerAllocsMax = 5

func TestAnswerAllocations(t *testing.T) {
	s := newService(t, "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 4000000000}}\n")
	call := new(rlsv3.RateLimitRequest)
	call.Domain = "shop"
	for i := range 10 {
		call.Descriptors = append(call.Descriptors, descriptorOf([]string{"user", fmt.Sprint("user_", i)}))
	}
	s.Metadata = true
	message := string(wireOf(t, call))
	allocs := testing.AllocsPerRun(1000, func() {
		if _, ok, err := s.Answer(t.Context(), message); !ok || err != nil {
			t.Fatal(ok, err)
		}
	})
	if !raced && allocs > answerAllocsMax {
		t.Errorf("a call of ten allocates %v times, want at most %d", allocs, answerAllocsMax)
	}
}
