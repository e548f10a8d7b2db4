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
	return &rules
}

// entries are pairs of key and value.
func entries(words ...string) (list []*ratelimitv3.RateLimitDescriptor_Entry) {
	for i := 0; i < len(words); i += 2 {
		list = append(list, &ratelimitv3.RateLimitDescriptor_Entry{Key: words[i], Value: words[i+1]})
	}
	return list
}

// A descriptor's rule has the descriptor's own depth. On every level a value is preferred to a pattern, and a pattern
// to the key without a value.
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

// An invalid rule is an error that has the rule's place.
func TestFaultyRules(t *testing.T) {
	for content, want := range map[string]string{
		"\ufeff":                       "rules.yaml: the file is empty",
		"":                             "rules.yaml: the file is empty",
		"descriptors: []":              "domain is 0 bytes long (1 to 255)",
		"domain: a\ndescriptor: []":    `line 2: unknown key "descriptor"`,
		"domain: a\n---\ndomain: b":    "want one YAML document",
		"domain: a\ndescriptors: [{}]": "a.: key is empty", "domain: a\ndescriptors:\n- {value: x}": "line 3: a.: key is empty",
		"domain: a\ndescriptors: [{key: k}, {key: k}]":                                                   "a.k: appears twice",
		"domain: a\ndescriptors: [{key: k, value: v*}, {key: k, value: v*}]":                             "a.k_v*: appears twice",
		"domain: a\ndescriptors: [{key: k, descriptors: [{key: l, rate_limit: {unit: fortnight}}]}]":     `a.k.l: unit is "fortnight"`,
		"domain: a\ndescriptors: [{key: k, rate_limit: {requests_per_unit: 3}}]":                         `a.k: unit is ""`,
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: unknown}}]":                                `a.k: unit is "unknown"`,
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: second, unlimited: true}}]":                "a.k: unlimited has no unit",
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: -1}}]":          "line 2: a.k: requests_per_unit is -1 (0 to 4294967295)",
		"domain: a\ndescriptors: [{key: k, value: v, share_threshold: true}]":                            "a.k_v: share_threshold needs a value with a '*'",
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: second, name: n, replaces: [{name: n}]}}]": `a.k: replaces "n"`,
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: second, replaces: [{}]}}]":                 `a.k: replaces ""`,
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: second}}]":                                 "line 2: a.k: requests_per_unit is missing (0 to 4294967295; 0 blocks)",
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: }}]":            "line 2: requests_per_unit has no value",
		"domain: a\ndescriptors:\n- key: k\n  rate_limit:\n":                                             "line 4: rate_limit has no value",
		"domain: a\ndescriptors:\n":                         "line 2: descriptors has no value",
		"domain: a\ndescriptors: [null]":                    "line 2: descriptors has no value",
		"domain: a\ndescriptors: {key: k}":                  "line 2: found a value of type map, want a list",
		"domain: a\ndescriptors: [k]":                       "line 2: found a value of type str, want a mapping",
		"domain: a\ndescriptors: [{key: k, rate_limit: 5}]": "line 2: found a value of type int, want a mapping",
		"domain: [a]":                           "line 1: domain is a list",
		"domain: ' a'":                          `line 1: domain is " a": it must not begin or end with a blank`,
		"domain: a\ndescriptors: [{key: 'k '}]": `line 2: a: key is "k ": it must not begin or end with a blank`,
		"domain: a\ndescriptors: [{key: k, value: ' v'}]":                                                          `line 2: a.k: value is " v": it must not begin or end with a blank`,
		"domain: a\ndescriptors: [{key: k, value: \"v\\x01\"}]":                                                    "a.k: value is",
		"domain: a\ndescriptors: [{key: k, value: [v]}]":                                                           "line 2: a.k: value is a list",
		"domain: a\ndescriptors: [{key: k, key: l}]":                                                               `line 2: mapping key "key" already defined at line 2`,
		"domain: a\ndomain: b":                                                                                     `mapping key "domain" already defined`,
		"domain: a\ndescriptors: [{key: k, shadow_mode: yes}]":                                                     `line 2: a.k: shadow_mode is "yes": want true or false`,
		"domain: a\ndescriptors: [{key: k, quota_mode: 1}]":                                                        `a.k: quota_mode is "1"`,
		"domain: a\ndescriptors: [{key: k, detailed_metric: 'true'}]":                                              "a.k: detailed_metric is the text",
		"domain: a\ndescriptors: [{key: k, rate_limit: {unlimited: 'true'}}]":                                      "a.k: unlimited is the text",
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: 'second ', requests_per_unit: 1}}]":                  `a.k: unit is "second "`,
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: [second], requests_per_unit: 1}}]":                   "a.k: unit is a list",
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: day, unit_multiplier: 0, requests_per_unit: 1}}]":    "a.k: unit_multiplier is 0 (1 to 366)",
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: day, unit_multiplier: 367, requests_per_unit: 1}}]":  "a.k: unit_multiplier is 367 (1 to 366)",
		"domain: a\ndescriptors: [{key: k, rate_limit: {unit: year, unit_multiplier: 1.5, requests_per_unit: 1}}]": `a.k: unit_multiplier is "1.5"`,
		"domain: a\ndescriptors: [{key: k, rate_limit: {unlimited: true, unit_multiplier: 2}}]":                    "a.k: unlimited has no unit",
		"a: &a [*a]": `unknown key "a"`,
	} {
		if _, err := Parse([]reload.File{{Path: "rules.yaml", Content: []byte(content)}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", content, err, want)
		}
	}
	var many strings.Builder
	many.WriteString("domain: a\ndescriptors:\n")
	for range 40 {
		many.WriteString("- {key: k, value: v, share_threshold: true, rate_limit: {unit: eon, requests_per_unit: 0.5}}\n")
	}
	if _, err := Parse([]reload.File{{Path: "rules.yaml", Content: []byte(many.String())}}); err == nil || strings.Count(err.Error(), "\n") != faultsMax-1 {
		t.Errorf("a file in which everything is wrong: %v", err)
	}
}

