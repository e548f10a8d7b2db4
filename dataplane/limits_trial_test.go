package dataplane_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
)

// limitOf is an override of ask's namespace.
func limitOf(pattern string, limit int64) *settings.Override {
	return &settings.Override{Workspace: "acme", Namespace: "api", Pattern: pattern, Limit: limit}
}

// overridden changes overrides: a side with a limit of -1 has none.
func overridden(pattern string, before, after int64) settings.Change {
	var c settings.OverrideChange
	if before >= 0 {
		c.Before = limitOf(pattern, before)
	}
	if after >= 0 {
		c.After = limitOf(pattern, after)
	}
	return settings.Change{Overrides: []settings.OverrideChange{c}}
}

// tryLimits stores a trial of limits, for an hour.
func (w *world) tryLimits(number int64, mode string, change settings.Change, protected ...string) {
	w.t.Helper()
	trial := settings.LimitsTrial{Mode: mode, Change: change}
	for _, p := range protected {
		trial.Protected = append(trial.Protected, settings.Protected{Workspace: "acme", Namespace: "api", Pattern: p})
	}
	document, err := trial.Document()
	if err != nil {
		w.t.Fatal(err)
	}
	w.counts.SetTrial("", memstore.Trial{Ends: w.clock.Now().Add(time.Hour),
		TrialRow: store.TrialRow{Number: number, Document: []byte(document), Below: tuning.TrialShares}})
}

// limits returns the evidence in a node's heartbeat.
func (n *node) limits() *heartbeat.Limits {
	n.w.t.Helper()
	if err := n.Heartbeat(n.w.t.Context()); err != nil {
		n.w.t.Fatal(err)
	}
	beats := n.w.counts.Heartbeats()
	for i := range beats {
		if beats[i].NodeID == n.id() {
			return beats[i].Health.Limits
		}
	}
	n.w.t.Fatal("no heartbeat")
	return nil
}

func (n *node) id() string {
	for m := range n.Metrics() {
		if m.Name == "weir_node_info" {
			return m.Labels[1].Value
		}
	}
	return ""
}

// wantJudged holds a node to the numbers of decisions judged, denied before, denied by the trial, and denied by the
// trial alone. The metric agrees.
func (n *node) wantJudged(what string, judged, before, after, newly int64) {
	n.w.t.Helper()
	h := n.limits()
	if h == nil {
		n.w.t.Fatalf("%s: no evidence", what)
	}
	if h.Judged != judged || h.DeniedBefore != before || h.DeniedAfter != after || h.NewlyDenied != newly {
		n.w.t.Errorf("%s: %d judged, %d denied before, %d after, %d newly; want %d, %d, %d, %d", what, h.Judged,
			h.DeniedBefore, h.DeniedAfter, h.NewlyDenied, judged, before, after, newly)
	}
	m := trialMetrics(n)
	if m["newly_denied"] != newly || m["newly_denied"]+m["denied"] != after || m["newly_allowed"]+m["denied"] != before ||
		m["allowed"]+m["denied"]+m["newly_denied"]+m["newly_allowed"] != judged {
		n.w.t.Errorf("%s: the metric has %v", what, m)
	}
}

func trialMetrics(n *node) map[string]int64 {
	by := make(map[string]int64)
	for m := range n.Metrics() {
		if m.Name == "weir_trial_decisions_total" {
			by[m.Labels[0].Value] = int64(m.Value)
		}
	}
	return by
}

