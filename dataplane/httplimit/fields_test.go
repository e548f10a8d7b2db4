package httplimit_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
)

// "RateLimit-Policy: "burst";q=100;w=60" and "RateLimit: "burst";r=50;t=30": lists of strings. q and w are the quota
// and its window in whole seconds, r is the available cost, t the seconds until more is available.
func TestFieldsTellPolicyAndStanding(t *testing.T) {
	b := newBench(t, httplimit.Config{Policies: []httplimit.Policy{policy("burst", 100, time.Minute), policy("daily", 1000, 24*time.Hour)}})
	w := b.ask("alice")
	for field, want := range map[string]string{
		"RateLimit-Policy":  `"burst";q=100;w=60, "daily";q=1000;w=86400`,
		"RateLimit":         `"burst";r=99;t=30, "daily";r=999;t=43170`,
		"Retry-After":       "",
		"X-RateLimit-Limit": "",
	} {
		if got := w.Header().Get(field); got != want {
			t.Errorf("%s: %s, want %s", field, got, want)
		}
	}
	if w.Code != http.StatusOK || b.passed != 1 {
		t.Errorf("status %d, %d passed", w.Code, b.passed)
	}
}

// A denial is 429 with Retry-After, which takes precedence over t and is not earlier. A caller who waits for that long
// passes.
func TestDenialTellsWhenToComeBack(t *testing.T) {
	b := newBench(t, httplimit.Config{Policies: []httplimit.Policy{policy("burst", 2, time.Minute)}})
	b.ask("alice")
	b.ask("alice")
	w := b.ask("alice")
	if w.Code != http.StatusTooManyRequests || b.passed != 2 {
		t.Fatalf("status %d, %d passed", w.Code, b.passed)
	}
	problem := b.problem(w)
	if problem.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || strings.Join(problem.ViolatedPolicies, " ") != "burst" || problem.Title == "" {
		t.Errorf("problem %+v", problem)
	}
	seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := w.Header().Get("RateLimit"), `"burst";r=0;t=`+strconv.Itoa(seconds); got != want {
		t.Errorf("RateLimit: %s, want %s", got, want)
	}
	if b.now = b.now.Add(time.Duration(seconds-1) * time.Second); b.ask("alice").Code != http.StatusTooManyRequests {
		t.Error("passes a second earlier")
	}
	if b.now = b.now.Add(time.Second); b.ask("alice").Code != http.StatusOK {
		t.Error("does not pass when it was told to come back")
	}
}

// Of several policies the fields name the one that denied, the others are not counted, and no t is later than
// Retry-After.
func TestDenialOfOneOfSeveral(t *testing.T) {
	b := newBench(t, httplimit.Config{Policies: []httplimit.Policy{policy("daily", 5, 24*time.Hour), policy("burst", 1, time.Minute)}})
	b.ask("alice")
	w := b.ask("alice")
	if got := b.problem(w).ViolatedPolicies; strings.Join(got, " ") != "burst" {
		t.Errorf("violated: %q", got)
	}
	if got, want := w.Header().Get("RateLimit"), `"daily";r=4, "burst";r=0;t=31`; got != want {
		t.Errorf("RateLimit: %s, want %s", got, want)
	}
	if got := w.Header().Get("Retry-After"); got != "31" {
		t.Errorf("Retry-After: %s", got)
	}
	b.now = b.now.Add(31 * time.Second)
	if got := b.ask("alice").Header().Get("RateLimit"); !strings.HasPrefix(got, `"daily";r=3;`) {
		t.Errorf("the denied request was counted by the other policy: %s", got)
	}
}

// A cost above the limit never passes, so there is no time to wait for.
func TestNoRetryAfterWhereWaitingDoesNotHelp(t *testing.T) {
	p := policy("burst", 2, time.Minute)
	p.Cost = func(httplimit.Call) int64 { return 3 }
	w := newBench(t, httplimit.Config{Policies: []httplimit.Policy{p}}).ask("alice")
	if got := w.Header().Get("Retry-After"); w.Code != http.StatusTooManyRequests || got != "" {
		t.Errorf("status %d, Retry-After %q", w.Code, got)
	}
	if got := w.Header().Get("RateLimit"); got != `"burst";r=2` {
		t.Errorf("RateLimit: %s", got)
	}
}

