package dataplane_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/metrics"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// override sets the only override of ask's namespace.
func (n *node) override(row store.OverrideRow) {
	n.w.t.Helper()
	row.Workspace, row.Namespace = "acme", "api"
	n.w.counts.SetOverrides(row)
	if err := n.LoadSettings(n.w.t.Context()); err != nil {
		n.w.t.Fatal(err)
	}
}

func (n *node) wantCompared(allowed, denied int) {
	n.w.t.Helper()
	want := fmt.Sprintf(`# HELP weir_candidate_decisions_total Requests for which a candidate limit was evaluated in addition to the live limit, by the candidate's outcome.
# TYPE weir_candidate_decisions_total counter
weir_candidate_decisions_total{outcome="allowed"} %d
weir_candidate_decisions_total{outcome="denied"} %d
`, allowed, denied)
	if err := testutil.CollectAndCompare(metrics.New(n.Limiter), strings.NewReader(want), "weir_candidate_decisions_total"); err != nil {
		n.w.t.Error(err)
	}
}

// The live limit decides. The candidate is compared with the same counts at the same instant: for singles, for
// batches, and for requests that only shadow mode lets pass.
func TestACandidateIsJudgedBesideTheLiveLimit(t *testing.T) {
	w := newWorld(t)
	w.flushes() // no loop runs here, so a decision must not wait for a flush
	n := w.node("eu", "a")
	n.wantCompared(0, 0)
	n.take("k", 1, 99)
	n.wantCompared(0, 0) // no candidate is set
	n.override(store.OverrideRow{Pattern: "*", Limit: 10, Candidate: 5})
	for _, step := range []struct {
		at      time.Duration
		cost    int64
		allowed bool
		denied  bool // by the candidate
	}{
		{0, 3, true, false}, // 4
		{0, 2, true, true},  // 6 is over the candidate, and counts
		{0, 0, true, true},  // nothing would pass
		{0, 5, false, true},
		{time.Minute + 10*time.Second, 0, true, false}, // 6 * 5/6 = 5
		{time.Minute + 10*time.Second, 1, true, true},
		{3 * time.Minute, 5, true, false},
		{3 * time.Minute, 11, false, true}, // more than either limit
	} {
		w.clock.set(step.at)
		if d := n.take("k", step.cost, 99); d.Allowed != step.allowed || d.CandidateDenied != step.denied || d.Limit != 10 {
			t.Errorf("at %v %d: %+v", step.at, step.cost, d)
		}
	}
	n.wantCompared(3, 5)
	b := n.AllowMany(t.Context(), []dataplane.Request{ask("b", 4, 99), ask("b", 2, 99), ask("k", 5, 99)})
	if !b.Allowed || b.Decisions[0].CandidateDenied || !b.Decisions[1].CandidateDenied || !b.Decisions[2].CandidateDenied {
		t.Errorf("%+v", b)
	}
	n.wantCompared(4, 7)
	n.override(store.OverrideRow{Pattern: "*", Limit: 10, Candidate: 12})
	if d := n.take("b", 5, 99); d.Allowed || d.CandidateDenied {
		t.Errorf("a higher candidate: %+v", d)
	}
	n.override(store.OverrideRow{Pattern: "*", Limit: 10, Candidate: 10, Shadow: true})
	if d := n.take("b", 5, 99); !d.Shadowed || !d.CandidateDenied {
		t.Errorf("in shadow mode: %+v", d)
	}
}

// The candidate's verdict equals window.Fits with the counts of the answer, for any history, in both modes.
func TestACandidateAgreesWithTheArithmetic(t *testing.T) {
	for _, mode := range []string{"exact", "estimate"} {
		rapid.Check(t, func(rt *rapid.T) {
			w := newWorld(t)
			if mode == "estimate" {
				w.estimates("")
			}
			n := w.alone(func(c *dataplane.Config) { c.Region, c.NodeID, c.Settings = "eu", "a", w.counts })
			limit, candidate := rapid.Int64Range(0, 20).Draw(rt, "limit"), rapid.Int64Range(1, 20).Draw(rt, "candidate")
			n.override(store.OverrideRow{Pattern: "k*", Limit: limit, Candidate: candidate})
			cells := make(map[int64]int64)
			for range rapid.IntRange(1, 20).Draw(rt, "steps") {
				w.clock.advance(time.Duration(rapid.IntRange(0, 50).Draw(rt, "seconds")) * time.Second)
				cost := rapid.Int64Range(0, 12).Draw(rt, "cost")
				nowMs := w.clock.Now().UnixMilli()
				seq := window.Sequence(nowMs, 60_000)
				uncovered := window.Start(seq+1, 60_000) - nowMs
				want := !window.Fits(cells[seq], cells[seq-1], cost, candidate, uncovered, 60_000)
				x := n.explain(ask("k", cost, 99))
				d := n.take("k", cost, 99)
				if d.CandidateDenied != want || x.Decision.CandidateDenied != want || x.Candidate != candidate {
					rt.Fatalf("%d and %d with %d of candidate %d: %+v, %+v", cells[seq], cells[seq-1], cost, candidate, d, x)
				}
				if d.Allowed {
					cells[seq] += cost
				}
			}
		})
	}
}

