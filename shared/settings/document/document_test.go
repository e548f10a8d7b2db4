package document

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

const head = "kind: weir-settings\nversion: 1\n"

// A document is for people: a line for each item, in a fixed order. Both forms have the same content.
func TestADocumentInBothForms(t *testing.T) {
	fleet, eu := tuning.Default(), tuning.Default()
	eu.Floor = 0.2
	d := settings.Document{
		Tuning: &fleet, RegionTuning: map[string]tuning.Tuning{"eu": eu},
		Namespaces: []settings.Namespace{
			{Workspace: "acme", Namespace: "ai", Mode: "estimate", Outage: "local", NodeShare: "wait", Window: "cells", Estimate: `{"preset":"posthog"}`},
			{Workspace: "acme", Namespace: "007", Mode: "exact", Outage: "open", NodeShare: "flush", Window: "cells", Shadow: true},
			{Workspace: "acme", Namespace: "login", Mode: "exact", Outage: "closed", NodeShare: "wait", Window: "precise", Shadow: true},
		},
		Overrides: []settings.Override{
			{Workspace: "acme", Namespace: "api", Pattern: "user_*", Limit: 100, DurationMs: 60_000, Candidate: 60, Shadow: true},
			{Workspace: "acme", Namespace: "api", Pattern: "abuser", Limit: 0},
		},
	}
	const tuned = `"step": 0.01, "feed_interval_ms": 200, "settings_interval_ms": 5000, "jitter": 0.2, "min_global_duration_ms": 2000, "replay_tick_ms": 100, "fresh_for_ms": 5000, "strict_for_ms": 0}`
	yaml := head + `tuning: {floor: 0.1, ` + unquoted(tuned) + `
region_tuning:
  "eu": {floor: 0.2, ` + unquoted(tuned) + `
namespaces:
  - {workspace: "acme", namespace: "007", mode: "exact", outage: "open", node_share: "flush", shadow: true}
  - {workspace: "acme", namespace: "ai", mode: "estimate", outage: "local", node_share: "wait", estimate: "{\"preset\":\"posthog\"}"}
  - {workspace: "acme", namespace: "login", mode: "exact", outage: "closed", node_share: "wait", window: "precise", shadow: true}
overrides:
  - {workspace: "acme", namespace: "api", pattern: "abuser", limit: 0}
  - {workspace: "acme", namespace: "api", pattern: "user_*", limit: 100, duration_ms: 60000, candidate: 60, shadow: true}
`
	json := `{
  "kind": "weir-settings",
  "version": 1,
  "tuning": {"floor": 0.1, ` + tuned + `,
  "region_tuning": {
    "eu": {"floor": 0.2, ` + tuned + `
  },
  "namespaces": [
    {"workspace": "acme", "namespace": "007", "mode": "exact", "outage": "open", "node_share": "flush", "shadow": true},
    {"workspace": "acme", "namespace": "ai", "mode": "estimate", "outage": "local", "node_share": "wait", "estimate": "{\"preset\":\"posthog\"}"},
    {"workspace": "acme", "namespace": "login", "mode": "exact", "outage": "closed", "node_share": "wait", "window": "precise", "shadow": true}
  ],
  "overrides": [
    {"workspace": "acme", "namespace": "api", "pattern": "abuser", "limit": 0},
    {"workspace": "acme", "namespace": "api", "pattern": "user_*", "limit": 100, "duration_ms": 60000, "candidate": 60, "shadow": true}
  ]
}
`
	for want, print := range map[string]func(*settings.Document) ([]byte, error){yaml: YAML, json: JSON} {
		text, err := print(&d)
		if err != nil || string(text) != want {
			t.Errorf("%v\n%s\nwant\n%s", err, text, want)
		}
		read, err := Parse(text)
		if err != nil || !reflect.DeepEqual(*read, sorted(d)) {
			t.Errorf("%v: %+v", err, read)
		}
	}
}

func unquoted(s string) string { return strings.ReplaceAll(s, `"`, "") }

