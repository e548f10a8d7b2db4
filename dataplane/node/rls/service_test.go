package rls

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
	"github.com/weirhq/weir/dataplane/metrics"
)

// newService serves the rules from a file, over a real limiter.
func newService(t testing.TB, rules string) *Service {
	t.Helper()
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limiter.Stop(context.Background()) })
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	source, err := OpenRules(path)
	if err != nil {
		t.Fatal(err)
	}
	return &Service{Limiter: limiter, Rules: source, Workspace: "envoy"}
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

type (
	descriptorOfEnvoy = ratelimitv3.RateLimitDescriptor
	adjust            func(*descriptorOfEnvoy)
)

func descriptorOf(words []string, adjusts ...adjust) *ratelimitv3.RateLimitDescriptor {
	d := &ratelimitv3.RateLimitDescriptor{Entries: entries(words...)}
	for _, a := range adjusts {
		a(d)
	}
	return d
}

func addend(n uint64) adjust {
	return func(d *ratelimitv3.RateLimitDescriptor) { d.HitsAddend = wrapperspb.UInt64(n) }
}

func negative(d *ratelimitv3.RateLimitDescriptor) { d.IsNegativeHits = true }

func limitOf(n uint32, unit typev3.RateLimitUnit, multiplier uint32) adjust {
	return func(d *ratelimitv3.RateLimitDescriptor) {
		d.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
		if multiplier != 1 {
			d.Limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
		}
	}
}

func ask(t *testing.T, s *Service, hits uint32, descriptors ...*ratelimitv3.RateLimitDescriptor) *rlsv3.RateLimitResponse {
	t.Helper()
	response, err := s.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "shop", HitsAddend: hits, Descriptors: descriptors})
	if err != nil {
		t.Fatal(err)
	}
	if len(response.Statuses) != len(descriptors) {
		t.Fatalf("%d statuses for %d descriptors", len(response.Statuses), len(descriptors))
	}
	return response
}