// Denied callers get different times, none of them too early.
func TestJitterSpreadsReturns(t *testing.T) {
	b := newBench(t, httplimit.Config{Jitter: time.Hour, Policies: []httplimit.Policy{policy("burst", 1, time.Minute)}})
	b.ask("alice")
	told := make(map[int]bool)
	for range 50 {
		h := b.ask("alice").Header()
		seconds, err := strconv.Atoi(h.Get("Retry-After"))
		if err != nil || seconds < 31 || seconds > 31+3600 || !strings.HasSuffix(h.Get("RateLimit"), ";t="+h.Get("Retry-After")) {
			t.Fatalf("%v, %v", h, err)
		}
		told[seconds] = true
	}
	if len(told) < 2 {
		t.Errorf("50 callers were told the same: %v", told)
	}
}

// The fields show an override's limit and window.
func TestAppliedLimitIsTold(t *testing.T) {
	limiter := scripted(func(dataplane.Request) dataplane.Decision {
		return dataplane.Decision{Allowed: true, Limit: 500, Duration: time.Hour, Remaining: 499, ResetAt: began.Add(1500 * time.Millisecond), Override: "vip-*"}
	})
	w := newBench(t, httplimit.Config{Limiter: limiter, Policies: []httplimit.Policy{policy("burst", 2, time.Minute)}}).ask("alice")
	if got := w.Header().Get("RateLimit-Policy"); got != `"burst";q=500;w=3600` {
		t.Errorf("RateLimit-Policy: %s", got)
	}
	if got := w.Header().Get("RateLimit"); got != `"burst";r=499;t=2` {
		t.Errorf("RateLimit: %s, want t in whole seconds, never too few", got)
	}
}

// A policy in shadow mode lets calls pass. It shows no standing to a caller that it would have denied.
func TestShadowModeIsNotShown(t *testing.T) {
	limiter := scripted(func(r dataplane.Request) dataplane.Decision {
		return dataplane.Decision{Allowed: true, Shadowed: r.Namespace == "new", Limit: r.Limit, Duration: r.Duration, ResetAt: began}
	})
	b := newBench(t, httplimit.Config{Limiter: limiter, Legacy: httplimit.LegacyEpoch, Policies: []httplimit.Policy{policy("new", 1, time.Minute), policy("old", 9, time.Minute)}})
	w := b.ask("alice")
	if policies := w.Header().Get("RateLimit-Policy"); w.Code != http.StatusOK || policies != `"old";q=9;w=60` {
		t.Errorf("status %d, RateLimit-Policy %s", w.Code, policies)
	}
	if got := w.Header().Get("X-RateLimit-Limit"); got != "9" {
		t.Errorf("X-RateLimit-Limit: %s", got)
	}
	alone := newBench(t, httplimit.Config{Limiter: limiter, Legacy: httplimit.LegacyEpoch, Policies: []httplimit.Policy{policy("new", 1, time.Minute)}})
	if h := alone.ask("alice").Header(); len(h) != 0 || alone.passed != 1 {
		t.Errorf("%d passed, fields %v", alone.passed, h)
	}
}

// The older fields show the policy that matters most, in both of their dialects.
func TestLegacyFields(t *testing.T) {
	for _, c := range []struct {
		legacy                  httplimit.Legacy
		allowed, denied, remain string
	}{
		{httplimit.LegacyEpoch, strconv.FormatInt(began.Unix()+30, 10), strconv.FormatInt(began.Unix()+31, 10), "0"},
		{httplimit.LegacyDelta, "30", "31", "0"},
	} {
		b := newBench(t, httplimit.Config{Legacy: c.legacy, Policies: []httplimit.Policy{policy("daily", 5, 24*time.Hour), policy("burst", 1, time.Minute)}})
		h := b.ask("alice").Header()
		if h.Get("X-RateLimit-Limit") != "1" || h.Get("X-RateLimit-Remaining") != c.remain || h.Get("X-RateLimit-Reset") != c.allowed {
			t.Errorf("allowed: %v", h)
		}
		if got := b.ask("alice").Header().Get("X-RateLimit-Reset"); got != c.denied {
			t.Errorf("denied: reset %s, want %s", got, c.denied)
		}
	}
}

