package node

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// proxy is Envoy as far as its filter for rate limits goes: it makes a call of the entries of a route that are for this
// moment of a stream.
type proxy struct {
	domain  string
	entries []*routev3.RateLimit
	service rlsv3.RateLimitServiceClient
}

// call returns Envoy's call for a request, or nil if Envoy makes no call.
func (p *proxy) call(headers, metadata map[string]string, done bool) *rlsv3.RateLimitRequest {
	call := &rlsv3.RateLimitRequest{Domain: p.domain}
	for _, entry := range p.entries {
		if entry.ApplyOnStreamDone != done {
			continue
		}
		d := new(ratelimitv3.RateLimitDescriptor)
		for _, action := range entry.Actions {
			h := action.GetRequestHeaders()
			d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: h.GetDescriptorKey(),
				Value: headers[h.GetHeaderName()]})
		}
		if hits := entry.HitsAddend; hits.GetFormat() != "" {
			key := strings.TrimSuffix(strings.TrimPrefix(hits.GetFormat(), "%DYNAMIC_METADATA("), ")%")
			n, err := strconv.ParseFloat(metadata[key], 64)
			if err != nil || n < 0 || n > 1e9 {
				continue
			}
			d.HitsAddend = wrapperspb.UInt64(uint64(n))
		} else if hits.GetNumber() != nil {
			d.HitsAddend = wrapperspb.UInt64(hits.GetNumber().GetValue())
		}
		d.IsNegativeHits = entry.GetHitsAddend().GetIsNegativeHits()
		call.Descriptors = append(call.Descriptors, d)
	}
	if len(call.Descriptors) == 0 {
		return nil
	}
	return call
}

// request sends a request, and reports whether it passed.
func (p *proxy) request(t *testing.T, user string) (passed bool) {
	t.Helper()
	r, err := p.service.ShouldRateLimit(t.Context(), p.call(map[string]string{"x-user": user}, nil, false))
	if err != nil {
		t.Fatal(err)
	}
	return r.OverallCode == rlsv3.RateLimitResponse_OK
}

// done ends a stream, possibly without a number of tokens.
func (p *proxy) done(t *testing.T, user, tokens string) {
	t.Helper()
	call := p.call(map[string]string{"x-user": user}, map[string]string{"weir:tokens": tokens}, true)
	if (call == nil) != (tokens == "") {
		t.Errorf("the end of a stream of %q tokens: %v", tokens, call)
	}
	if call == nil {
		return
	}
	if _, err := p.service.ShouldRateLimit(t.Context(), call); err != nil {
		t.Fatal(err)
	}
}

// tokensPage returns the proxy of rls/TOKENS.md, and a node with the page's rules.
func tokensPage(t *testing.T) *proxy {
	t.Helper()
	page, err := os.ReadFile("rls/TOKENS.md")
	if err != nil {
		t.Fatal(err)
	}
	p := new(proxy)
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		switch text := block[1]; {
		case strings.HasPrefix(text, "domain: "):
			p.service, _, _ = envoy(t, text)
			p.domain = "llm"
		case strings.HasPrefix(text, "typed_per_filter_config"):
			var route struct {
				Configs map[string]any `yaml:"typed_per_filter_config"`
			}
			written := []byte("null")
			if err = yaml.Unmarshal([]byte(text), &route); err == nil {
				written, err = json.Marshal(route.Configs["envoy.filters.http.ratelimit"])
			}
			of, config := new(anypb.Any), new(filterv3.RateLimitPerRoute)
			if err == nil {
				err = protojson.Unmarshal(written, of)
			}
			if err == nil {
				err = of.UnmarshalTo(config)
			}
			if err != nil {
				t.Fatal(err)
			}
			p.entries = config.RateLimits
		}
	}
	if p.service == nil || len(p.entries) != 2 {
		t.Fatal("the page has no rules or no route")
	}
	return p
}

// Envoy checks before each answer and charges its tokens at the end. Tokens above the limit count, and the next request
// is denied.
func TestEnvoyChargesStreams(t *testing.T) {
	p := tokensPage(t)
	for _, tokens := range []string{"60000", "39999", ""} { // the last was cut off
		if !p.request(t, "ann") {
			t.Errorf("refused before %s tokens", tokens)
		}
		p.done(t, "ann", tokens)
	}
	if !p.request(t, "ann") {
		t.Error("refused with a token left")
	}
	p.done(t, "ann", "5000") // more than is left
	for range 2 {
		if p.request(t, "ann") {
			t.Error("passes with 104,999 of 100,000 spent")
		}
		p.done(t, "ann", "") // Envoy ends refused streams too
	}
	if !p.request(t, "bob") {
		t.Error("another user is refused")
	}
}

// Concurrent streams all pass the check, and all of them are charged.
func TestStreamsAtOncePassTogether(t *testing.T) {
	p := tokensPage(t)
	var streams sync.WaitGroup
	for range 20 {
		if !p.request(t, "ann") {
			t.Error("refused while nothing is spent")
		}
	}
	for range 20 {
		streams.Go(func() { p.done(t, "ann", "50000") })
	}
	streams.Wait()
	if p.request(t, "ann") {
		t.Error("passes with 1,000,000 of 100,000 spent")
	}
	call := p.call(map[string]string{"x-user": "ann"}, map[string]string{"weir:tokens": "900001"}, true)
	call.Descriptors[0].IsNegativeHits = true
	if _, err := p.service.ShouldRateLimit(t.Context(), call); err != nil || !p.request(t, "ann") {
		t.Errorf("refused after all but 99,999 were given back: %v", err)
	}
}

// Hits of 1 and a negative 1 at the end are no concurrency limit: a denied stream gives back a hit that was never
// counted.
func TestNegativeHitsAreNoSlots(t *testing.T) {
	service, _, _ := envoy(t, envoyRules) // 2
	one := &routev3.RateLimit_HitsAddend{Number: wrapperspb.UInt64(1)}
	back := &routev3.RateLimit_HitsAddend{Number: wrapperspb.UInt64(1), IsNegativeHits: true}
	header := []*routev3.RateLimit_Action{{ActionSpecifier: &routev3.RateLimit_Action_RequestHeaders_{
		RequestHeaders: &routev3.RateLimit_Action_RequestHeaders{HeaderName: "x-user", DescriptorKey: "user"}}}}
	p := &proxy{domain: "edge", service: service, entries: []*routev3.RateLimit{
		{Actions: header, HitsAddend: one}, {Actions: header, HitsAddend: back, ApplyOnStreamDone: true}}}
	var got []bool
	for range 4 {
		got = append(got, p.request(t, "ann"))
	}
	if want := []bool{true, true, false, false}; !slices.Equal(got, want) {
		t.Errorf("of 2 at once pass %v, want %v", got, want)
	}
	if _, err := service.ShouldRateLimit(t.Context(), p.call(map[string]string{"x-user": "ann"}, nil, true)); err != nil {
		t.Fatal(err)
	}
	if !p.request(t, "ann") {
		t.Error("a refused stream gave nothing back: the page says that it does")
	}
}
