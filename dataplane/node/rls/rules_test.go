package rls

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/shared/reload"
	"github.com/weirhq/weir/shared/window"
)

// shop uses everything that a file may hold.
const shop = `
domain: shop
descriptors:
  - key: plan
    value: free
    rate_limit: {name: free, unit: minute, requests_per_unit: 10}
    descriptors:
      - key: user
        rate_limit: {unit: second, requests_per_unit: 2}
        detailed_metric: true
      - key: user
        value: bot*
        rate_limit: {unit: DAY, requests_per_unit: 0}
  - key: plan
    rate_limit: {unit: hour, requests_per_unit: 7}
    value_to_metric: true
  - key: path
    value: /files/*/raw
    share_threshold: true
    rate_limit: {unit: week, requests_per_unit: 3}
  - key: path
    value: /*
    rate_limit: {unit: month, requests_per_unit: 4}
  - key: internal
    rate_limit: {unlimited: true}
  - key: soft
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: daily
    quota_mode: true
    metadata: {team: [a, b], nested: {x: 1}}
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: vip
    rate_limit:
      unit: minute
      requests_per_unit: 100
      replaces: [{name: free}]
`

func parsed(t testing.TB, content string) *Rules {
	t.Helper()
	rules, err := Parse([]reload.File{{Path: "rules.yaml", Content: []byte(content)}})
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// entries are pairs of key and value.
func entries(words ...string) (list []*ratelimitv3.RateLimitDescriptor_Entry) {
	for i := 0; i < len(words); i += 2 {
		list = append(list, &ratelimitv3.RateLimitDescriptor_Entry{Key: words[i], Value: words[i+1]})
	}
	return list
}

// A descriptor's rule is that of its own depth, found by value before pattern before
// key alone, on every level.
func TestMatching(t *testing.T) {
	rules := parsed(t, shop)
	const none = -1
	for _, step := range []struct {
		entries []string
		limit   int64
		length  time.Duration
		shared  bool
	}{
		{[]string{"plan", "free"}, 10, time.Minute, false},
		{[]string{"plan", "gold"}, 7, time.Hour, false}, // no rule for its value
		{[]string{"plan", ""}, 7, time.Hour, false},
		{[]string{"plan", "free", "user", "42"}, 2, time.Second, false},
		{[]string{"plan", "free", "user", "bot-7"}, 0, 24 * time.Hour, false}, // pattern before key
		{[]string{"plan", "gold", "user", "42"}, none, 0, false},              // nothing below that rule
		{[]string{"plan", "free", "user", "42", "x", "y"}, none, 0, false},    // deeper than the rules
		{[]string{"user", "42"}, none, 0, false},                              // a rule of another level
		{[]string{"path", "/files/a/raw"}, 3, 7 * 24 * time.Hour, true},
		{[]string{"path", "/files//raw"}, 3, 7 * 24 * time.Hour, true},
		{[]string{"path", "/files/raw"}, 4, 30 * 24 * time.Hour, false}, // the '*' between two slashes
		{[]string{"path", "/files/a/raw/b"}, 4, 30 * 24 * time.Hour, false},
		{[]string{"path", "files"}, none, 0, false},
		{[]string{"plan_free", ""}, none, 0, false}, // keys and values are not joined
		{[]string{"PLAN", "free"}, none, 0, false},
		{nil, none, 0, false},
	} {
		limit, shared := rules.match("shop", entries(step.entries...))
		switch {
		case limit == nil && step.limit != none:
			t.Errorf("%v: no limit, want %d", step.entries, step.limit)
		case limit != nil && (limit.limit != step.limit || limit.duration != step.length || shared != step.shared):
			t.Errorf("%v: %d per %v, shared %v; want %d per %v, %v", step.entries, limit.limit, limit.duration, shared, step.limit, step.length, step.shared)
		}
	}
	if limit, _ := rules.match("elsewhere", entries("plan", "free")); limit != nil {
		t.Error("a rule of another domain matches")
	}
	if got := rules.sharedPatterns("shop", entries("path", "/files/a/raw")); !slices.Equal(got, []string{"/files/*/raw"}) {
		t.Errorf("shared patterns are %q", got)
	}
}

// A rule that the node does not understand is an error that says where.
func TestFaultyRules(t *testing.T) {
	for content, want := range map[string]string{
		"":                             "rules.yaml: the file is empty",
		"descriptors: []":              "domain is 0 bytes long (1 to 255)",
		"domain: a\ndescriptor: []":    `line 2: unknown key "descriptor"`,
		"domain: a\n---\ndomain: b":    "want one YAML document",
		"domain: a\ndescriptors: [{}]": "a.: key is empty",
		"domain: a\ndescriptors: [{key: k}, {key: k}]":                                                   "a.k: appears twice",
		"domain: a\ndescriptors: [{key: k, value: v*}, {key: k, value: v*}]":                             "a.k_v*: appears twice",
		"domain: a\ndescriptors: [{key: k, descriptors: [{key: l, rate_limit: {unit: fortnight}}]}]":     `a.k.l: unit is "fortnight"`,
		"domain: a\ndescriptors: [{key: k, rate_limit: {requests_per_unit: 3}}]":                         `a.k: unit is ""`,
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: unknown}}]":                                `a.k: unit is "unknown"`,
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: second, unlimited: true}}]":                "a.k: unlimited has no unit",
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: -1}}]":          "cannot unmarshal",
		"domain: a\ndescriptors: [{key: k, value: v, share_threshold: true}]":                            "a.k_v: share_threshold is for values with a '*'",
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: second, name: n, replaces: [{name: n}]}}]": `a.k: replaces "n"`,
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: second, replaces: [{}]}}]":                 `a.k: replaces ""`,
	} {
		if _, err := Parse([]reload.File{{Path: "rules.yaml", Content: []byte(content)}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", content, err, want)
		}
	}
	same := []byte("domain: a")
	if _, err := Parse([]reload.File{{Path: "1.yaml", Content: same}, {Path: "2.yaml", Content: same}}); err == nil || !strings.Contains(err.Error(), `2.yaml: domain "a" is in another file too`) {
		t.Errorf("two files of one domain: %v", err)
	}
}