// With Quiet only denied callers get the fields.
func TestQuiet(t *testing.T) {
	b := newBench(t, httplimit.Config{Quiet: true, Policies: []httplimit.Policy{policy("burst", 1, time.Minute)}})
	if h := b.ask("alice").Header(); len(h) != 0 {
		t.Errorf("fields on what passed: %v", h)
	}
	if h := b.ask("alice").Header(); h.Get("RateLimit") == "" || h.Get("Retry-After") == "" {
		t.Errorf("fields on a denial: %v", h)
	}
}

// Retry-After is not earlier than t, and both fields are lists of RFC 9651's strings with integers, whatever the
// decisions.
func TestFieldsKeepTheirGrammar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, httplimit.PoliciesMax).Draw(t, "policies")
		jitter := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "jitter"))
		decisions := make(map[string]dataplane.Decision)
		config := httplimit.Config{Jitter: jitter, Limiter: scripted(func(r dataplane.Request) dataplane.Decision { return decisions[r.Namespace] })}
		for i := range n {
			p := policy(strings.Repeat("\"", i%2)+`p\`+strconv.Itoa(i), rapid.Int64Range(0, 1<<53-1).Draw(t, "limit"), time.Minute)
			d := dataplane.Decision{
				Allowed: rapid.Bool().Draw(t, "allowed"), Limit: rapid.Int64Range(0, 1<<53-1).Draw(t, "applied"), Remaining: rapid.Int64Range(0, 1<<53-1).Draw(t, "remaining"),
				ResetAt: began.Add(time.Duration(rapid.Int64Range(-int64(time.Second), int64(time.Hour)).Draw(t, "reset"))),
			}
			if !d.Allowed {
				d.RetryAfter = time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "retry"))
			}
			decisions[p.Name] = d
			config.Policies = append(config.Policies, p)
		}
		h := newBenchRapid(t, config)
		policies, standings := parseList(t, h.Get("RateLimit-Policy")), parseList(t, h.Get("RateLimit"))
		if len(policies) != n || len(standings) != n {
			t.Fatalf("%d policies, %d standings of %d", len(policies), len(standings), n)
		}
		retryAfter, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
		for i, s := range standings {
			if s.name != policies[i].name || s.name != config.Policies[i].Name {
				t.Errorf("item %d is of %q in one field and of %q in the other", i, policies[i].name, s.name)
			}
			if reset, ok := s.parameters["t"]; ok && err == nil && reset > retryAfter {
				t.Errorf("t=%d is later than Retry-After: %d", reset, retryAfter)
			}
			if d := decisions[s.name]; err == nil && !d.Allowed && time.Duration(retryAfter)*time.Second < d.RetryAfter {
				t.Errorf("Retry-After: %d is too early for %v", retryAfter, d.RetryAfter)
			}
		}
	})
}

func newBenchRapid(t *rapid.T, config httplimit.Config) http.Header {
	config.Clock = func() time.Time { return began }
	guard, err := httplimit.New(config)
	if err != nil {
		t.Fatal(err)
	}
	h := make(http.Header)
	guard.Check(t.Context(), call{header: http.Header{"X-Api-Key": {"alice"}}}).WriteFields(h)
	return h
}

type listItem struct {
	name       string
	parameters map[string]int64
}

// parseList reads the part of RFC 9651 that the fields use: a list of strings with
// integer parameters.
func parseList(t *rapid.T, s string) (items []listItem) {
	for {
		if !strings.HasPrefix(s, `"`) {
			t.Fatalf("no string at %q", s)
		}
		item, i := listItem{parameters: make(map[string]int64)}, 1
		for ; i < len(s) && s[i] != '"'; i++ {
			if s[i] == '\\' {
				i++
			}
			item.name += string(s[i])
		}
		s = s[i+1:]
		for strings.HasPrefix(s, ";") {
			key, rest, _ := strings.Cut(s[1:], "=")
			digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil || len(digits) > 15 || key == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz") != "" {
				t.Fatalf("no integer parameter at %q: %v", s, err)
			}
			item.parameters[key] = n
			s = rest[len(digits):]
		}
		items = append(items, item)
		if s == "" {
			return items
		}
		if !strings.HasPrefix(s, ", ") {
			t.Fatalf("no comma at %q", s)
		}
		s = s[2:]
	}
}