// An outage policy that decides without the counts does so for every limit.
func TestACandidateInAnOutage(t *testing.T) {
	for policy, denied := range map[string][]bool{"local": {false, true}, "open": {false, false}, "closed": {true, true}} {
		synctest.Test(t, func(t *testing.T) {
			l, origin, counts := inOutageWith(t, policy)
			counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k", Limit: 20, Candidate: 10})
			if err := l.LoadSettings(t.Context()); err != nil {
				t.Fatal(err)
			}
			origin.Faults.Fail(errDown)
			for i, cost := range []int64{8, 4} {
				if d := l.Allow(t.Context(), ask("k", cost, 99)); d.CandidateDenied != denied[i] || d.Allowed != (policy != "closed") {
					t.Errorf("%s, %d: %+v", policy, cost, d)
				}
			}
			if d := l.Allow(t.Context(), ask("k", 11, 99)); !d.CandidateDenied {
				t.Errorf("%s, more than the candidate: %+v", policy, d)
			}
		})
	}
}

// An invalid candidate is left out and reported; the override's limit is in force.
func TestASenselessCandidateIsLeftOut(t *testing.T) {
	w := newWorld(t)
	w.estimates(posthog)
	n := w.node("eu", "a")
	w.counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k", Limit: 3, Candidate: 1},
		store.OverrideRow{Workspace: "acme", Namespace: "other", Pattern: "k", Limit: 3, Candidate: -1})
	err := n.LoadSettings(t.Context())
	for _, says := range []string{`namespace "acme"/"api"`, `1 candidates are ignored, such as that of "k": drain is leaky`, "candidate is -1 (0 to 9007199254740991; 0 for none)"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	if d := n.take("k", 2, 99); d.Limit != 3 || d.CandidateDenied {
		t.Errorf("%+v", d)
	}
	n.wantCompared(0, 0)
}

// An override in shadow mode lets requests pass and reports that they would have been denied, but only for
// identifiers that match its pattern.
func TestShadowOfAnOverride(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	w.counts.SetOverrides(
		store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "trial-*", Limit: 3, Shadow: true},
		store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "trial-7", Limit: 3})
	if err := n.LoadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		identifier        string
		allowed, shadowed bool
	}{
		{"trial-1", true, true},
		{"trial-7", false, false}, // a more specific override enforces
		{"other", false, false},
	} {
		n.take(step.identifier, 3, 3)
		if d := n.take(step.identifier, 1, 3); d.Allowed != step.allowed || d.Shadowed != step.shadowed {
			t.Errorf("%s: %+v", step.identifier, d)
		}
	}
	if got := n.Cell(w.cell("trial-1")).Count; got != 3 {
		t.Errorf("counted %d", got)
	}
	b := n.AllowMany(t.Context(), []dataplane.Request{ask("trial-1", 1, 3), ask("fresh", 1, 3)})
	if !b.Allowed || !b.Decisions[0].Shadowed || b.Decisions[1].Shadowed {
		t.Errorf("%+v", b)
	}
	if b = n.AllowMany(t.Context(), []dataplane.Request{ask("trial-1", 1, 3), ask("trial-7", 1, 3)}); b.Allowed {
		t.Errorf("a shadowed item has let the others pass: %+v", b)
	}
	if x := n.explain(ask("trial-1", 1, 3)); !x.Shadow || !strings.Contains(x.String(), "its override or the request is in shadow mode") {
		t.Errorf("%+v", x)
	}
}

// "Shadow lets the request pass although it is over its limit", also in the estimate mode, and in a batch whose other
// items enforce their limits.
func TestShadowOfARequest(t *testing.T) {
	for _, mode := range []string{"exact", "estimate"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			if mode == "estimate" {
				w.estimates("")
			}
			n := w.alone(func(c *dataplane.Config) { c.Region, c.NodeID, c.Settings = "eu", "a", w.counts })
			shadow := ask("k", 2, 3)
			shadow.Shadow = true
			for i, want := range []bool{false, true} {
				if d := n.Allow(t.Context(), shadow); !d.Allowed || d.Shadowed != want {
					t.Errorf("%d: %+v", i, d)
				}
			}
			b := n.AllowMany(t.Context(), []dataplane.Request{shadow, ask("k", 1, 3)})
			if !b.Allowed || !b.Decisions[0].Shadowed || b.Decisions[1].Shadowed || b.Decisions[1].Remaining != 0 {
				t.Errorf("%+v", b)
			}
			if b = n.AllowMany(t.Context(), []dataplane.Request{shadow, ask("k", 1, 3)}); b.Allowed || !b.Decisions[0].Shadowed || b.Decisions[1].Allowed {
				t.Errorf("a shadowed item has let the others pass: %+v", b)
			}
			if d := n.Allow(t.Context(), ask("k", 1, 3)); d.Allowed {
				t.Errorf("the next request inherits it: %+v", d)
			}
		})
	}
}