// A trial in shadow mode judges each way to decide by both limits, and counts it once. Peeks are not counted.
func TestATrialOfLimitsIsJudgedBesideTheStoredLimit(t *testing.T) {
	w := newWorld(t)
	w.flushes()
	w.counts.SetOverrides(store.OverrideRow(*limitOf("k*", 10)))
	w.tryLimits(7, settings.TrialShadow, overridden("k*", 10, 5), "k1", "vip*")
	n := w.node("eu", "a")
	if d := n.take("k1", 5, 99); !d.Allowed || d.Limit != 10 || n.Health().Trial != 7 {
		t.Errorf("%+v, trial %d", d, n.Health().Trial)
	}
	n.wantJudged("within both", 1, 0, 0, 0)
	if d := n.take("k1", 2, 99); !d.Allowed || d.Remaining != 3 {
		t.Errorf("%+v", d)
	}
	n.wantJudged("past the trial's", 2, 0, 1, 1)
	n.take("k1", 4, 99)
	n.wantJudged("past both", 3, 1, 2, 1)
	n.take("k1", 11, 99)
	n.take("k2", 11, 99)
	n.wantJudged("more than either limit", 5, 3, 4, 1)
	n.take("k3", 8, 99)
	n.wantJudged("first contact", 6, 3, 5, 2)
	n.Peek(t.Context(), ask("k1", 9, 99))
	n.take("other", 200, 99)
	n.wantJudged("a peek, and a key that the trial does not change", 6, 3, 5, 2)
	b := n.AllowMany(t.Context(), []dataplane.Request{ask("k4", 4, 99), ask("k4", 3, 99), ask("other", 1, 99)})
	if !b.Allowed {
		t.Errorf("%+v", b)
	}
	n.wantJudged("a batch", 8, 3, 6, 3)
	if b = n.AllowMany(t.Context(), []dataplane.Request{ask("k5", 6, 99), ask("k4", 9, 99)}); b.Allowed {
		t.Errorf("%+v", b)
	}
	n.wantJudged("a denied batch", 10, 4, 8, 4)
	handle, err := n.Handle("acme", "api", "k6", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	handle.Allow(t.Context(), 99, 8)
	n.wantJudged("a handle", 11, 4, 9, 5)
	shadow := ask("k6", 8, 99)
	shadow.Shadow = true
	n.Allow(t.Context(), shadow)
	n.wantJudged("a request in shadow mode", 12, 4, 9, 5)

	h := n.limits()
	if h.Callers.Count() != 5 || h.Protected != 1 || h.Caller == nil || string(h.Caller.Identifier) != "k1" || h.Caller.Limit != 5 ||
		h.Caller.Count != 1 || h.Caller.DurationMs != 60_000 {
		t.Errorf("%d callers, %d protected: %+v", h.Callers.Count(), h.Protected, h.Caller)
	}
	if len(h.Top) != 5 || h.Top[0].Limit != 5 || h.Top[0].Count != 1 || string(h.Top[4].Identifier) != "k6" {
		t.Errorf("%+v", h.Top)
	}
	want := heartbeat.LimitsNamespace{Workspace: []byte("acme"), Namespace: []byte("api"), Judged: 12, DeniedBefore: 4,
		DeniedAfter: 9, NewlyDenied: 5}
	if len(h.Namespaces) != 1 || !reflect.DeepEqual(h.Namespaces[0], want) {
		t.Errorf("%+v", h.Namespaces)
	}
	w.counts.SetTrial("", memstore.Trial{})
	n.loadSettings()
	if h := n.limits(); h != nil || n.Health().Trial != 0 {
		t.Errorf("after the trial: %+v", h)
	}
	if n.take("k1", 1, 99); trialMetrics(n)["newly_denied"] != 5 {
		t.Error("the metric fell")
	}
}

// A trial in the mode enforce decides. The stored limit is compared. Where one side has no override, the request's own
// limit is in its place, also in handles and batches.
func TestATrialOfLimitsDecidesWhenItIsEnforced(t *testing.T) {
	w := newWorld(t)
	w.flushes()
	w.counts.SetOverrides(store.OverrideRow(*limitOf("gold", 100)))
	change := settings.Change{Overrides: []settings.OverrideChange{
		{Before: limitOf("gold", 100)}, {After: limitOf("k*", 5)}}}
	w.tryLimits(7, settings.TrialEnforce, change)
	n := w.node("eu", "a")
	if d := n.take("k1", 6, 8); d.Allowed || d.Limit != 5 || !d.NeverPasses {
		t.Errorf("%+v", d)
	}
	n.wantJudged("a new override", 1, 0, 1, 1)
	if d := n.take("gold", 40, 30); d.Allowed || d.Limit != 30 {
		t.Errorf("%+v", d)
	}
	n.wantJudged("a deleted override", 2, 0, 2, 2)
	if d := n.take("gold", 40, 200); !d.Allowed || d.Limit != 200 {
		t.Errorf("%+v", d)
	}
	if d := n.take("gold", 110, 200); !d.Allowed {
		t.Errorf("%+v", d)
	}
	n.wantJudged("newly allowed", 4, 1, 2, 2)
	handle, err := n.Handle("acme", "api", "k2", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if d := handle.Allow(t.Context(), 8, 6); d.Allowed || d.Limit != 5 {
		t.Errorf("%+v", d)
	}
	if d := handle.Allow(t.Context(), 5, 6); d.Allowed {
		t.Errorf("%+v", d)
	}
	n.wantJudged("a handle with other limits", 5, 1, 3, 3) // the last is the same limit on both sides
	n.AllowMany(t.Context(), []dataplane.Request{ask("k3", 6, 8), ask("k3", 6, 2)})
	n.wantJudged("a batch with other limits", 7, 2, 5, 4)
	n.w.counts.SetOverrides(store.OverrideRow(*limitOf("k*", 5))) // the rollout keeps the change
	n.loadSettings()
	if d := n.take("k1", 6, 8); d.Allowed || d.Limit != 5 || n.Health().Trial != 0 || n.limits() != nil {
		t.Errorf("after keep: %+v", d)
	}
}

// The shadow mode of a namespace lets everything pass on its side, before the trial or in it.
func TestATrialOfShadowMode(t *testing.T) {
	for _, mode := range []string{settings.TrialShadow, settings.TrialEnforce} {
		for _, before := range []bool{false, true} {
			w := newWorld(t)
			off := settings.DefaultNamespace("acme", "api")
			off.NodeShare = "flush"
			on := off
			on.Shadow = true
			change := settings.NamespaceChange{Before: off, After: on}
			if before {
				change.Before, change.After = on, off
			}
			w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", NodeShare: "flush", Shadow: before})
			w.tryLimits(7, mode, settings.Change{Namespaces: []settings.NamespaceChange{change}})
			n := w.node("eu", "a")
			if d := n.take("k", 6, 5); d.Shadowed != (before == (mode == settings.TrialShadow)) {
				t.Errorf("%s, shadow before: %v: %+v", mode, before, d)
			}
			newly, was := int64(0), int64(1)
			if before {
				newly, was = 1, 0
			}
			n.wantJudged(fmt.Sprint(mode, before), 1, was, newly, newly)
		}
	}
}

// Each side is judged by its own test of the estimate mode: whether its limit can be reached, or must not be.
func TestATrialOfAnEstimatesTest(t *testing.T) {
	before := settings.DefaultNamespace("acme", "api")
	before.Mode, before.NodeShare = "estimate", "flush"
	after := before
	after.Estimate = `{"test":">="}`
	for _, back := range []bool{false, true} {
		w := newWorld(t)
		change := overridden("k*", 10, 9)
		is, newly := settings.NamespaceChange{Before: before, After: after}, int64(1)
		if back {
			is, newly = settings.NamespaceChange{Before: after, After: before}, 0
		}
		change.Namespaces = []settings.NamespaceChange{is}
		w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Mode: "estimate", NodeShare: "flush",
			Estimate: is.Before.Estimate})
		w.counts.SetOverrides(store.OverrideRow(*limitOf("k*", 10)))
		w.tryLimits(7, settings.TrialShadow, change)
		n := w.node("eu", "a")
		n.take("k1", 1, 99) // the first decision about a key has no level
		n.take("k1", 8, 99)
		n.wantJudged(fmt.Sprintf("from %q", is.Before.Estimate), 2, 0, newly, newly)
	}
}

