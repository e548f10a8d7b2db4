package limitchange

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/window"
)

var plain = Words{Count: func(n int64) string { return strconv.FormatInt(n, 10) }, Span: func(ms int64) string { return fmt.Sprint(ms, " ms") }}

// A change is the same after its way through a message.
func TestAChangeSurvivesItsMessage(t *testing.T) {
	name := rapid.StringMatching(`[a-z/*<>]{1,6}`)
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) *settings.Override {
			if rapid.Bool().Draw(t, "absent "+label) {
				return nil
			}
			return &settings.Override{Workspace: name.Draw(t, "workspace"), Namespace: name.Draw(t, "namespace"), Pattern: name.Draw(t, "pattern"),
				Limit: rapid.Int64().Draw(t, "limit"), DurationMs: rapid.Int64().Draw(t, "duration"), Candidate: rapid.Int64().Draw(t, "candidate"), Shadow: rapid.Bool().Draw(t, "shadow")}
		}
		is := settings.Change{
			Namespaces: []settings.NamespaceChange{{Before: settings.DefaultNamespace("a", "b"),
				After: settings.Namespace{Workspace: "a", Namespace: "b", Mode: "estimate", Outage: "open", NodeShare: "flush", Window: "precise", Shadow: true, Estimate: "{}"}}},
			Overrides: []settings.OverrideChange{{Before: draw("before"), After: draw("after")}},
		}
		wire, err := proto.Marshal(Message(is))
		if err != nil {
			t.Fatal(err)
		}
		var m controlv1.LimitsChange
		if err := proto.Unmarshal(wire, &m); err != nil {
			t.Fatal(err)
		}
		if got := Of(&m); got.Namespaces[0] != is.Namespaces[0] || !same(got.Overrides[0].Before, is.Overrides[0].Before) || !same(got.Overrides[0].After, is.Overrides[0].After) {
			t.Errorf("%+v, want %+v", got, is)
		}
	})
}

// A name with invalid UTF-8 is shown as far as it is valid. A window that a message lacks is not made up: the API
// rejects it.
func TestNamesAreValidAndWindowsAreNotMadeUp(t *testing.T) {
	broken := settings.Override{Workspace: "a\xff", Namespace: "\xff", Pattern: "u\xff*"}
	m := Message(settings.Change{Overrides: []settings.OverrideChange{{Before: &broken}},
		Namespaces: []settings.NamespaceChange{{Before: settings.Namespace{Workspace: "\xff", Namespace: "b\xff"}}}})
	if _, err := proto.Marshal(m); err != nil || m.GetOverrides()[0].GetBefore().GetPattern() != "u\uFFFD*" {
		t.Errorf("%v: %v", m, err)
	}
	if got := Of(m).Namespaces[0].Before.Window; got != "" {
		t.Errorf("window %q", got)
	}
}

func same(a, b *settings.Override) bool { return a == b || a != nil && b != nil && *a == *b }

// Each item is a line with its sign. A changed item lists only the fields that change.
func TestLines(t *testing.T) {
	o := settings.Override{Workspace: "acme", Namespace: "api", Pattern: "u*", Limit: 100, DurationMs: 60_000}
	less, blocked, all := o, o, o
	less.Limit, less.Candidate, less.Shadow = 50, 7, true
	blocked.Limit, blocked.DurationMs, all.Limit = 0, 0, window.LimitMax
	open := settings.DefaultNamespace("acme", "api")
	open.Outage, open.Estimate = "open", `{"a":1}`
	lines := plain.Lines(settings.Change{
		Namespaces: []settings.NamespaceChange{{Before: settings.DefaultNamespace("acme", "api"), After: open}, {Before: open, After: settings.DefaultNamespace("acme", "api")}},
		Overrides:  []settings.OverrideChange{{Before: &o, After: &less}, {After: &less}, {Before: &blocked}, {Before: &o, After: &all}, {}},
	})
	var got []string
	for _, line := range lines {
		got = append(got, line.String())
	}
	if want := `+ namespace acme/api: outage local -> open, estimate - -> {"a":1}
~ namespace acme/api: outage open -> local, estimate {"a":1} -> -
~ override acme/api/u*: limit 100 -> 50, candidate 0 -> 7, shadow false -> true
+ override acme/api/u*: limit 50, window 60000 ms, candidate 7, shadow
- override acme/api/u*: limit 0 (blocks), window of the request
~ override acme/api/u*: limit 100 -> unlimited
~ override //: `; strings.Join(got, "\n") != want {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// A change that a trial cannot hold is an error before it is sent.
func TestCheck(t *testing.T) {
	change := func(items, bytes int) (c settings.Change) {
		for i := range items {
			c.Overrides = append(c.Overrides, settings.OverrideChange{After: &settings.Override{Workspace: "a", Namespace: "b", Pattern: fmt.Sprintf("%0*d", bytes, i), Limit: 1}})
		}
		return c
	}
	someone := []*controlv1.ProtectedCaller{{Workspace: "a", Namespace: "b", Pattern: "c"}}
	if err := Check(change(settings.ChangesMax, 5), someone); err != nil {
		t.Error(err)
	}
	for says, err := range map[string]error{
		"the change has 0 items (1 to 500)":       Check(settings.Change{}, nil),
		"the change has 501 items (1 to 500)":     Check(change(settings.ChangesMax+1, 5), nil),
		"(at most 60000): roll it out in parts":   Check(change(settings.ChangesMax, 200), nil),
		"protected[1]: ":                          Check(change(1, 5), append(someone, &controlv1.ProtectedCaller{Workspace: "a", Namespace: "b"})),
		"has 101 protected callers (at most 100)": Check(change(1, 5), make([]*controlv1.ProtectedCaller, settings.ProtectedMax+1)),
	} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// Only the pattern of a protected caller can contain a slash. Its bounds are those of an override.
func TestProtected(t *testing.T) {
	for text, want := range map[string][3]string{
		"acme/api/partner_*": {"acme", "api", "partner_*"}, "a/b/c/d//": {"a", "b", "c/d//"}, "a/b/203.0.113.0/24": {"a", "b", "203.0.113.0/24"},
	} {
		p, err := Protected(text)
		if err != nil || [3]string{p.GetWorkspace(), p.GetNamespace(), p.GetPattern()} != want {
			t.Errorf("%q: %v, %v", text, p, err)
		}
	}
	for text, says := range map[string]string{
		"":    "is no protected caller (want WORKSPACE/NAMESPACE/PATTERN",
		"a/b": "is no protected caller", "a/b/": `protected caller "a/b/": pattern`, "/b/c": "workspace", "a//c": "namespace",
		"a/b/" + strings.Repeat("x", 300): "pattern", "a/b/10.0.0.1/8": "pattern",
	} {
		if p, err := Protected(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v", text, p, err)
		}
	}
}

func FuzzProtected(f *testing.F) {
	for _, text := range []string{"acme/api/partner_*", "a/b", "a/b/10.0.0.0/8", "a/b/\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Protected(text)
		if err == nil && p.GetWorkspace()+"/"+p.GetNamespace()+"/"+p.GetPattern() != text {
			t.Errorf("%q: %v", text, p)
		}
	})
}