// A number is read exactly as written, or is an error: no part is dropped, and no other base is read.
func TestNumbersOfRulesAreWhatIsWritten(t *testing.T) {
	limitOf := func(n string) (Rules, error) {
		content := "domain: a\ndescriptors:\n  - key: k\n    rate_limit: {unit: minute, requests_per_unit: " + n + "}\n"
		return Parse([]reload.File{{Path: "rules.yaml", Content: []byte(content)}})
	}
	for _, n := range []string{"0.5", "1.9", "0100", "0x10", "0b11", "0o7", "-0.5", "-0", "4294967295.9", "4294967296", "1_000", "1e3", "+1", "", "~", "''", "'10'", "ten", "true", ".inf", ".nan", "[1]", "{a: 1}", "!!int '10'"} {
		if _, err := limitOf(n); err == nil || !strings.Contains(err.Error(), "rules.yaml: line 4: ") || !strings.Contains(err.Error(), "requests_per_unit") {
			t.Errorf("%q: %v, want an error with the line and the field", n, err)
		}
	}
	for n, want := range map[string]int64{"0": 0, "1": 1, "4294967295": 1<<32 - 1} {
		rules, err := limitOf(n)
		if err != nil {
			t.Fatal(err)
		}
		if limit, _ := rules.match("a", entries("k", "v")); limit.limit != want {
			t.Errorf("%s is %d", n, limit.limit)
		}
	}
}

// Texts are read as written: names such as NO, 007 and 1.10 stay the same, and so does the value of an anchor.
func TestTextsOfRulesAreWhatIsWritten(t *testing.T) {
	rules := parsed(t, `
domain: a
descriptors:
  - {key: country, value: NO, rate_limit: &ten {unit: minute, requests_per_unit: 10}}
  - {key: version, value: 1.10, rate_limit: *ten}
  - {key: code, value: 007, rate_limit: *ten}
  - {key: day, value: 2026-01-01, rate_limit: *ten}
  - {key: flag, value: true, rate_limit: {<<: *ten, requests_per_unit: 3}}
  - {key: empty, value: "", rate_limit: *ten}
`)
	for _, step := range []struct {
		key, value string
		limit      int64
	}{{"country", "NO", 10}, {"version", "1.10", 10}, {"version", "1.1", -1}, {"code", "007", 10}, {"code", "7", -1},
		{"day", "2026-01-01", 10}, {"flag", "true", 3}, {"empty", "anything", 10}} {
		limit, _ := rules.match("a", entries(step.key, step.value))
		if limit == nil && step.limit >= 0 || limit != nil && limit.limit != step.limit {
			t.Errorf("%s %s: %+v, want %d", step.key, step.value, limit, step.limit)
		}
	}
}

// A limit can be for several units, like a limit that a descriptor carries.
func TestRulesTakeUnitMultipliers(t *testing.T) {
	rules := parsed(t, `
domain: a
descriptors:
  - {key: k, rate_limit: {unit: minute, unit_multiplier: 15, requests_per_unit: 10}}
  - {key: one, rate_limit: {unit: minute, unit_multiplier: 1, requests_per_unit: 10}}
  - {key: most, rate_limit: {unit: day, unit_multiplier: 366, requests_per_unit: 10}}
`)
	for key, want := range map[string]struct {
		length     time.Duration
		multiplier uint32
	}{"k": {15 * time.Minute, 15}, "one": {time.Minute, 0}, "most": {366 * 24 * time.Hour, 366}} {
		limit, _ := rules.match("a", entries(key, "v"))
		if limit.duration != want.length || limit.onTheWire.UnitMultiplier.GetValue() != want.multiplier {
			t.Errorf("%s: %v, %v", key, limit.duration, limit.onTheWire)
		}
	}
}

// A domain in several files has the rules of all of them. If a key and value appear twice, the error names both places.
func TestFilesOfOneDomainAreOne(t *testing.T) {
	rule := func(key string) []byte {
		return []byte("domain: a\ndescriptors:\n  - {key: " + key + ", rate_limit: {unit: minute, requests_per_unit: 1}}\n")
	}
	files := []reload.File{{Path: "1.yaml", Content: rule("k")}, {Path: "2.yaml", Content: rule("l")}, {Path: "3.yaml", Content: []byte("domain: a")}}
	rules, err := Parse(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"k", "l"} {
		if limit, _ := rules.match("a", entries(key, "v")); limit == nil {
			t.Errorf("%s has no limit", key)
		}
	}
	_, err = Parse(append(files, reload.File{Path: "4.yaml", Content: rule("k")}))
	if err == nil || err.Error() != "rules in 4.yaml: line 3: a.k: appears twice: also in 1.yaml, line 3" {
		t.Errorf("the same rule in two files: %v", err)
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

// Different descriptors have different identifiers, all within an identifier's length, for any bytes.
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

// A file with any bytes is rules or an error, and rules can be searched.
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
		for domain, top := range rules {
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