// Explain has the verdict of the side that does not decide, and the text names it.
func TestExplainTellsOfATrialOfLimits(t *testing.T) {
	for mode, says := range map[string]string{
		settings.TrialShadow:  "Trial 7 of limits is on: the limit of 5 by the trial would deny it",
		settings.TrialEnforce: "Trial 7 of limits is on: the limit of 10 by the stored settings would let it pass",
	} {
		w := newWorld(t)
		w.counts.SetOverrides(store.OverrideRow(*limitOf("k*", 10)))
		w.tryLimits(7, mode, overridden("k*", 10, 5))
		n := w.node("eu", "a")
		x := n.explain(ask("k1", 6, 99))
		if x.Other == nil || x.Other.Stored != (mode == settings.TrialEnforce) || x.Trial != 7 ||
			!strings.Contains(x.String(), says) {
			t.Errorf("%s: %+v", x, x.Other)
		}
		if x = n.explain(ask("other", 6, 99)); x.Other != nil || strings.Contains(x.String(), "of limits") {
			t.Errorf("%s", x)
		}
	}
}

// random draws calls and makes them on several nodes. It fails where they answer differently.
type random struct {
	rt      *rapid.T
	worlds  []*world
	nodes   []*node
	handles []*dataplane.Handle
	answers []dataplane.Decision // of the first node, that are counted
}

