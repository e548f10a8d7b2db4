package evidence

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/window"
)

// Each caller counts once, however many goroutines count it.
func TestCallersAreCountedOnce(t *testing.T) {
	l := New(&settings.LimitsTrial{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 2000 {
				l.addCaller(uint64(i % 100))
			}
		})
	}
	wg.Wait()
	if got := l.callers.Load().Count(); got != 100 {
		t.Errorf("%d callers, want 100", got)
	}
}

// A caller is protected exactly if one of the patterns of its namespace matches it.
func TestProtectedCallersAgreeWithTheirPatterns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*]{1,6}|10\.0\.[0-3]\.0/24|10\.0\.1\.7`).
			Filter(func(p string) bool { return window.PatternProblem(p) == "" })
		patterns := rapid.SliceOfN(pattern, 0, settings.ProtectedMax).Draw(t, "patterns")
		trial := &settings.LimitsTrial{Change: settings.Change{Overrides: []settings.OverrideChange{
			{After: &settings.Override{Workspace: "w", Namespace: "n", Pattern: "x"}}}}}
		for _, p := range patterns {
			trial.Protected = append(trial.Protected, settings.Protected{Workspace: "w", Namespace: "n", Pattern: p},
				settings.Protected{Workspace: "w", Namespace: "other", Pattern: "*"})
		}
		s := New(trial).Space(Name{"w", "n"})
		for range 20 {
			identifier := rapid.StringMatching(`[ab]{1,6}|10\.0\.[0-3]\.[0-9]`).Draw(t, "identifier")
			want := false
			for _, p := range patterns {
				want = want || window.Matches(p, identifier)
			}
			if s.protects(identifier) != want {
				t.Fatalf("%q protects %q: %v", patterns, identifier, !want)
			}
		}
	})
}

// The namespaces that a change touches are listed once.
func TestNamespacesOfAChange(t *testing.T) {
	c := settings.Change{Namespaces: []settings.NamespaceChange{{After: settings.DefaultNamespace("w", "b")}},
		Overrides: []settings.OverrideChange{{Before: &settings.Override{Workspace: "w", Namespace: "a", Pattern: "x"}},
			{After: &settings.Override{Workspace: "w", Namespace: "b", Pattern: "x"}}}}
	if got := fmt.Sprint(Namespaces(&c)); got != "[{w a} {w b}]" {
		t.Error(got)
	}
}

// The named protected caller is the first, and its count has no decisions of others.
func TestTheProtectedCallerCountsItsOwnDecisions(t *testing.T) {
	l := New(&settings.LimitsTrial{Change: settings.Change{Overrides: []settings.OverrideChange{
		{After: &settings.Override{Workspace: "w", Namespace: "n", Pattern: "x"}}}},
		Protected: []settings.Protected{{Workspace: "w", Namespace: "n", Pattern: "vip*"}}})
	var h cell.Hasher
	h.Init()
	for _, identifier := range []string{"vip1", "vip2", "vip1", "other", "vip2", "vip2"} {
		id := h.IdentityOf("w", "n", identifier, time.Minute, window.Exact)
		key := window.Key{Workspace: "w", Namespace: "n", Identifier: identifier, Duration: time.Minute}
		l.Space(Name{"w", "n"}).Denied(&id, identifier, 5, 1, func() cell.Names { return h.NamesOf(&key, nil) })
	}
	f := l.Figures(1)
	if f.Protected != 5 || f.Callers.Count() != 3 || f.Caller == nil || string(f.Caller.Identifier) != "vip1" || f.Caller.Count != 2 {
		t.Errorf("%+v, caller %+v", f, f.Caller)
	}
}
