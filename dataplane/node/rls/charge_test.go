package rls

import (
	"encoding/hex"
	"strings"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/reload"
)

const charged = long + `
  - {key: tokens, charged: true, rate_limit: {unit: year, requests_per_unit: 100, name: tokens}}
  - {key: trial, charged: true, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 100}}
  - {key: block, charged: true, rate_limit: {unit: year, requests_per_unit: 0}}
`

// A charge counts above the limit and denies nothing. Hits of 0 check whether anything is left.
func TestACharge(t *testing.T) {
	s := newService(t, charged)
	tokens := []string{"tokens", "ann"}
	for i, step := range []struct {
		hits  uint32
		words []string
		hit   adjust
		want  string
	}{
		{0, tokens, addend(0), "ok: ok 100"},   // the request
		{0, tokens, addend(99), "ok: ok 1"},    // its end
		{0, tokens, addend(0), "ok: ok 1"},     // something is left
		{0, tokens, addend(1), "ok: ok 0"},     // exactly the limit
		{0, tokens, addend(0), "over: over 0"}, // nothing is
		{0, tokens, addend(500), "ok: over 0"}, // a stream that had begun before
		{7, tokens, addend(0), "over: over 0"}, // the descriptor's own hits go before the call's
		{0, []string{"tokens", "bob"}, addend(0), "ok: ok 100"},
		{7, []string{"tokens", "bob"}, func(*descriptorOfEnvoy) {}, "ok: ok 93"}, // the call's hits
		{0, []string{"trial", "x"}, addend(150), "ok: ok 0"},
		{0, []string{"trial", "x"}, addend(0), "ok: ok 0"},
		{0, []string{"block", "x"}, addend(0), "over: over 0"},
	} {
		if got := verdicts(ask(t, s, step.hits, descriptorOf(step.words, step.hit))); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	back := descriptorOf(tokens, addend(550), negative)
	if got := verdicts(ask(t, s, 0, back)); got != "ok: ok 50" {
		t.Errorf("600 of 100, less 550: %s", got)
	}
}

// If a check denies a call, the other descriptors are not charged. A charge counts even if other descriptors deny the
// call. The headers of a denial describe the limit that denied it.
func TestAChargeBesideOthers(t *testing.T) {
	s := newService(t, charged)
	a, b := descriptorOf([]string{"a", "1"}), descriptorOf([]string{"b", "1"})
	tokens := func(hits uint64, more ...adjust) *descriptorOfEnvoy {
		return descriptorOf([]string{"tokens", "ann"}, append(more, addend(hits))...)
	}
	for i, step := range []struct {
		call []*descriptorOfEnvoy
		want string
	}{
		{[]*descriptorOfEnvoy{a, tokens(0)}, "ok: ok 4 ok 100"},
		{[]*descriptorOfEnvoy{tokens(100), a}, "ok: ok 0 ok 3"},
		{[]*descriptorOfEnvoy{a, tokens(0)}, "over: ok 3 over 0"},
		{[]*descriptorOfEnvoy{a, tokens(0)}, "over: ok 3 over 0"},
		{[]*descriptorOfEnvoy{descriptorOf([]string{"q1", "1"}), tokens(0)}, "over: ok 1 over 0"},
		{[]*descriptorOfEnvoy{descriptorOf([]string{"b", "1"}, addend(3)), tokens(100)}, "over: over 2 over 0"},
		{[]*descriptorOfEnvoy{b, tokens(100, negative)}, "ok: ok 1 ok 0"},
		{[]*descriptorOfEnvoy{tokens(1, negative), tokens(0)}, "over: ok 0 over 0"}, // a denied call gives nothing back
	} {
		got := ask(t, s, 0, step.call...)
		if verdicts(got) != step.want {
			t.Errorf("step %d: %s, want %s", i, verdicts(got), step.want)
		}
	}
	got := ask(t, s, 0, tokens(50), descriptorOf([]string{"b", "1"}, addend(3)))
	if len(got.ResponseHeadersToAdd) == 0 || strings.Contains(got.ResponseHeadersToAdd[0].Value, "tokens") {
		t.Errorf("a call that b denies: %v", got.ResponseHeadersToAdd)
	}
}

// A limit that Envoy sends is charged where the rule of its descriptor is.
func TestAChargeOfALimitInTheCall(t *testing.T) {
	s := newService(t, charged)
	five := limitOf(5, typev3.RateLimitUnit_DAY, 1)
	for i, step := range []struct {
		words []string
		hits  uint64
		want  string
	}{
		{[]string{"tokens", "ann"}, 9, "ok: over 0"},
		{[]string{"tokens", "ann"}, 0, "over: over 0"},
		{[]string{"a", "ann"}, 9, "over: over 5"},
		{[]string{"none", "ann"}, 9, "over: over 5"},
	} {
		if got := verdicts(ask(t, s, 0, descriptorOf(step.words, addend(step.hits), five))); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

// The bytes that Envoy sends for `hits_addend: {number: 0}`, and at the end of the stream for a format that came to 42.
func TestTheBytesOfEnvoy(t *testing.T) {
	s := newService(t, charged)
	for _, step := range []struct{ call, want string }{
		{"0a0473686f7012120a0e0a06746f6b656e731204" + hex.EncodeToString([]byte("anna")) + "1a00", "ok: ok 100"},
		{"0a0473686f7012140a0e0a06746f6b656e731204" + hex.EncodeToString([]byte("anna")) + "1a02082a", "ok: ok 58"},
	} {
		b, err := hex.DecodeString(step.call)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok, _ := s.Answer(t.Context(), string(b)); ok {
			t.Error("read by hand")
		}
		call := new(rlsv3.RateLimitRequest)
		if err := proto.Unmarshal(b, call); err != nil {
			t.Fatal(err)
		}
		r, err := s.ShouldRateLimit(t.Context(), call)
		if err != nil || verdicts(r) != step.want {
			t.Errorf("%v: %s, %v, want %s", call, verdicts(r), err, step.want)
		}
	}
}

// Charges of many streams that end at the same time are all counted.
func TestChargesAtOnce(t *testing.T) {
	s := newService(t, charged)
	var streams sync.WaitGroup
	for range 20 {
		streams.Go(func() {
			for range 50 {
				ask(t, s, 0, descriptorOf([]string{"tokens", "ann"}, addend(3)))
			}
		})
	}
	streams.Wait()
	r := dataplane.Request{Workspace: "envoy", Namespace: "shop", Identifier: "tokens=ann", Limit: 1 << 20,
		Duration: 365 * 24 * time.Hour, Cost: 1}
	if d := s.Limiter.Peek(t.Context(), r); d.Current != 3001 {
		t.Errorf("%v counted of 3000", d.Current-1)
	}
}

func TestRulesThatCannotBeCharged(t *testing.T) {
	for rule, want := range map[string]string{
		"{key: k, charged: true}":                                                         "charged needs a rule",
		"{key: k, charged: true, rate_limit: {unlimited: true}}":                          "charged needs a rule",
		"{key: k, charged: true, quota_mode: true, rate_limit: {unit: day, name: a}}":     "quota_mode",
		"{key: k, charged: maybe, rate_limit: {unit: day, requests_per_unit: 1}}":         "want true or false",
		"{key: k, rate_limit: {unit: day, requests_per_unit: 1, charged: true, name: a}}": "unknown key",
	} {
		_, err := Parse([]reload.File{{Path: "r", Content: []byte("domain: d\ndescriptors:\n  - " + rule)}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", rule, err, want)
		}
	}
}
