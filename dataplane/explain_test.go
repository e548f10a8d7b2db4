package dataplane_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
)

func (n *node) explain(r dataplane.Request) dataplane.Explanation {
	n.w.t.Helper()
	x, err := n.Explain(r)
	if err != nil {
		n.w.t.Fatal(err)
	}
	return x
}

// Explain returns each term: own cost, other nodes' cost, other regions' cost, and the weight.
func TestExplainTellsEveryTerm(t *testing.T) {
	w := newWorld(t)
	w.tune(func(set *tuning.Tuning) { set.Floor = 0 })
	w.counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k*", Limit: 10})
	w.flushes() // so that there is unsent cost near the limit
	a, b, us := w.node("eu", "a"), w.node("eu", "b"), w.node("us", "c")
	a.take("k", 4, 99)
	everyone(a)
	w.clock.set(90 * time.Second)
	for n, cost := range map[*node]int64{a: 1, b: 2, us: 3} {
		n.take("k", cost, 99)
	}
	everyone(b, us, a)
	everyone(b, us, a)
	a.take("k", 1, 99)
	x := a.explain(ask("k", 2, 99))
	now, before := x.Current, x.Previous
	if now.Regional != 4 || now.Confirmed != 3 || now.Unsent != 1 || now.Foreign != 3 || now.Counts != 7 || before.Counts != 4 || x.Weight != 0.5 {
		t.Errorf("%+v", x)
	}
	if d := x.Decision; d.Allowed || d.Current != 11 || d.Limit != 10 || d.Remaining != 1 || !x.Overridden || d.Override != "k*" || d.RetryAfter != time.Millisecond {
		t.Errorf("%+v", d)
	}
	for _, says := range []string{`"k" in "acme"/"api" would be denied: 11 of 10 in any 1m0s`, "it would pass in 1ms", `the override "k*"`, "accepted 4 (1 of it not sent", "and others 3", "4 counts by 50 %"} {
		if text := x.String(); !strings.Contains(text, says) {
			t.Errorf("%s\nsays nothing of %q", text, says)
		}
	}
	w.counts.SetResets(w.reset("k", 2))
	a.loadSettings()
	if x = a.explain(ask("k", 2, 99)); x.Reset != 2 || x.Known || x.Current.Generation != 2 || !x.Decision.Allowed || !strings.Contains(x.String(), "reset it at") {
		t.Errorf("after a reset: %s %+v", x, x)
	}
	if _, err := a.Explain(dataplane.Request{}); err == nil {
		t.Error("an empty request is explained")
	}
}

// A key near its limit is read once its cell has ended. Explain shows this as for a key without a recent answer.
func TestExplainTellsThatTheEndOfACellIsRead(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a", func(config *dataplane.Config) { config.RegionNodes = 2 })
	w.clock.set(time.Minute - 20*time.Millisecond)
	asks := func(cost int64) bool { return n.explain(ask("k", cost, 100)).AsksOrigin }
	n.take("k", 60, 100)
	if n.replay(); asks(1) {
		t.Error("it asks in the cell that was just read")
	}
	if w.clock.set(time.Minute); !asks(1) {
		t.Error("it does not ask once the cell has ended")
	}
	if n.take("k", 1, 100); asks(1) {
		t.Error("it asks once more")
	}
}

// Explain returns the policies of the namespace, for identifiers with an override too.
func TestExplainTellsThePoliciesOfANamespace(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	w.counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k*", Limit: 10})
	for _, tc := range []struct {
		row                             store.NamespaceRow
		mode, outage, nodeShare, window string
	}{
		{store.NamespaceRow{}, "exact", "local", "wait", "cells"},
		{store.NamespaceRow{Outage: "closed", NodeShare: "flush", Window: store.WindowPrecise}, "exact", "closed", "flush", "precise"},
		{store.NamespaceRow{Mode: "estimate", Window: store.WindowCells}, "estimate", "local", "wait", "cells"},
	} {
		tc.row.Workspace, tc.row.Namespace = "acme", "api"
		w.counts.SetNamespaces(tc.row)
		n.loadSettings()
		for _, identifier := range []string{"k", "other"} {
			x := n.explain(ask(identifier, 1, 99))
			if x.Mode != tc.mode || x.Outage != tc.outage || x.NodeShare != tc.nodeShare || x.Window != tc.window {
				t.Errorf("%+v is explained as mode %s, outage %s, node share %s, window %s", tc.row, x.Mode, x.Outage, x.NodeShare, x.Window)
			}
		}
	}
}