func (r *random) call(t *testing.T) {
	rt := r.rt
	identifier := rapid.SampledFrom([]string{"a", "ab", "b", "c"}).Draw(rt, "identifier")
	limit, cost := rapid.Int64Range(0, 12).Draw(rt, "limit"), rapid.Int64Range(0, 8).Draw(rt, "cost")
	kind := rapid.IntRange(0, 5).Draw(rt, "kind")
	passes := time.Duration(rapid.IntRange(0, 40_000).Draw(rt, "ms")) * time.Millisecond
	second := ask(rapid.SampledFrom([]string{"a", "ab", "b"}).Draw(rt, "second"), cost, limit)
	var first []dataplane.Decision
	for i, n := range r.nodes {
		var d []dataplane.Decision
		switch kind {
		case 0:
			d = n.AllowMany(t.Context(), []dataplane.Request{ask(identifier, cost, limit), second}).Decisions
		case 1:
			d = append(d, n.Peek(t.Context(), ask(identifier, cost, limit)))
		case 2:
			d = append(d, r.handles[i].Allow(t.Context(), limit, dataplane.Cost(max(1, cost))))
		case 3:
			if _, err := n.Refund(ask(identifier, cost, limit)); err != nil {
				rt.Fatal(err)
			}
		default:
			d = append(d, n.Allow(t.Context(), ask(identifier, cost, limit)))
		}
		if r.worlds[i].clock.advance(passes); i == 0 {
			first = d
		} else if !reflect.DeepEqual(first, d) {
			rt.Fatalf("a node without a trial answers %+v\nand a node with it %+v", first, d)
		}
	}
	if kind != 1 && kind != 3 {
		r.answers = append(r.answers, first...)
	}
}

// counted returns all metrics but those of trials, and the time of measured decisions.
func counted(n *node) map[string]float64 {
	all := make(map[string]float64)
	for m := range n.Metrics() {
		if m.Kind != dataplane.KindHistogram && !strings.Contains(m.Name, "trial") {
			all[fmt.Sprint(m.Name, m.Labels)] = m.Value
		}
	}
	return all
}

