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

// Explain returns each term: own, others' in the region, other regions', and the weight.
func TestExplainTellsEveryTerm(t *testing.T) {
	w := newWorld(t)
	w.tune(func(set *tuning.Tuning) { set.Floor = 0 })
	w.counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k*", Limit: 10})
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

// The words add up to the verdict: what is accepted and reported, less what was refunded after others knew of it, and
// the whole units that the window before still holds.
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

// A sum of seven digits is told to the unit.
func TestExplainInWordsRoundsNoSum(t *testing.T) {
	n := newWorld(t).alone()
	n.take("k", 1_234_567, 10_000_000)
	if text := n.explain(ask("k", 1, 10_000_000)).String(); !strings.Contains(text, "1234568 of 10000000") {
		t.Error(text)
	}
}

// "At most some 3 KB", whatever the names are.
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

// Explain changes nothing: it brings no key in, counts nothing, and agrees with the
// decision that is made next, in both modes, at any time.
func TestExplainAgreesWithTheNextDecision(t *testing.T) {
	for _, settings := range []string{"exact", "", posthog} {
		rapid.Check(t, func(rt *rapid.T) {
			w := newWorld(t)
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

// What no waiting helps is said in words.
func TestExplainSaysThatACostNeverPasses(t *testing.T) {
	n := newWorld(t).alone()
	x := n.explain(ask("k", 11, 10))
	if text := x.String(); !x.Decision.NeverPasses || !strings.Contains(text, "it never passes, because its cost is more than the limit") || strings.Contains(text, "would pass") {
		t.Errorf("%s: %+v", text, x.Decision)
	}
}