// verdicts formats the overall code, and each descriptor's code ("over" or "ok") and remaining amount.
func verdicts(r *rlsv3.RateLimitResponse) string {
	words := []string{word(r.OverallCode) + ":"}
	for _, s := range r.Statuses {
		w := word(s.Code)
		if s.CurrentLimit != nil {
			w += " " + strconv.FormatInt(int64(s.LimitRemaining), 10)
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

func word(c rlsv3.RateLimitResponse_Code) string {
	return map[rlsv3.RateLimitResponse_Code]string{rlsv3.RateLimitResponse_OK: "ok", rlsv3.RateLimitResponse_OVER_LIMIT: "over"}[c]
}

// long rules have windows that no test sees the end of.
const long = `
domain: shop
descriptors:
  - {key: a, rate_limit: {unit: year, requests_per_unit: 5, name: limit-a}}
  - {key: b, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: soft, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: q1, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: q2, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: vip, rate_limit: {unit: year, requests_per_unit: 9, replaces: [{name: limit-a}]}}
  - {key: f, value: x*, share_threshold: true, rate_limit: {unit: year, requests_per_unit: 2}}
`

// Hits are the descriptor's own, 0 included, or the call's, or 1.
func TestHits(t *testing.T) {
	s := newService(t, long)
	a := []string{"a", "1"}
	for i, step := range []struct {
		hits uint32
		d    *ratelimitv3.RateLimitDescriptor
		want string
	}{
		{0, descriptorOf(a), "ok: ok 4"},
		{2, descriptorOf(a), "ok: ok 2"},
		{2, descriptorOf(a, addend(0)), "ok: ok 2"}, // a peek
		{0, descriptorOf(a, addend(1)), "ok: ok 1"},
		{2, descriptorOf(a), "over: over 1"},
		{0, descriptorOf(a), "ok: ok 0"},
		{0, descriptorOf(a, addend(0)), "ok: ok 0"},
		{0, descriptorOf(a), "over: over 0"},
		{0, descriptorOf(a, addend(2), negative), "ok: ok 2"}, // given back
		{0, descriptorOf([]string{"a", "2"}), "ok: ok 4"},     // another value, another count
	} {
		if got := verdicts(ask(t, s, step.hits, step.d)); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

// All descriptors of a call are charged, or none is; each has its own status.
func TestAllOrNothing(t *testing.T) {
	s := newService(t, long)
	a, b := descriptorOf([]string{"a", "1"}), descriptorOf([]string{"b", "1"})
	for i, want := range []string{"ok: ok 4 ok 1", "ok: ok 3 ok 0", "over: ok 3 over 0", "over: ok 3 over 0"} {
		if got := verdicts(ask(t, s, 0, a, b)); got != want {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
	}
	if got := verdicts(ask(t, s, 0, a, a)); got != "ok: ok 2 ok 1" { // the same twice counts twice
		t.Errorf("twice the same: %s", got)
	}
}

// A shadowed rule never denies, and is charged only for calls that pass.
func TestShadowMode(t *testing.T) {
	s := newService(t, long)
	soft, b := descriptorOf([]string{"soft", "1"}), descriptorOf([]string{"b", "1"})
	for i, want := range []string{"ok: ok 0 ok 1", "ok: ok 0 ok 0", "over: ok 0 over 0"} {
		if got := verdicts(ask(t, s, 0, soft, b)); got != want {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
	}
	if got := verdicts(ask(t, s, 0, descriptorOf([]string{"soft", "2"}), b)); got != "over: ok 1 over 0" {
		t.Errorf("a denied call charged a shadowed rule: %s", got)
	}
}

// A shadowed rule counts the calls that it would have denied: alone, together with a rule that enforces, and for a
// quota in shadow mode. Nothing else is counted for it.
func TestShadowedCallsAreCounted(t *testing.T) {
	s := newService(t, long+"  - {key: softq, quota_mode: true, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	for i, step := range []struct {
		words []string
		want  string
	}{
		{[]string{"soft"}, "ok: ok 0"},
		{[]string{"soft"}, "ok: ok 0"},
		{[]string{"soft", "b"}, "ok: ok 0 ok 1"},
		{[]string{"softq"}, "ok: ok 0"},
		{[]string{"softq"}, "ok: ok 0"},
	} {
		var descriptors []*ratelimitv3.RateLimitDescriptor
		for _, word := range step.words {
			descriptors = append(descriptors, descriptorOf([]string{word, "1"}))
		}
		if got := verdicts(ask(t, s, 0, descriptors...)); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	for outcome, want := range map[string]float64{"allowed": 3, "shadowed": 3, "denied": 0} {
		if got := decisions(t, s, outcome); got != want {
			t.Errorf("%v decisions are %s, want %v", got, outcome, want)
		}
	}
}

// decisions sums weir_decisions_total of an outcome.
func decisions(t *testing.T, s *Service, outcome string) (sum float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(s.Limiter.(*dataplane.Limiter)))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "weir_decisions_total" && l.GetName() == "outcome" && l.GetValue() == outcome {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// Quotas deny a call only when all of them are over; then nothing is charged.
func TestQuotas(t *testing.T) {
	s := newService(t, long)
	q1, q2, a := descriptorOf([]string{"q1", ""}), descriptorOf([]string{"q2", ""}), descriptorOf([]string{"a", "1"})
	for i, want := range []string{"ok: ok 0 ok 1 ok 4", "ok: over 0 ok 0 ok 3", "over: over 0 over 0 ok 3"} {
		if got := verdicts(ask(t, s, 0, q1, q2, a)); got != want {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
	}
}

// A descriptor without a rule is ok and has no limit in its status. An unlimited descriptor has the largest remaining
// amount.
func TestUnmatchedAndUnlimited(t *testing.T) {
	s := newService(t, long)
	r := ask(t, s, 0, descriptorOf([]string{"nothing", "1"}), descriptorOf([]string{"free", "1"}), descriptorOf(nil))
	if verdicts(r) != "ok: ok ok ok" || r.Statuses[0].LimitRemaining != 0 || r.Statuses[1].LimitRemaining != math.MaxUint32 {
		t.Errorf("answer is %v", r)
	}
}

// A rule that another rule replaces is neither checked nor charged.
func TestReplaces(t *testing.T) {
	s := newService(t, long)
	a, vip := descriptorOf([]string{"a", "1"}), descriptorOf([]string{"vip", "1"})
	if got := verdicts(ask(t, s, 0, a, vip)); got != "ok: ok ok 8" {
		t.Errorf("both: %s", got)
	}
	if got := verdicts(ask(t, s, 0, a)); got != "ok: ok 4" {
		t.Errorf("alone: %s", got)
	}
}

// All values of a shared pattern use the same count.
func TestSharedPattern(t *testing.T) {
	s := newService(t, long)
	for i, step := range []struct{ value, want string }{{"x1", "ok: ok 1"}, {"x2", "ok: ok 0"}, {"x3", "over: over 0"}, {"x*", "over: over 0"}, {"y", "ok: ok"}} {
		if got := verdicts(ask(t, s, 0, descriptorOf([]string{"f", step.value}))); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}

// A descriptor's own limit goes before the rules, and is reported as it came.
func TestOverride(t *testing.T) {
	s := newService(t, long)
	r := ask(t, s, 0, descriptorOf([]string{"a", "1"}, limitOf(1, typev3.RateLimitUnit_HOUR, 36)))
	got := r.Statuses[0].CurrentLimit
	if verdicts(r) != "ok: ok 0" || got.RequestsPerUnit != 1 || got.Unit != rlsv3.RateLimitResponse_RateLimit_HOUR || got.UnitMultiplier.GetValue() != 36 {
		t.Errorf("answer is %v", r)
	}
	r = ask(t, s, 0, descriptorOf([]string{"unknown", ""}, limitOf(0, typev3.RateLimitUnit_YEAR, 1)))
	if verdicts(r) != "over: over 0" {
		t.Errorf("a limit of 0: %v", r)
	}
	if wait := r.Statuses[0].DurationUntilReset.AsDuration(); wait <= 0 || wait > 365*24*time.Hour {
		t.Errorf("duration_until_reset is %v", wait)
	}
}

// The status has the limit of an operator's override, and its window as units.
func TestAppliedWindowIsTold(t *testing.T) {
	rule := &Limit{name: "a", limit: 4, duration: 24 * time.Hour, onTheWire: &rlsv3.RateLimitResponse_RateLimit{Name: "a", RequestsPerUnit: 4, Unit: rlsv3.RateLimitResponse_RateLimit_DAY}}
	for _, step := range []struct {
		duration time.Duration
		want     string
		w        string
	}{
		{24 * time.Hour, "9 DAY 0", "86400"},
		{48 * time.Hour, "9 DAY 2", "172800"},
		{time.Hour, "9 HOUR 0", "3600"},
		{90 * time.Minute, "9 MINUTE 90", "5400"},
		{time.Second, "9 SECOND 0", "1"},
		{1500 * time.Millisecond, "9 SECOND 2", "2"},
		{366 * 24 * time.Hour, "9 DAY 366", "31622400"},
	} {
		it := item{limit: rule, decision: dataplane.Decision{Allowed: true, Limit: 9, Duration: step.duration}}
		got := it.status(time.Now()).CurrentLimit
		if text := fmt.Sprint(got.RequestsPerUnit, got.Unit, got.UnitMultiplier.GetValue()); text != step.want {
			t.Errorf("%v: %s, want %s", step.duration, text, step.want)
		}
		if got, want := headers([]item{it}, false, time.Now())[0].Value, `"a";q=9;w=`+step.w; got != want {
			t.Errorf("%v: RateLimit-Policy is %s, want %s", step.duration, got, want)
		}
	}
}

// The headers describe the limit that matters most, in the format of their draft.
func TestHeaders(t *testing.T) {
	s := newService(t, long)
	said := func(r *rlsv3.RateLimitResponse) (all string) {
		for _, h := range r.ResponseHeadersToAdd {
			all += h.Key + ": " + h.Value + "\n"
		}
		return all
	}
	a, b := descriptorOf([]string{"a", "1"}), descriptorOf([]string{"b", "1"}, addend(2))
	if got := said(ask(t, s, 0, a, b)); got != "" {
		t.Errorf("fields on what passed: %s", got)
	}
	r := ask(t, s, 0, a, b)
	if got := said(r); !strings.HasPrefix(got, "RateLimit-Policy: \"default\";q=2;w=31536000\nRateLimit: \"default\";r=0;t=") || !strings.Contains(got, "\nRetry-After: ") {
		t.Errorf("fields of a denial: %s", got)
	}
	s.Headers = HeadersAlways
	if got := said(ask(t, s, 0, a)); !strings.HasPrefix(got, "RateLimit-Policy: \"limit-a\";q=5;w=31536000\nRateLimit: \"limit-a\";r=3;t=") || strings.Contains(got, "Retry-After") {
		t.Errorf("fields always: %s", got)
	}
	s.Headers = HeadersNever
	if got := said(ask(t, s, 0, a, b)); got != "" {
		t.Errorf("fields never: %s", got)
	}
	for name, want := range map[string]string{"": `"default"`, "a b": `"a b"`, `a"\`: `"a\"\\"`, "ä": `"default"`, "a\nb": `"default"`} {
		if got := string(httplimit.AppendStanding(nil, shown(name), 1, 2)); got != want+";r=1;t=2" {
			t.Errorf("%q is shown as %s, want %s", name, got, want)
		}
	}
}

// The time in a denial is never earlier than the moment at which the same call can pass, also if that is in the next
// cell. A call that never passes gets no time.
func TestADenialIsNotOverBeforeItMayPass(t *testing.T) {
	s := newService(t, long)
	a := descriptorOf([]string{"a", "1"})
	ask(t, s, 5, a)
	now := time.Now()
	denied := ask(t, s, 5, a)
	again := s.Limiter.Peek(t.Context(), dataplane.Request{Workspace: "envoy", Namespace: "shop", Identifier: "a=1", Limit: 5, Duration: 365 * 24 * time.Hour, Cost: 5})
	if again.Allowed || again.RetryAfter <= again.ResetAt.Sub(now) {
		t.Fatalf("five of five again: %+v; want the next cell", again)
	}
	if wait := denied.Statuses[0].DurationUntilReset.AsDuration(); wait < again.RetryAfter {
		t.Errorf("duration_until_reset is %v, and it may pass in %v", wait, again.RetryAfter)
	}
	for _, h := range denied.ResponseHeadersToAdd {
		if want := ";t=" + strconv.FormatInt(httplimit.Seconds(again.RetryAfter), 10); h.Key == "RateLimit" && !strings.HasSuffix(h.Value, want) {
			t.Errorf("RateLimit is %s, want%s", h.Value, want)
		}
	}
	for _, h := range ask(t, s, 6, a).ResponseHeadersToAdd {
		if h.Key == "Retry-After" || h.Key == "RateLimit" && strings.Contains(h.Value, ";t=") {
			t.Errorf("six of five: %s: %s", h.Key, h.Value)
		}
	}
}

// A call at fault is invalid_argument and names each field; nothing is decided.
func TestFaultyCalls(t *testing.T) {
	s := newService(t, long)
	for _, step := range []struct {
		call *rlsv3.RateLimitRequest
		want string
	}{
		{&rlsv3.RateLimitRequest{}, "domain is 0 bytes long (1 to 255); descriptors has 0 items (1 to 1000)"},
		{&rlsv3.RateLimitRequest{Domain: strings.Repeat("d", 256), Descriptors: make([]*ratelimitv3.RateLimitDescriptor, 1001)}, "domain is 256 bytes long (1 to 255); descriptors has 1001 items (1 to 1000)"},
		{&rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{nil, descriptorOf([]string{"k", ""}, limitOf(1, 0, 1))}}, "descriptors[1].limit is per 1 UNKNOWN (1 second to 366 days)"},
		{&rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptorOf([]string{"k", ""}, limitOf(1, typev3.RateLimitUnit_YEAR, 2))}}, "descriptors[0].limit is per 2 YEAR (1 second to 366 days)"},
		{&rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptorOf([]string{"k", ""}, limitOf(1, typev3.RateLimitUnit_SECOND, math.MaxUint32))}}, "descriptors[0].limit is per 4294967295 SECOND (1 second to 366 days)"},
		{&rlsv3.RateLimitRequest{Domain: "d", Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptorOf(nil, limitOf(1, typev3.RateLimitUnit_SECOND, 1))}}, "descriptors[0].entries is empty, and there is a limit for it"},
		{&rlsv3.RateLimitRequest{Domain: "\xff", Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptorOf([]string{"k", ""})}}, "domain is not UTF-8"},
	} {
		_, err := s.ShouldRateLimit(t.Context(), step.call)
		got := status.Convert(err)
		if got.Code() != codes.InvalidArgument || got.Message() != step.want {
			t.Errorf("%v %q, want invalid_argument %q", got.Code(), got.Message(), step.want)
			continue
		}
		if bad, ok := got.Details()[0].(*errdetails.BadRequest); !ok || len(bad.FieldViolations) != strings.Count(step.want, ";")+1 {
			t.Errorf("%q has details %v", step.want, got.Details())
		}
	}
}

// Keys, values and hits that a limited caller can choose are no errors. Each value is counted separately, and the other
// descriptors are charged.
func TestWhatCallersChooseIsCounted(t *testing.T) {
	s := newService(t, "domain: shop\ndescriptors:\n  - {key: user, rate_limit: {unit: year, requests_per_unit: 100}}\n  - {key: ip, rate_limit: {unit: year, requests_per_unit: 100}}\n")
	long := strings.Repeat("u", 70_000)
	values := []string{"", " ", "\x00", "\xff", "\xfe", "%FF", "\xed\xa0\x80", "a\x00", "a", long, long + "\xff", long + "\xfe", "é", "e\u0301"}
	for i, value := range values {
		r := ask(t, s, 60, descriptorOf([]string{"user", value}), descriptorOf([]string{"ip", strconv.Itoa(i)}))
		if r.OverallCode != rlsv3.RateLimitResponse_OK || r.Statuses[0].LimitRemaining != 40 || r.Statuses[1].LimitRemaining != 40 {
			t.Errorf("%.20q: %v", value, r)
		}
		if r := ask(t, s, 41, descriptorOf([]string{"user", value})); r.OverallCode != rlsv3.RateLimitResponse_OVER_LIMIT {
			t.Errorf("%.20q is not counted: %v", value, r)
		}
	}
	for _, hits := range []uint64{101, 1 << 53, math.MaxUint64} {
		if r := ask(t, s, 1, descriptorOf([]string{"user", "h"}, addend(hits))); r.OverallCode != rlsv3.RateLimitResponse_OVER_LIMIT {
			t.Errorf("%d hits: %v", hits, r)
		}
	}
	if r := ask(t, s, 1, descriptorOf([]string{"user", "a"}, addend(math.MaxUint64), negative), descriptorOf([]string{"ip", "r"})); r.OverallCode != rlsv3.RateLimitResponse_OK || r.Statuses[0].LimitRemaining != 100 || r.Statuses[1].LimitRemaining != 99 {
		t.Errorf("a large refund: %v", r)
	}
	if r := ask(t, s, 1, descriptorOf([]string{"user", "twice"}), descriptorOf([]string{"user", "twice"})); r.OverallCode != rlsv3.RateLimitResponse_OK || r.Statuses[1].LimitRemaining != 98 {
		t.Errorf("the same descriptor twice: %v", r)
	}
}

// Rules are replaced if their file changes. If the new file is invalid, the last valid rules stay in force, and the
// fault is reported once.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, long)
	source, err := OpenRules(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	limited := func(key string) bool {
		limit, _ := source.now.Load().match("shop", entries(key, "1"))
		return limit != nil
	}
	for i, step := range []struct {
		content       string
		changed, fail bool
		a, new        bool
	}{
		{long, false, false, true, false},
		{"domain: [", true, true, true, false},
		{"domain: [", false, false, true, false},
		{"domain: shop\ndescriptors: [{key: new, rate_limit: {unit: day, requests_per_unit: 0}}]", true, false, false, true},
	} {
		write(t, path, step.content)
		changed, err := source.Check()
		if changed != step.changed || (err != nil) != step.fail || limited("a") != step.a || limited("new") != step.new {
			t.Errorf("step %d: changed %v, error %v, a %v, new %v", i, changed, err, limited("a"), limited("new"))
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := source.Check(); err == nil || !limited("new") {
		t.Errorf("without the file: error %v", err)
	}
	if _, err := OpenRules(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("opening a file that is not there: %v", err)
	}
}
