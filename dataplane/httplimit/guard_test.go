package httplimit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
)

// Without a key a policy rejects the call as the caller's fault, or lets it pass if the policy is open. Neither is
// counted.
func TestNoKey(t *testing.T) {
	closed := policy("burst", 1, time.Minute)
	open := closed
	open.Open = true
	for _, c := range []struct {
		policy httplimit.Policy
		status int
		passed int
	}{{closed, http.StatusBadRequest, 0}, {open, http.StatusOK, 3}} {
		b := newBench(t, httplimit.Config{Policies: []httplimit.Policy{c.policy}})
		for range 3 {
			w := b.ask("")
			if w.Code != c.status || w.Header().Get("RateLimit") != "" {
				t.Errorf("open %v: status %d, fields %v", c.policy.Open, w.Code, w.Header())
			}
			if c.status != http.StatusOK && !strings.Contains(b.problem(w).Detail, "burst") {
				t.Errorf("the problem does not name the policy: %s", w.Body)
			}
		}
		if b.passed != c.passed {
			t.Errorf("open %v: %d passed, want %d", c.policy.Open, b.passed, c.passed)
		}
	}
}

// A call lacks the key of one of two policies: neither policy counts it, and the fields show nothing of the other.
func TestNoKeyForOneOfTwo(t *testing.T) {
	first, second := policy("first", 1, time.Minute), policy("second", 1, time.Minute)
	second.Key = httplimit.Header("X-Tenant")
	b := newBench(t, httplimit.Config{Policies: []httplimit.Policy{first, second}, Legacy: httplimit.LegacyDelta})
	for range 3 {
		w := b.ask("alice")
		if h := w.Header(); w.Code != http.StatusBadRequest || h.Get("RateLimit") != "" || h.Get("X-RateLimit-Limit") != "" || h.Get("Retry-After") != "" {
			t.Errorf("status %d, fields %v", w.Code, h)
		}
	}
	if w := b.ask("alice", "X-Tenant", "acme"); w.Code != http.StatusOK {
		t.Errorf("counted meanwhile: status %d", w.Code)
	}
}

// A policy whose functions return values out of bounds is logged. The call is denied, or passes if the policy is open.
func TestPolicyAtFault(t *testing.T) {
	var log bytes.Buffer
	p := policy("burst", 1, time.Minute)
	p.Cost = func(httplimit.Call) int64 { return -1 }
	b := newBench(t, httplimit.Config{Policies: []httplimit.Policy{p}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if w := b.ask("alice"); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "-1") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "cost is -1") {
		t.Errorf("log: %s", &log)
	}
	p.Open = true
	if w := newBench(t, httplimit.Config{Policies: []httplimit.Policy{p}}).ask("alice"); w.Code != http.StatusOK {
		t.Errorf("open: status %d", w.Code)
	}
}

