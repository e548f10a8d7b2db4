package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Overrides are exact or wildcards, and the most specific wins; limit 0 blocks; a set after a delete works.
func TestOverrides(t *testing.T) {
	w := newWorld(t)
	w.flushes() // no loop runs here, so a decision must not wait for a flush
	n := w.node("eu", "a")
	set := func(rows ...store.OverrideRow) {
		t.Helper()
		w.counts.SetOverrides(rows...)
		if err := n.LoadSettings(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	row := func(pattern string, limit int64) store.OverrideRow {
		return store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: pattern, Limit: limit}
	}
	set(row("*", 5), row("user_*", 20), row("user_*_admin", 30), row("user_42", 40), row("*_admin", 25), row("evil", 0),
		store.OverrideRow{Workspace: "other", Namespace: "api", Pattern: "user_42", Limit: 1})
	for _, c := range []struct {
		identifier, override string
		limit                int64
	}{
		{"user_42", "user_42", 40},
		{"user_7", "user_*", 20},
		{"user_7_admin", "user_*_admin", 30},
		{"root_admin", "*_admin", 25},
		{"user_admin", "*_admin", 25}, // "user_*_admin" needs both underscores
		{"User_42", "*", 5},
		{"evil", "evil", 0},
	} {
		d := n.take(c.identifier, 1, 10)
		if d.Override != c.override || d.Limit != c.limit || d.Allowed != (c.limit > 0) {
			t.Errorf("%s: %+v, want limit %d by %q", c.identifier, d, c.limit, c.override)
		}
	}
	set()
	if d := n.take("user_42", 1, 10); d.Override != "" || d.Limit != 10 {
		t.Errorf("after delete: %+v", d)
	}
	set(row("user_42", 3))
	if d := n.take("user_42", 1, 10); d.Limit != 3 || d.Remaining != 0 {
		t.Errorf("set after delete: %+v", d)
	}
}

// An override of a network applies to the addresses and networks in it: exactly the identifier comes first, then the
// longest network, then patterns with '*'. A change applies to keys in memory, and Explain names the network. A text
// that is not in the form of a network, as an earlier build may have stored it, is compared with the identifier.
func TestOverridesOfNetworks(t *testing.T) {
	w := newWorld(t)
	w.flushes() // no loop runs here, so a decision must not wait for a flush
	n := w.node("eu", "a")
	row := func(pattern string, limit int64) store.OverrideRow {
		return store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: pattern, Limit: limit}
	}
	rows := []store.OverrideRow{row("*", 1), row("203.0.113.*", 2), row("203.0.0.0/16", 3), row("203.0.113.0/24", 4), row("203.0.113.7/32", 0), row("203.0.113.8", 5), row("2001:db8::/32", 6), row("2001:db8:1:2::/64", 7), row("10.0.0.1/8", 8)}
	for range 2 { // the second time with the index of the first
		w.counts.SetOverrides(rows...)
		if err := n.LoadSettings(t.Context()); err != nil {
			t.Fatal(err)
		}
		for identifier, want := range map[string]string{
			"203.0.113.1": "203.0.113.0/24", "203.0.1.1": "203.0.0.0/16", "203.0.113.7": "203.0.113.7/32", "203.0.113.8": "203.0.113.8", "::ffff:203.0.113.1": "203.0.113.0/24",
			"64:ff9b::203.0.113.1": "203.0.113.0/24", "203.0.113.x": "203.0.113.*", "198.51.100.1": "*", "2001:db8::1": "2001:db8::/32", "2001:db8:1:2::/64": "2001:db8:1:2::/64",
			"2001:db8:1:3::/64": "2001:db8::/32", "2001:db9::/64": "*", "10.0.0.1/8": "10.0.0.1/8", "10.0.0.1": "*",
		} {
			d := n.take(identifier, 1, 10)
			if x := n.explain(ask(identifier, 1, 10)); d.Override != want || x.Decision.Override != want || !x.Overridden {
				t.Errorf("%s: %q applies, and Explain names %q, want %q", identifier, d.Override, x.Decision.Override, want)
			}
		}
	}
	if d := n.take("203.0.113.7", 1, 10); d.Allowed {
		t.Errorf("a blocked address passes: %+v", d)
	}
	w.counts.SetOverrides(row("203.0.113.0/25", 9))
	if err := n.LoadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	for identifier, limit := range map[string]int64{"203.0.113.7": 9, "203.0.113.200": 10} {
		if d := n.take(identifier, 1, 10); d.Limit != limit || !d.Allowed {
			t.Errorf("after the change: %s: %+v, want limit %d", identifier, d, limit)
		}
	}
}

