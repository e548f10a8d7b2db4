package rls

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirhq/weir/dataplane"
)

// metaRules have windows that no test sees the end of.
const metaRules = long + "  - {key: trial, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1, name: trial}}\n"

// metaOf formats the metadata without reset_seconds, which must be there and within a year.
func metaOf(t testing.TB, m *structpb.Struct) string {
	t.Helper()
	if m == nil {
		return "none"
	}
	f := m.GetFields()
	words := fmt.Sprint(f["policy"].GetStringValue(), " ", f["limit"].GetNumberValue(), " ", f["remaining"].GetNumberValue())
	if f["shadowed"].GetBoolValue() {
		words += " shadowed"
	}
	keys := 5
	if reset, ok := f["reset_seconds"]; !ok {
		words, keys = words+" never", 4
	} else if n := reset.GetNumberValue(); n < 1 || n > 2*365*24*3600 {
		t.Errorf("reset_seconds is %v", n)
	}
	if len(f) != keys {
		t.Errorf("metadata %v has %d keys, want %d", m, len(f), keys)
	}
	return words
}

// The metadata describes the limit that denies, the limit with the least remaining, or the limit that only shadow mode
// lets a call pass. It is the same for calls that are read by hand and by protobuf.
func TestMetadata(t *testing.T) {
	for name, call := range map[string]func(*Service, *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse{
		"by protobuf": func(s *Service, m *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
			return ask(t, s, m.HitsAddend, m.Descriptors...)
		},
		"by hand": func(s *Service, m *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
			answer, ok, err := s.Answer(t.Context(), string(wireOf(t, m)))
			response := new(rlsv3.RateLimitResponse)
			if !ok || err != nil || proto.Unmarshal(answer, response) != nil {
				t.Fatalf("%v: %v, %v", m, ok, err)
			}
			return response
		},
	} {
		s := newService(t, metaRules)
		s.Metadata, s.Headers = true, HeadersNever
		for i, step := range []struct {
			hits uint32
			keys string
			want string
		}{
			{1, "a", "limit-a 5 4"},
			{1, "a b", "default 2 1"},
			{1, "none a", "limit-a 5 2"},
			{1, "free a trial", "limit-a 5 1"},
			{1, "trial", "trial 1 0 shadowed"},
			{1, "a trial", "trial 1 0 shadowed"},
			{1, "a trial", "limit-a 5 0"}, // denied, not by the trial
			{9, "a b", "limit-a 5 0 never"},
			{1, "b a", "limit-a 5 0"},
			{2, "b", "default 2 1"}, // denied
			{1, "none", "none"},
			{1, "free none", "none"},
		} {
			m := &rlsv3.RateLimitRequest{Domain: "shop", HitsAddend: step.hits}
			for _, key := range strings.Fields(step.keys) {
				m.Descriptors = append(m.Descriptors, descriptorOf([]string{key, "secret"}))
			}
			response := call(s, m)
			if got := metaOf(t, response.DynamicMetadata); got != step.want {
				t.Errorf("%s, call %d: %s, want %s", name, i, got, step.want)
			}
			if text := response.DynamicMetadata.String(); strings.Contains(text, "secret") {
				t.Errorf("%s, call %d shows a caller: %s", name, i, text)
			}
		}
		s.Metadata = false
		if got := call(s, callOf(1, "a", "1")).DynamicMetadata; got != nil {
			t.Errorf("%s: %v without the option", name, got)
		}
	}
}

// A rule in shadow mode that is below its limit is not shown, and neither is a refund at the limit, because nothing
// would be denied. The shadow mode of a namespace counts as the rule's.
func TestMetadataOfShadowModes(t *testing.T) {
	s := newService(t, metaRules)
	s.Metadata = true
	trial := []string{"trial", "1"}
	for i, d := range []*descriptorOfEnvoy{descriptorOf(trial), descriptorOf(trial, addend(2), negative)} {
		if got := metaOf(t, ask(t, s, 1, d).DynamicMetadata); got != "none" {
			t.Errorf("call %d: %s", i, got)
		}
	}
	now := time.Now()
	it := item{limit: &Limit{limit: 3}, decision: dataplane.Decision{Allowed: true, Shadowed: true, Limit: 3, ResetAt: now.Add(time.Hour)}}
	if got := metaOf(t, s.metadata([]item{it}, false, now)); got != "default 3 0 shadowed" {
		t.Errorf("a namespace in shadow mode: %s", got)
	}
}

// The metadata agrees with the headers, whose rules and numbers it shares.
func TestMetadataAgreesWithHeaders(t *testing.T) {
	s := newService(t, metaRules)
	s.Metadata, s.Headers = true, HeadersAlways
	a, b := descriptorOf([]string{"a", "1"}), descriptorOf([]string{"b", "1"})
	for i := range 4 {
		r := ask(t, s, 1, a, b)
		f := r.DynamicMetadata.GetFields()
		want := fmt.Sprintf("%q;r=%v;t=%.0f", f["policy"].GetStringValue(), f["remaining"].GetNumberValue(), f["reset_seconds"].GetNumberValue())
		if got := r.ResponseHeadersToAdd[1].Value; got != want {
			t.Errorf("call %d: RateLimit is %s, and the metadata %s", i, got, want)
		}
	}
}

// Kuadrant's calls with Envoy's response have the same metadata.
func TestMetadataOfKuadrant(t *testing.T) {
	k := Kuadrant{newService(t, ordinary)}
	k.Service.Metadata = true
	call := &rlsv3.RateLimitRequest{Domain: "shop", HitsAddend: 2, Descriptors: describe("calls", "ann")}
	for i, do := range []func() (*rlsv3.RateLimitResponse, error){
		func() (*rlsv3.RateLimitResponse, error) { return k.CheckRateLimit(t.Context(), call) },
		func() (*rlsv3.RateLimitResponse, error) { return k.Report(t.Context(), call) },
		func() (*rlsv3.RateLimitResponse, error) { return k.CheckRateLimit(t.Context(), call) },
	} {
		r, err := do()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := metaOf(t, r.DynamicMetadata), []string{"default 3 3", "default 3 1", "default 3 1"}[i]; got != want {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
	}
}

// The access log on the page names all keys of the metadata, and no others.
func TestPagesNameTheMetadata(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newService(t, metaRules)
	s.Metadata = true
	keys := ask(t, s, 1, descriptorOf([]string{"a", "1"})).DynamicMetadata.GetFields()
	named := regexp.MustCompile(`%DYNAMIC_METADATA\(envoy\.filters\.http\.ratelimit:(\w+)\)%`).FindAllStringSubmatch(string(page), -1)
	for _, m := range named {
		if keys[m[1]] == nil {
			t.Errorf("README.md names %q, which the metadata does not have", m[1])
		}
	}
	if len(named) != len(keys) {
		t.Errorf("README.md names %d keys, and the metadata has %d", len(named), len(keys))
	}
}

// BenchmarkAnswer is a call between its message and its response, without gRPC.
func BenchmarkAnswer(b *testing.B) {
	for _, metadata := range []bool{false, true} {
		b.Run(fmt.Sprintf("metadata=%v", metadata), func(b *testing.B) {
			s := newService(b, "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 4000000000}}\n")
			s.Metadata = metadata
			message := string(wireOf(b, callOf(1, "user", "a")))
			b.ReportAllocs()
			for b.Loop() {
				if _, ok, err := s.Answer(b.Context(), message); !ok || err != nil {
					b.Fatal(ok, err)
				}
			}
		})
	}
}