// A key of any bytes and any length is counted separately from others, and a cost beyond every limit is denied. Neither
// is an error, and neither passes if a policy is open.
func TestWhatCallersSendIsCounted(t *testing.T) {
	p := policy("burst", 2, time.Minute)
	p.Open = true
	b := newBench(t, httplimit.Config{Policies: []httplimit.Policy{p}})
	long := strings.Repeat("k", 300)
	for _, caller := range []string{"plain", "caf\xe9", "caf\xe8", "bad\xff", "tab\tin", "\x00", long, long + "k", long + "\xff"} {
		for _, want := range []int{200, 200, 429, 429} {
			if w := b.ask(caller); w.Code != want {
				t.Errorf("%.20q: status %d, want %d", caller, w.Code, want)
			}
		}
	}
	p.Cost = func(httplimit.Call) int64 { return math.MaxInt64 }
	if w := newBench(t, httplimit.Config{Policies: []httplimit.Policy{p}}).ask("alice"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "" {
		t.Errorf("a cost beyond every limit: status %d, %v", w.Code, w.Header())
	}
}

// If the limiter cannot decide, the answer is 503 and not 429, because the caller has not used up its quota.
func TestOutageClosed(t *testing.T) {
	limiter := scripted(func(r dataplane.Request) dataplane.Decision {
		return dataplane.Decision{Limit: r.Limit, Source: dataplane.SourceDegradedClosed, RetryAfter: 300 * time.Millisecond, ResetAt: began}
	})
	b := newBench(t, httplimit.Config{Limiter: limiter, Policies: []httplimit.Policy{policy("burst", 1, time.Minute)}})
	w := b.ask("alice")
	problem := b.problem(w)
	if problem.Status != http.StatusServiceUnavailable || problem.Type != "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity" || w.Header().Get("Retry-After") != "1" {
		t.Errorf("%+v, Retry-After %q", problem, w.Header().Get("Retry-After"))
	}
}

// Quota, duration and cost may depend on the call. A policy that does not apply to a call is not shown.
func TestQuotaAndCostOfTheCall(t *testing.T) {
	plans := policy("plan", 0, 0)
	plans.QuotaFor = func(c httplimit.Call, key string) (httplimit.Quota, bool) {
		if key == "staff" {
			return httplimit.Quota{}, false
		}
		if strings.HasPrefix(key, "pro-") {
			return httplimit.Quota{Limit: 100, Duration: time.Hour}, true
		}
		return httplimit.Quota{Limit: 10, Duration: time.Minute}, true
	}
	plans.Cost = func(c httplimit.Call) int64 { return int64(len(httplimit.Request(c).URL.Path)) }
	b := newBench(t, httplimit.Config{Policies: []httplimit.Policy{plans}})
	for key, want := range map[string]string{"pro-1": `"plan";q=100;w=3600/"plan";r=93;t=3570`, "free": `"plan";q=10;w=60/"plan";r=3;t=30`, "staff": "/"} {
		h := b.ask(key).Header()
		if got := h.Get("RateLimit-Policy") + "/" + h.Get("RateLimit"); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

// A name longer than a key may be is still counted.
func TestLongNamesAreCounted(t *testing.T) {
	b := newBench(t, httplimit.Config{Policies: []httplimit.Policy{policy("burst", 1, time.Minute)}})
	long := strings.Repeat("x", 1000)
	if first, second, other := b.ask(long), b.ask(long), b.ask(long+"y"); first.Code != 200 || second.Code != 429 || other.Code != 200 {
		t.Errorf("%d, %d, another's %d", first.Code, second.Code, other.Code)
	}
}

// Denied writes its own answer, with the fields set.
func TestOwnAnswer(t *testing.T) {
	var kept *httplimit.Outcome
	b := newBench(t, httplimit.Config{
		Policies: []httplimit.Policy{policy("burst", 1, time.Minute)},
		Denied: func(w http.ResponseWriter, _ *http.Request, o *httplimit.Outcome) {
			kept = o
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, o.Explain())
		},
	})
	b.ask("alice")
	w := b.ask("alice")
	if w.Code != http.StatusTeapot || w.Header().Get("Retry-After") == "" || w.Body.String() != "the quota is used up" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	b.ask("bob")
	if got := kept.Violated(); len(got) != 1 || got[0] != "burst" {
		t.Errorf("an outcome that was kept changed: %v", got)
	}
}

// Each way to find a key, with values that are no key for it.
func TestKeys(t *testing.T) {
	type name struct{}
	principal := httplimit.Principal(func(ctx context.Context) (string, bool) {
		s, ok := ctx.Value(name{}).(string)
		return s, ok
	})
	signed := context.WithValue(t.Context(), name{}, "alice")
	header := httplimit.Header("x-api-key")
	for _, c := range []struct {
		what string
		key  func(httplimit.Call) (string, bool)
		call call
		want string
	}{
		{"header", header, call{header: http.Header{"X-Api-Key": {" alice "}}}, "alice"},
		{"no header", header, call{}, ""},
		{"an empty header", header, call{header: http.Header{"X-Api-Key": {"  "}}}, ""},
		{"two headers", header, call{header: http.Header{"X-Api-Key": {"alice", "bob"}}}, ""},
		{"principal", principal, call{ctx: signed}, "alice"},
		{"no principal", principal, call{}, ""},
		{"everybody", httplimit.Everybody, call{}, "everybody"},
		{"first of two", httplimit.First(principal, header), call{ctx: signed, header: http.Header{"X-Api-Key": {"bob"}}}, "0:alice"},
		{"second of two", httplimit.First(principal, header), call{header: http.Header{"X-Api-Key": {"bob"}}}, "1:bob"},
		{"none of two", httplimit.First(principal, header), call{}, ""},
	} {
		got, found := c.key(c.call)
		if got != c.want || found != (c.want != "") {
			t.Errorf("%s: %q, %v, want %q", c.what, got, found, c.want)
		}
	}
}

// New names the faulty policy and field.
func TestConfigAtFault(t *testing.T) {
	limiter := scripted(nil)
	good := policy("burst", 1, time.Minute)
	change := func(f func(*httplimit.Policy)) []httplimit.Policy { p := good; f(&p); return []httplimit.Policy{p} }
	for want, config := range map[string]httplimit.Config{
		"Limiter is nil":       {Policies: []httplimit.Policy{good}},
		"Policies has 0 items": {Limiter: limiter},
		"Policies has 9 items": {Limiter: limiter, Policies: make([]httplimit.Policy, 9)},
		"Jitter is -1ns":       {Limiter: limiter, Policies: []httplimit.Policy{good}, Jitter: -1},
		"Legacy is 3":          {Limiter: limiter, Policies: []httplimit.Policy{good}, Legacy: 3},
		"policy 1 (\"burst\")": {Limiter: limiter, Policies: []httplimit.Policy{good, good}},
		"printable ASCII":      {Limiter: limiter, Policies: change(func(p *httplimit.Policy) { p.Name = "bürst" })},
		"1 to 64 characters":   {Limiter: limiter, Policies: change(func(p *httplimit.Policy) { p.Name = strings.Repeat("x", 65) })},
		"Key is nil":           {Limiter: limiter, Policies: change(func(p *httplimit.Policy) { p.Key = nil })},
		"workspace":            {Limiter: limiter, Policies: change(func(p *httplimit.Policy) { p.Workspace = "" })},
		"limit is -1":          {Limiter: limiter, Policies: change(func(p *httplimit.Policy) { p.Quota.Limit = -1 })},
		"duration":             {Limiter: limiter, Policies: change(func(p *httplimit.Policy) { p.Quota.Duration = time.Millisecond })},
	} {
		if _, err := httplimit.New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// A HEAD request is denied like any other.
func TestHead(t *testing.T) {
	b := newBench(t, httplimit.Config{Policies: []httplimit.Policy{policy("burst", 0, time.Minute)}})
	server := httptest.NewServer(b.handler)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", "alice")
	w, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	w.Body.Close()
	if w.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d", w.StatusCode)
	}
}

// call is a Call of the test's own.
type call struct {
	ctx    context.Context
	header http.Header
	remote string
}

func (c call) Context() context.Context {
	if c.ctx == nil {
		return context.Background()
	}
	return c.ctx
}
func (c call) Header() http.Header { return c.header }
func (c call) RemoteAddr() string  { return c.remote }
func (c call) Path() string        { return "/" }
