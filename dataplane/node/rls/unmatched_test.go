package rls

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// A misspelt domain or key limits nothing. It is counted by domain, and logged once per domain, without values that
// callers sent.
func TestDescriptorsWithoutARuleAreCountedAndLogged(t *testing.T) {
	s := newService(t, "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {unit: year, requests_per_unit: 100}}\n  - {key: free, rate_limit: {unlimited: true}}\n")
	var log bytes.Buffer
	s.Unmatched = NewUnmatched(slog.New(slog.NewTextHandler(&log, nil)))
	call := func(domain string, descriptors ...*ratelimitv3.RateLimitDescriptor) {
		t.Helper()
		if _, err := s.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: domain, Descriptors: descriptors}); err != nil {
			t.Fatal(err)
		}
	}
	of := func(words ...string) *ratelimitv3.RateLimitDescriptor { return descriptorOf(words) }
	own := descriptorOf([]string{"usr", "secret"}, limitOf(1, typev3.RateLimitUnit_SECOND, 1))
	for range 3 {
		call("shop", of("user", "a"), of("free", "a"), own)
		call("shop", of("usr", "secret"), of("user", "a", "plan", "secret"))
		call("shpo", of("user", "secret"), own)
	}
	for domain, want := range map[string]float64{"shop": 6, "": 3} {
		if got := testutil.ToFloat64(s.Unmatched.descriptors.WithLabelValues(domain)); got != want {
			t.Errorf("%v are counted in %q, want %v", got, domain, want)
		}
	}
	text := log.String()
	if n := strings.Count(text, "\n"); n != 2 || !strings.Contains(text, "domain=shop keys=usr") || !strings.Contains(text, "domain=shpo keys=user") || strings.Contains(text, "secret") {
		t.Errorf("%d lines of log:\n%s", n, text)
	}
}

// However many domains and keys a proxy sends, log and metrics are bounded.
func TestUnknownDomainsAreBounded(t *testing.T) {
	s := newService(t, "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {unit: year, requests_per_unit: 100}}\n")
	var log bytes.Buffer
	s.Unmatched = NewUnmatched(slog.New(slog.NewTextHandler(&log, nil)))
	for i := range 3 * unknownDomainsMax {
		if _, err := s.ShouldRateLimit(t.Context(), callIn(fmt.Sprint("domain", i), strings.Repeat("k", 10_000)+"\xff", "v")); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != unknownDomainsMax || log.Len() > 600*n {
		t.Errorf("%d lines of log, %d bytes", n, log.Len())
	}
	if n := testutil.CollectAndCount(s.Unmatched); n != 1 {
		t.Errorf("%d series", n)
	}
	message, allocs := string(wireOf(t, callIn("domain0", "user", "v"))), 0.0
	allocs = testing.AllocsPerRun(1000, func() { _, _, _ = s.Answer(t.Context(), message) })
	if !raced && allocs > 1 {
		t.Errorf("a call without a rule allocates %v times, want 1, its answer", allocs)
	}
}

func callIn(domain string, words ...string) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptorOf(words)}}
}