// matches agrees with a matcher that tries every way to spread the value.
func TestPatternsAgreeWithADumbMatcher(t *testing.T) {
	var dumb func(pattern, value string) bool
	dumb = func(pattern, value string) bool {
		if pattern == "" {
			return value == ""
		}
		if pattern[0] == '*' {
			return dumb(pattern[1:], value) || value != "" && dumb(pattern, value[1:])
		}
		return value != "" && value[0] == pattern[0] && dumb(pattern[1:], value[1:])
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*]{0,4}\*[ab*]{0,4}`).Draw(t, "pattern")
		value := rapid.StringMatching(`[ab]{0,8}`).Draw(t, "value")
		if got, want := window.MatchesParts(window.PatternParts(pattern), value), dumb(pattern, value); got != want {
			t.Fatalf("%q matches %q: %v, want %v", pattern, value, got, want)
		}
	})
}

// Different descriptors have different identifiers, all within an identifier's length,
// whatever their bytes.
func TestIdentifiersAreInjective(t *testing.T) {
	word := rapid.OneOf(rapid.StringMatching(`[ab=,%#*2CDF]{0,6}|a{200,300}`), rapid.Custom(func(t *rapid.T) string {
		return string(rapid.SliceOfN(rapid.SampledFrom([]byte("%CFé\x00\xff\xc3\xed\xa0\x80")), 0, 6).Draw(t, "bytes"))
	}))
	descriptor := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) pair {
		return pair{word.Draw(t, "key"), word.Draw(t, "value")}
	}), 1, 4)
	name := func(pairs []pair) string {
		var words []string
		for _, p := range pairs {
			words = append(words, p.key, p.value)
		}
		return identifier(entries(words...), nil)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := descriptor.Draw(t, "a"), descriptor.Draw(t, "b")
		if n := len(name(a)); n < 1 || n > window.IdentifierBytesMax || !utf8.ValidString(name(a)) {
			t.Fatalf("%v has an identifier of %d bytes, %q", a, n, name(a))
		}
		if slices.Equal(a, b) != (name(a) == name(b)) {
			t.Fatalf("%v is %q, %v is %q", a, name(a), b, name(b))
		}
		// A value that looks like a pattern is not that pattern.
		if name(a) == identifier(entries("k", "x"), []string{"v*"}) {
			t.Fatalf("%v has the identifier of a pattern", a)
		}
	})
	if got := name([]pair{{"plan", "free"}, {"user", "a,b"}}); got != "plan=free,user=a%2Cb" {
		t.Errorf("identifier is %q", got)
	}
}

// Whatever bytes a file holds: it is rules or an error, and rules can be asked.
func FuzzParse(f *testing.F) {
	f.Add([]byte(shop))
	f.Add([]byte("domain: a\ndescriptors:\n- key: k\n  value: '*'\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, content []byte) {
		rules, err := Parse([]reload.File{{Path: "f", Content: content}})
		if err != nil {
			if rules != nil {
				t.Error("rules and an error")
			}
			return
		}
		for domain, top := range rules.domains {
			if top == nil {
				continue
			}
			for _, key := range slices.Collect(maps.Keys(top.keys)) {
				if limit, _ := rules.match(domain, entries(key, "x")); limit != nil && !limit.Unlimited && limit.duration < window.DurationMin {
					t.Errorf("%s has a duration of %v", key, limit.duration)
				}
			}
		}
	})
}