func sorted(d settings.Document) settings.Document {
	d.Namespaces, d.Overrides = slices.Clone(d.Namespaces), slices.Clone(d.Overrides)
	slices.SortFunc(d.Namespaces, settings.CompareNamespaces)
	slices.SortFunc(d.Overrides, settings.CompareOverrides)
	return d
}

// Documents written by hand: blocks, comments, names that YAML takes for other values, and defaults.
func TestADocumentByHand(t *testing.T) {
	read, err := Parse([]byte(`# of the lab
kind: weir-settings
version: 1
namespaces:
  - workspace: acme
    namespace: on      # a name
    outage: closed
overrides:
- {workspace: 007, namespace: 2026-01-01, pattern: "*", limit: 5}
tuning:
  floor: 0.3
  step: 0.01
  feed_interval_ms: 200
  settings_interval_ms: 5000
  jitter: 0.2
  min_global_duration_ms: 2000
  replay_tick_ms: 100
  fresh_for_ms: 5000
  strict_for_ms: 0
`))
	if err != nil {
		t.Fatal(err)
	}
	want := settings.Namespace{Workspace: "acme", Namespace: "on", Mode: "exact", Outage: "closed", NodeShare: "wait", Window: "cells"}
	if len(read.Namespaces) != 1 || read.Namespaces[0] != want {
		t.Errorf("%+v", read.Namespaces)
	}
	if o := read.Overrides; len(o) != 1 || o[0] != (settings.Override{Workspace: "007", Namespace: "2026-01-01", Pattern: "*", Limit: 5}) {
		t.Errorf("%+v", o)
	}
	if read.TuningOf("eu").Floor != 0.3 {
		t.Errorf("%+v", read.Tuning)
	}
	if empty, err := Parse([]byte(head + "namespaces:\noverrides: []\n")); err != nil || empty.TuningOf("") != tuning.Default() {
		t.Errorf("%+v %v", empty, err)
	}
	if pair, err := Parse([]byte(`{"kind":"weir-settings","version":1,"overrides":[{"workspace":"\ud83d\ude00","namespace":"n","pattern":"p","limit":1}]}`)); err != nil || pair.Overrides[0].Workspace != string(utf16.DecodeRune(0xd83d, 0xde00)) {
		t.Errorf("%+v %v", pair, err)
	}
}