// The text adds up to the verdict: accepted and reported cost, less the cost that was refunded after it was
// published, and the whole units that the previous window still holds.
func TestExplainInWordsAddsUpAfterARefund(t *testing.T) {
	w := newWorld(t)
	w.tune(func(set *tuning.Tuning) { set.Floor = 0 })
	n := w.node("eu", "a")
	n.take("k", 7, 100)
	w.clock.set(80 * time.Second)
	r := n.reserve("k", 80, 100)
	n.replay()
	n.replay()
	settle(t, r, 30, -50)
	x := n.explain(ask("k", 1, 100))
	if c := x.Current; c.Regional != 80 || c.Credit != 50 || c.Counts != 30 || x.Decision.Current != 35 {
		t.Fatalf("%+v", x)
	}
	for _, says := range []string{"allowed: 35 of 100 in any", "accepted 80 (0 of it not sent", "and others 0", "50 was refunded here", "together 30", "7 counts by 67 %, as 4"} {
		if text := x.String(); !strings.Contains(text, says) {
			t.Errorf("%s\nsays nothing of %q", text, says)
		}
	}
}

// A sum of seven digits is printed exactly.
func TestExplainInWordsRoundsNoSum(t *testing.T) {
	n := newWorld(t).alone()
	n.take("k", 1_234_567, 10_000_000)
	if text := n.explain(ask("k", 1, 10_000_000)).String(); !strings.Contains(text, "1234568 of 10000000") {
		t.Error(text)
	}
}

// "At most some 3 KB", for any names.
func TestExplainInWordsIsBounded(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	r := dataplane.Request{Workspace: strings.Repeat("\xff", 191), Namespace: strings.Repeat("\x01", 255), Identifier: strings.Repeat("é", 127), Limit: 1, Duration: time.Second}
	w.counts.SetOverrides(store.OverrideRow{Workspace: r.Workspace, Namespace: r.Namespace, Pattern: r.Identifier, Limit: 1<<53 - 1})
	n.loadSettings()
	if text := n.explain(r).String(); len(text) > 3000 || !strings.Contains(text, `éé…" in`) || !strings.Contains(text, `the override "éé`) {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}

// Explain changes nothing: it brings no key in, counts nothing, and agrees with the next decision, in both modes, at
// any time.
func TestExplainAgreesWithTheNextDecision(t *testing.T) {
	for _, settings := range []string{"exact", "", posthog} {
		rapid.Check(t, func(rt *rapid.T) {
			w := newWorld(t)
			w.flushes() // no loop runs here, so a decision must not wait for a flush
			if settings != "exact" {
				w.estimates(settings)
			}
			n := w.node("eu", "a")
			for range rapid.IntRange(1, 20).Draw(rt, "steps") {
				r := ask("k", rapid.Int64Range(0, 12).Draw(rt, "cost"), 10)
				held := n.Entries()
				x := n.explain(r)
				if n.Entries() != held || x.Known != (held > 0) {
					rt.Fatalf("%d keys before, %d after: %+v", held, n.Entries(), x)
				}
				d := n.take("k", r.Cost, r.Limit)
				d.Source = x.Decision.Source
				if d != x.Decision {
					rt.Fatalf("%q: decided %+v\nexplained %+v", settings, d, x.Decision)
				}
				w.clock.advance(time.Duration(rapid.IntRange(0, 50_000).Draw(rt, "ms")) * time.Millisecond)
			}
		})
	}
}

// Only a node of a fleet has an origin from which a decision would read an unknown key.
func TestExplainOfAnUnknownKeyNamesAnOriginOnlyInAFleet(t *testing.T) {
	w := newWorld(t)
	for name, n := range map[string]*node{"alone": w.alone(), "fleet": w.node("eu", "a")} {
		text := n.explain(ask("k", 1, 10)).String()
		if !strings.Contains(text, "does not hold the key") || strings.Contains(text, "origin") != (name == "fleet") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// The text reports a denial that waiting cannot change.
func TestExplainSaysThatACostNeverPasses(t *testing.T) {
	n := newWorld(t).alone()
	x := n.explain(ask("k", 11, 10))
	if text := x.String(); !x.Decision.NeverPasses || !strings.Contains(text, "it never passes, because its cost is more than the limit") || strings.Contains(text, "would pass") {
		t.Errorf("%s: %+v", text, x.Decision)
	}
}