// In shadow mode answers, counts and metrics are those of a node without the trial. In the mode enforce they are those
// of a node whose settings have the change. The figures are those of the answers' own sums.
func TestATrialOfLimitsChangesNothingElse(t *testing.T) {
	for _, mode := range []string{"exact", "estimate", "precise", "fleet"} {
		t.Run(mode, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				from, to := drawDocument(rt, mode, "from"), drawDocument(rt, mode, "to")
				change := settings.Difference(from, to, true)
				if change.Items() == 0 {
					return
				}
				trial := rapid.SampledFrom([]string{settings.TrialShadow, settings.TrialEnforce}).Draw(rt, "mode")
				plain := from
				if trial == settings.TrialEnforce {
					plain = change.Apply(from)
				}
				r := &random{rt: rt}
				for i, d := range []*settings.Document{plain, from} {
					w := newWorld(t)
					w.counts.SetNamespaces(namespaceRows(d)...)
					w.counts.SetOverrides(overrideRows(d)...)
					if i == 1 {
						w.tryLimits(7, trial, change, "a*")
					}
					n := w.node("eu", "a", func(c *dataplane.Config) {
						if mode != "fleet" {
							c.Origin = nil
						}
					})
					handle, err := n.Handle("acme", "api", "ab", time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					r.worlds, r.nodes, r.handles = append(r.worlds, w), append(r.nodes, n), append(r.handles, handle)
				}
				if r.nodes[1].Health().Trial != 7 {
					rt.Fatal("the trial does not run")
				}
				for range rapid.IntRange(1, 25).Draw(rt, "calls") {
					r.call(t)
				}
				if a, b := counted(r.nodes[0]), counted(r.nodes[1]); !reflect.DeepEqual(a, b) {
					rt.Fatalf("metrics without a trial %v\nand with it %v", a, b)
				}
				h := r.nodes[1].limits()
				if h.Judged > int64(len(r.answers)) || h.NewlyDenied > h.DeniedAfter || h.DeniedAfter > h.Judged ||
					h.DeniedBefore+h.NewlyDenied < h.DeniedAfter || h.Protected > h.NewlyDenied || h.Callers.Count() > h.NewlyDenied ||
					(h.Callers.Count() == 0) != (h.NewlyDenied == 0) || (h.Caller == nil) != (h.Protected == 0) {
					rt.Fatalf("%+v", h)
				}
			})
		})
	}
}

func drawDocument(rt *rapid.T, mode, label string) *settings.Document {
	n := settings.DefaultNamespace("acme", "api")
	n.NodeShare, n.Shadow = "flush", rapid.IntRange(0, 5).Draw(rt, label+" shadow") == 0
	switch mode {
	case "estimate":
		n.Mode = mode
	case "precise":
		n.Window = mode
	}
	d := &settings.Document{Namespaces: []settings.Namespace{n}}
	for _, pattern := range []string{"*", "a*", "ab", "b"} {
		if rapid.Bool().Draw(rt, label+pattern) {
			o := limitOf(pattern, rapid.Int64Range(0, 12).Draw(rt, label+" limit"))
			o.Shadow = rapid.IntRange(0, 5).Draw(rt, label+" shadow") == 0
			if rapid.IntRange(0, 3).Draw(rt, label+" candidate?") == 0 {
				o.Candidate = rapid.Int64Range(1, 12).Draw(rt, label+" candidate")
			}
			d.Overrides = append(d.Overrides, *o)
		}
	}
	return d
}

func namespaceRows(d *settings.Document) (rows []store.NamespaceRow) {
	for _, n := range d.Namespaces {
		rows = append(rows, store.NamespaceRow{Workspace: n.Workspace, Namespace: n.Namespace, Shadow: n.Shadow,
			Mode: n.Mode, Outage: n.Outage, NodeShare: n.NodeShare, Window: store.Window(n.Window)})
	}
	return rows
}

func overrideRows(d *settings.Document) (rows []store.OverrideRow) {
	for _, o := range d.Overrides {
		rows = append(rows, store.OverrideRow(o))
	}
	return rows
}