// Errors name the line, the place and the bound.
func TestErrorsNameThePlace(t *testing.T) {
	item := func(more string) string {
		return head + "overrides:\n  - {workspace: a, namespace: b, pattern: c, limit: 1}\n  - {workspace: a, namespace: b, pattern: d" + more + "}\n"
	}
	space := func(more string) string { return head + "namespaces:\n  - {workspace: a, namespace: b" + more + "}\n" }
	crowd := head + "overrides:\n"
	for i := range window.PatternsAlikeMax + 1 {
		crowd += fmt.Sprintf("  - {workspace: a, namespace: b, pattern: \"*%02d*\", limit: 1}\n", i)
	}
	for text, want := range map[string]string{
		"":                                      "it is empty",
		"# nothing":                             "it is empty",
		"- 1":                                   "line 1: the document is not a mapping",
		"kind: other\nversion: 1":               `kind is "other", want weir-settings`,
		"kind: weir-settings\nversion: 2":       "version is 2, want 1",
		"kind: weir-settings":                   "version is missing",
		"version: 1":                            "kind is missing",
		head + "limits: []":                     "line 3: limits is not a known field",
		head + "kind: weir-settings":            "line 3: kind appears twice",
		head + "overrides: 1":                   "line 3: overrides is not a list",
		head + "overrides: [1]":                 "line 3: overrides[0] is not a mapping",
		head + "---\n" + head:                   "text after the document's end",
		head + "tuning: {floor: 0.1}":           "line 3: tuning is refused: invalid tuning: the document lacks step",
		head + "tuning: {floor: x}":             "line 3: tuning is refused",
		head + "tuning: {a: &a [*a]}":           "line 3: tuning is refused: an alias",
		head + "tuning: {floor: 0.1, flor: 1}":  `line 3: tuning is refused: invalid tuning: json: unknown field "flor"`,
		head + "region_tuning: {eu: {flor: 1}}": `line 3: region_tuning.eu is refused: invalid tuning: json: unknown field "flor"`,
		head + "region_tuning: {eu: {}}":        "line 3: region_tuning.eu is refused",
		head + "region_tuning: []":              "line 3: region_tuning is not a mapping",
		item(""):                                "line 5: overrides[1].limit is missing",
		item(", limit: -1"):                     "line 5: overrides[1].limit is -1 (0 to 9007199254740991; 0 blocks)",
		item(", limit: 1.5"):                    `line 5: overrides[1].limit is "1.5", want a whole number`,
		item(`, limit: "1"`):                    "overrides[1].limit is",
		item(", limit: 1, burst: 3"):            "line 5: overrides[1].burst is not a known field",
		item(", limit: 1, limit: 2"):            "line 5: overrides[1].limit appears twice",
		item(", limit: 1, duration_ms: 5"):      "line 5: overrides[1].duration_ms is 5 (0, or 1000 to 31622400000)",
		item(", limit: 1, candidate: -5"):       "line 5: overrides[1].candidate is -5 (0 to 9007199254740991; 0 for none)",
		item(", limit: 1, shadow: yes"):         `line 5: overrides[1].shadow is "yes", want true or false`,
		strings.Replace(item(", limit: 1"), "pattern: d", "pattern: c", 1):                            "line 5: overrides[1] repeats overrides[0]",
		strings.Replace(item(", limit: 1"), "pattern: d", "pattern: 10.0.0.1/8", 1):                   `line 5: overrides[1].pattern is "10.0.0.1/8" (this network is written "10.0.0.0/8")`,
		strings.Replace(item(", limit: 1"), "pattern: d", `pattern: "`+strings.Repeat("*", 9)+`"`, 1): "overrides[1].pattern has 9 '*' (0 to 8)",
		strings.Replace(item(", limit: 1"), "pattern: d", "pattern: ~", 1):                            "line 5: overrides[1].pattern is not a text",
		strings.Replace(item(", limit: 1"), "pattern: d", "pattern: "+strings.Repeat("d", 256), 1):    "overrides[1].pattern is 256 bytes long (1 to 255)",
		space(", mode: fast"):                       `line 4: namespaces[0].mode is "fast" (exact, estimate)`,
		space(", outage: no"):                       `namespaces[0].outage is "no" (local, open, closed)`,
		space(", node_share: ''"):                   `namespaces[0].node_share is "" (wait, flush)`,
		space(", window: sliding"):                  `namespaces[0].window is "sliding" (cells, precise)`,
		space(", window: ''"):                       `namespaces[0].window is "" (cells, precise)`,
		space(", window: precise, mode: estimate"):  `line 4: namespaces[0].window is "precise" and mode is "estimate" (a precise window takes mode exact)`,
		space(", estimate: '{\"flor\":1}'"):         `namespaces[0].estimate is refused: estimate: json: unknown field "flor"`,
		space("}\n  - {workspace: a, namespace: b"): "line 5: namespaces[1] repeats namespaces[0]",
		space(", mode: estimate, estimate: '{\"drain\":\"leaky\"}'") + "overrides: [{workspace: a, namespace: b, pattern: c, limit: 1, candidate: 2}]": "line 5: overrides[0].candidate is 2 (0 in a namespace that estimates with a leaky drain",
		crowd: "line 36: overrides[32].pattern is one of more than 32 patterns with several '*' that begin alike",
		"{\"kind\":\"weir-settings\",\n\"version\":1,\n\"overrides\":[{\"workspace\":\"a\",\n\"limit\":-1}]}": "line 3: overrides[0].namespace is missing",
		"{\"kind\":\n!}":                     "line 1: invalid character",
		`{"kind":"weir`:                      "unexpected EOF",
		`{} {}`:                              "text after the document's end",
		strings.Repeat("[", 20):              "yaml:",
		`{"kind":` + strings.Repeat("[", 20): "more than 8 levels",
		"kind: \xff":                         "not valid UTF-8",
		"#" + strings.Repeat(" ", BytesMax):  "bytes long (at most 16777216)",
		head + "overrides: [" + strings.Repeat("1,", settings.OverridesMax) + "1]":   "overrides has 100001 items (at most 100000)",
		head + "namespaces: [" + strings.Repeat("1,", settings.NamespacesMax) + "1]": "namespaces has 10001 items (at most 10000)",
	} {
		_, err := Parse([]byte(text))
		if !errors.Is(err, settings.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200q:\n%v, want %s", text, err, want)
		}
	}
}