// An override's duration makes the key a different key, with its own cells.
func TestOverrideOfTheDuration(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("k", 4, 10)
	w.counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k", Limit: 10, DurationMs: 3_600_000})
	if err := n.LoadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := n.take("k", 1, 10)
	if d.Duration != time.Hour || d.Remaining != 9 || !d.ResetAt.Equal(epoch.Add(time.Hour)) {
		t.Errorf("%+v", d)
	}
}

// An invalid row is left out and reported; the others are in force.
func TestASenselessOverrideIsLeftOut(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	w.counts.SetOverrides(
		store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k", Limit: 3},
		store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "bad", Limit: -1},
		store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "worse", Limit: 1, DurationMs: 7},
	)
	if err := n.LoadSettings(t.Context()); err == nil {
		t.Error("nothing reported")
	}
	if d := n.take("k", 1, 10); d.Limit != 3 {
		t.Errorf("%+v", d)
	}
	if d := n.take("bad", 1, 10); d.Limit != 10 {
		t.Errorf("%+v", d)
	}
}

// "At most PatternsAlikeMax for one identifier", "a pattern has at most PatternStarsMax": rows beyond the bounds are
// left out and reported. The most specific rows are in force, and so are the others.
func TestPatternsBeyondTheirBoundAreLeftOut(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	row := func(pattern string, limit int64) store.OverrideRow {
		return store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: pattern, Limit: limit}
	}
	rows := []store.OverrideRow{row("*", 7), row("*z*", 1), row(strings.Repeat("a*", window.PatternStarsMax+1), 2)}
	for i := range window.PatternsAlikeMax {
		rows = append(rows, row(fmt.Sprintf("*key%d*", i), int64(100+i)))
	}
	for range 2 { // the second time from the index of the first
		w.counts.SetOverrides(rows...)
		err := n.LoadSettings(t.Context())
		for _, part := range []string{`1 overrides are ignored, such as that of "*z*"`, "pattern has 9 '*' (0 to 8)"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%v does not say %q", err, part)
			}
		}
		for identifier, limit := range map[string]int64{"z": 7, "a key3 of many": 103, strings.Repeat("a", 20): 7} {
			if d := n.take(identifier, 1, 10); d.Limit != limit {
				t.Errorf("%s: limit %d by %q, want %d", identifier, d.Limit, d.Override, limit)
			}
		}
	}
}

// partial is a store with a part that cannot be read.
type partial struct {
	*memstore.Counts
	problem atomic.Pointer[error]
}

func (p *partial) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	rows, err := p.Counts.Settings(ctx, region)
	if problem := p.problem.Load(); problem != nil {
		rows.Problem = *problem
	}
	return rows, err
}

// "Problem is the reason why a part could not be read": all other parts are in force. The problem is in the heartbeat
// while it lasts, and once in the log.
func TestSettingsOfWhichAPartIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := &partial{Counts: memstore.NewCounts(memstore.CountsOptions{})}
		problem := errors.New("read the resets: no such table")
		counts.problem.Store(&problem)
		counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k", Limit: 3})
		var log strings.Builder
		l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", Settings: counts, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if d := l.Allow(t.Context(), ask("k", 1, 10)); d.Limit != 3 {
			t.Errorf("the limit is %d, want the override's", d.Limit)
		}
		beats := counts.Heartbeats()
		if got := beats[len(beats)-1].Health.SettingsProblem; got != problem.Error() {
			t.Errorf("the heartbeat says %q", got)
		}
		counts.problem.Store(nil)
		time.Sleep(time.Minute)
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := l.Health().SettingsProblem; got != "" {
			t.Errorf("the problem stays: %q", got)
		}
		if n := strings.Count(log.String(), "no such table"); n != 1 {
			t.Errorf("it is logged %d times:\n%s", n, log.String())
		}
	})
}

// Shadow mode turns a denial into an allow: decided and reported, but not counted.
func TestShadowMode(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Shadow: true})
	if err := n.LoadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.take("k", 9, 10)
	d := n.take("k", 2, 10)
	if !d.Allowed || !d.Shadowed || d.RetryAfter != 0 || d.Remaining != 1 {
		t.Errorf("%+v", d)
	}
	b := n.AllowMany(t.Context(), []dataplane.Request{ask("k", 2, 10), ask("other", 1, 10)})
	if !b.Allowed || !b.Decisions[0].Shadowed || b.Decisions[1].Shadowed {
		t.Errorf("%+v", b)
	}
	if got := n.Cell(w.cell("k")).Count; got != 9 {
		t.Errorf("counted %d", got)
	}
	if got := n.Cell(w.cell("other")).Count; got != 1 {
		t.Errorf("the item within its limit was not counted: %d", got)
	}
}