// The figures are those that the sums in the answers give, for any history in the exact mode: each verdict is that of
// its limit, at the level that was answered.
func TestFiguresOfATrialAgreeWithTheAnswers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		before, after := rapid.Int64Range(0, 12).Draw(rt, "before"), rapid.Int64Range(0, 12).Draw(rt, "after")
		if before == after {
			return
		}
		w.counts.SetOverrides(store.OverrideRow(*limitOf("k*", before)))
		mode := rapid.SampledFrom([]string{settings.TrialShadow, settings.TrialEnforce}).Draw(rt, "mode")
		w.tryLimits(7, mode, overridden("k*", before, after), "k")
		n := w.node("eu", "a", func(c *dataplane.Config) { c.Origin = nil })
		var want heartbeat.Limits
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			w.clock.advance(time.Duration(rapid.IntRange(0, 40_000).Draw(rt, "ms")) * time.Millisecond)
			var judged []dataplane.Decision
			if rapid.Bool().Draw(rt, "batch") {
				judged = n.AllowMany(t.Context(), []dataplane.Request{
					ask("k", rapid.Int64Range(0, 7).Draw(rt, "first"), 99), ask("k", rapid.Int64Range(0, 7).Draw(rt, "second"), 99)},
				).Decisions
			} else {
				judged = append(judged, n.take("k", rapid.Int64Range(0, 12).Draw(rt, "cost"), 99))
			}
			for _, d := range judged {
				want.Judged++
				if d.Current > float64(before) {
					want.DeniedBefore++
				}
				if d.Current > float64(after) {
					want.DeniedAfter++
				}
				if d.Current > float64(after) && d.Current <= float64(before) {
					want.NewlyDenied++
				}
			}
		}
		n.wantJudged(mode, want.Judged, want.DeniedBefore, want.DeniedAfter, want.NewlyDenied)
		if h := n.limits(); h.Protected != want.NewlyDenied || want.NewlyDenied > 0 && h.Caller.Count != want.NewlyDenied {
			rt.Fatalf("%+v", h)
		}
	})
}

// Names of the greatest length do not make a heartbeat too long for its column.
func TestEvidenceInAHeartbeatIsBounded(t *testing.T) {
	w := newWorld(t)
	var change settings.Change
	long := func(i, length int) string { return fmt.Sprintf("%0*d", length, i) }
	for i := range 30 {
		change.Overrides = append(change.Overrides, settings.OverrideChange{After: &settings.Override{Workspace: long(i, 191),
			Namespace: long(i, 255), Pattern: "*", Limit: 1}})
	}
	w.tryLimits(7, settings.TrialShadow, change)
	n := w.node("eu", "a", func(c *dataplane.Config) { c.Origin = nil })
	for i := range 300 {
		d := n.Allow(t.Context(), dataplane.Request{Workspace: long(i%30, 191), Namespace: long(i%30, 255),
			Identifier: long(i, 255), Limit: 10, Cost: 2, Duration: time.Minute})
		if !d.Allowed {
			t.Fatalf("%+v", d)
		}
	}
	h := n.limits()
	document, err := json.Marshal(h)
	if err != nil || len(document) > heartbeat.LimitsBytesMax || len(h.Top) < 3 || len(h.Namespaces) < 3 {
		t.Errorf("%d bytes, %d keys, %d namespaces, %v", len(document), len(h.Top), len(h.Namespaces), err)
	}
	if h.Judged != 300 || h.NewlyDenied != 300 || len(h.Callers) != heartbeat.CallersKept {
		t.Errorf("%+v", h)
	}
}

// Decisions, reads of settings and heartbeats go on at the same time, and count each decision once. Run it with -race.
func TestATrialOfLimitsUnderLoad(t *testing.T) {
	w := newWorld(t)
	w.counts.SetOverrides(store.OverrideRow(*limitOf("k*", 10)))
	w.tryLimits(7, settings.TrialShadow, overridden("k*", 10, 5), "k*")
	n := w.node("eu", "a", func(c *dataplane.Config) { c.Origin = nil })
	const callers, each = 4, 500
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				n.Allow(context.Background(), ask(fmt.Sprint("k", i, j%7), 1, 99))
			}
		})
	}
	for i := range 50 {
		w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: fmt.Sprint("other", i)})
		n.loadSettings()
		n.limits()
	}
	wg.Wait()
	if h := n.limits(); h.Judged != callers*each || h.Callers.Count() != callers*7 || h.NewlyDenied != callers*7*5 ||
		h.Protected != h.NewlyDenied {
		t.Errorf("%+v", h)
	}
}