// Of many problems the first are listed, with the number of the others.
func TestManyProblemsAreCounted(t *testing.T) {
	_, err := Parse([]byte(head + "overrides: [" + strings.Repeat("1,", 14) + "1]"))
	if lines := strings.Split(err.Error(), "\n"); len(lines) != 11 || !strings.HasSuffix(lines[10], "and 5 more") {
		t.Errorf("%v", err)
	}
}

// Documents that Parse would reject are not written.
func TestNothingInvalidIsWritten(t *testing.T) {
	d := settings.Document{Overrides: []settings.Override{{Workspace: "a", Namespace: "b", Pattern: "c", Limit: -1}}}
	if _, err := YAML(&d); !errors.Is(err, settings.ErrInvalid) || !strings.Contains(err.Error(), "overrides[0].limit is -1") {
		t.Errorf("%v", err)
	}
	odd := tuning.Default()
	odd.Floor = 2
	d = settings.Document{RegionTuning: map[string]tuning.Tuning{"eu": odd}}
	if _, err := JSON(&d); !errors.Is(err, settings.ErrInvalid) || !strings.Contains(err.Error(), "region_tuning.eu is refused") {
		t.Errorf("%v", err)
	}
}

// parse(print(x)) is x, in both forms.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := documents().Draw(t, "document")
		for name, print := range map[string]func(*settings.Document) ([]byte, error){"yaml": YAML, "json": JSON} {
			text, err := print(&d)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Parse(text); err != nil || !reflect.DeepEqual(*again, d) {
				t.Fatalf("%s: %v\n%s\n%+v, want\n%+v", name, err, text, again, d)
			}
		}
	})
}

// documents draws valid documents, sorted.
func documents() *rapid.Generator[settings.Document] {
	name := rapid.StringMatching(`[^\s].{0,20}`).Filter(func(s string) bool { return strings.TrimSpace(s) != "" && len(s) <= 48 })
	return rapid.Custom(func(t *rapid.T) (d settings.Document) {
		tunings := rapid.Custom(func(t *rapid.T) tuning.Tuning {
			tuned := tuning.Default()
			tuned.Floor = rapid.Float64Range(0, 1).Draw(t, "floor")
			return tuned
		})
		d.Tuning = rapid.Ptr(tunings, true).Draw(t, "tuning")
		if regions := rapid.MapOfN(name, tunings, 0, 3).Draw(t, "regions"); len(regions) > 0 {
			d.RegionTuning = regions
		}
		namespaces := rapid.Custom(func(t *rapid.T) settings.Namespace {
			n := settings.Namespace{
				Workspace: name.Draw(t, "workspace"), Namespace: name.Draw(t, "namespace"), Shadow: rapid.Bool().Draw(t, "shadow"),
				Mode:   rapid.SampledFrom([]string{"exact", "estimate"}).Draw(t, "mode"),
				Outage: rapid.SampledFrom([]string{"local", "open", "closed"}).Draw(t, "outage"), NodeShare: rapid.SampledFrom([]string{"flush", "wait"}).Draw(t, "node_share"),
				Estimate: rapid.SampledFrom([]string{"", `{"floor":3}`, `{ "preset": "default",
	"overrides": "user = 7" }`}).Draw(t, "estimate"),
				Window: "cells",
			}
			if n.Mode == "exact" {
				n.Window = rapid.SampledFrom([]string{"cells", "precise"}).Draw(t, "window")
			}
			return n
		})
		overrides := rapid.Custom(func(t *rapid.T) settings.Override {
			return settings.Override{
				Workspace: name.Draw(t, "workspace"), Namespace: name.Draw(t, "namespace"), Pattern: name.Draw(t, "pattern"),
				Limit:      rapid.Int64Range(0, window.LimitMax).Draw(t, "limit"),
				DurationMs: rapid.SampledFrom([]int64{0, 1_000, window.DurationMax.Milliseconds()}).Draw(t, "duration"),
				Candidate:  rapid.Int64Range(0, 3).Draw(t, "candidate"), Shadow: rapid.Bool().Draw(t, "shadow"),
			}
		})
		d.Namespaces = rapid.SliceOfNDistinct(namespaces, 0, 4, func(n settings.Namespace) settings.Namespace {
			return settings.Namespace{Workspace: n.Workspace, Namespace: n.Namespace}
		}).Draw(t, "namespaces")
		d.Overrides = rapid.SliceOfNDistinct(overrides, 0, 4, func(o settings.Override) settings.Override {
			return settings.Override{Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern}
		}).Draw(t, "overrides")
		for i := range d.Overrides {
			d.Overrides[i].Pattern = strings.Replace(d.Overrides[i].Pattern, "*", "_", max(0, strings.Count(d.Overrides[i].Pattern, "*")-window.PatternStarsMax))
		}
		if len(d.Namespaces) == 0 {
			d.Namespaces = nil
		}
		if len(d.Overrides) == 0 {
			d.Overrides = nil
		}
		return sorted(d)
	})
}

// Every document that Parse accepts can be written, and is the same when it is read again. Every other error is
// settings.ErrInvalid.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"", head, head + "overrides: [{workspace: a, namespace: b, pattern: '*', limit: 0x10}]", `{"kind":"weir-settings","version":1}`,
		head + "namespaces:\n- &x {workspace: a, namespace: \"\\u0085\", mode: exact}\n- *x", head + "tuning: {floor: 1e-3}", head + "region_tuning: {? [a] : b}", "a: !!binary x", "%YAML 1.1\n---\n" + head} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse(text)
		if err != nil {
			if !errors.Is(err, settings.ErrInvalid) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		for _, print := range []func(*settings.Document) ([]byte, error){YAML, JSON} {
			out, err := print(d)
			if err != nil {
				t.Fatalf("cannot be written: %v", err)
			}
			again, err := Parse(out)
			if err != nil {
				t.Fatalf("cannot be read again: %v\n%s", err, out)
			}
			if second, _ := YAML(again); string(second) != string(first(YAML(d))) {
				t.Fatalf("changes in a round trip:\n%s", out)
			}
		}
	})
}

func first(text []byte, _ error) []byte { return text }

// Documents can be merged if nothing is set twice, and if Parse accepts the whole.
func TestMerge(t *testing.T) {
	parse := func(name, text string) Part {
		t.Helper()
		d, err := Parse([]byte("kind: weir-settings\nversion: 1\n" + text))
		if err != nil {
			t.Fatal(err)
		}
		return Part{Name: name, Document: d}
	}
	a := parse("a", "namespaces: [{workspace: w, namespace: n, mode: estimate, estimate: '{\"preset\":\"posthog\"}'}]\n")
	b := parse("b", "overrides: [{workspace: w, namespace: m, pattern: u, limit: 1, candidate: 2}]\n")
	all, err := Merge([]Part{a, b})
	if err != nil || len(all.Namespaces) != 1 || len(all.Overrides) != 1 || all.Tuning != nil {
		t.Errorf("%+v, %v", all, err)
	}
	fleet := tuning.Default()
	tuned := Part{Name: "c", Document: &settings.Document{Tuning: &fleet, RegionTuning: map[string]tuning.Tuning{"eu": fleet}}}
	if all, err := Merge([]Part{a, tuned}); err != nil || all.Tuning == nil || len(all.RegionTuning) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	again := tuned
	again.Name = "d"
	for says, parts := range map[string][]Part{
		`d: tuning is in c, too`:                           {tuned, again},
		`d: region_tuning "eu" is in c, too`:               {tuned, again},
		`e: namespace "n" of workspace "w" is in a, too`:   {a, {"e", a.Document}},
		`of all documents together: settings document: ov`: {a, parse("f", "overrides: [{workspace: w, namespace: n, pattern: u, limit: 1, candidate: 2}]\n")},
	} {
		if _, err := Merge(parts); !errors.Is(err, settings.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}
