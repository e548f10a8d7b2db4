package dataplane_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const posthog = `{"preset":"posthog"}`

// estimates sets the namespace of ask to the estimate mode.
func (w *world) estimates(knobs string) {
	w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Mode: "estimate", Estimate: knobs})
}

// estimateCell is cell in the estimate mode, ago cells earlier.
func (w *world) estimateCell(identifier string, ago int64) window.Cell {
	c := w.cell(identifier)
	c.Mode = window.Estimate
	c.Sequence -= ago
	return c
}

// others counts cost of other nodes of the region in a cell.
func (w *world) others(c window.Cell, cost int64) {
	w.t.Helper()
	if _, err := add(w.origin("eu"), c, cost); err != nil {
		w.t.Fatal(err)
	}
}

func (n *node) sync() {
	n.w.t.Helper()
	if err := n.SyncOnce(context.Background()); err != nil {
		n.w.t.Fatal(err)
	}
	n.AwaitCalls()
}

// known syncs a key, so that the node has read its region's count.
func (n *node) known(identifier string, count, limit int64) {
	n.w.t.Helper()
	n.w.others(n.w.estimateCell(identifier, 0), count-limit/100-1)
	n.take(identifier, limit/100+1, limit)
	n.sync()
}

func (n *node) asked(identifier string) bool { return n.Asked(n.w.estimateCell(identifier, 0).Key) }

// Behaviour 6: "Level 5 fresh, cost 1 → allowed. Level 10, cost 1 → limited. Answer: level, limit, window, custom
// override or not."
func TestEstimatesByWhatIsKnown(t *testing.T) {
	w := newWorld(t)
	w.estimates(`{"preset":"posthog","overrides":"vip=100, none = 0"}`)
	n := w.node("eu", "a")
	n.known("five", 5, 10)
	n.known("ten", 10, 10)
	if d := n.take("five", 1, 10); !d.Allowed || d.Current != 6 || d.Limit != 10 || d.Remaining != 3 || d.Override != "" || d.Source != dataplane.SourceLocal || !d.ResetAt.Equal(epoch.Add(time.Minute)) {
		t.Errorf("known 5: %+v", d)
	}
	if d := n.take("ten", 1, 10); d.Allowed || d.Current != 11 || d.Remaining != 0 || d.RetryAfter != 6*time.Second+time.Millisecond {
		t.Errorf("known 10: %+v", d) // a unit drains in 6 s, and the limit must not be reached
	}
	if d := n.take("vip", 1, 10); !d.Allowed || d.Limit != 100 || d.Override != "vip" {
		t.Errorf("with an override: %+v", d)
	}
	if d := n.take("none", 1, 10); d.Allowed || d.Limit != 0 || d.Override != "none" {
		t.Errorf("with an override to 0: %+v", d)
	}
}

// Behaviour 7: "New key → allowed whatever the cost, and a sync is queued (if the cost reaches the floor). No I/O on
// the path, ever."
func TestFirstContactIsAllowed(t *testing.T) {
	for _, knobs := range []string{"", posthog} {
		w := newWorld(t)
		w.estimates(knobs)
		n := w.node("eu", "a")
		if d := n.take("big", 50, 10); !d.Allowed || !n.asked("big") {
			t.Errorf("%q: cost 50 of 10: %+v, asked %v", knobs, d, n.asked("big"))
		}
		if d := n.take("small", 4, 500); !d.Allowed || n.asked("small") {
			t.Errorf("%q: cost 4 of 500: %+v, asked %v", knobs, d, n.asked("small"))
		}
		if n.take("small", 1, 500); !n.asked("small") {
			t.Errorf("%q: no sync asked for 5 of 500", knobs)
		}
		if got := w.origin("eu").Stats().Calls(); got != 0 {
			t.Errorf("%q: %d calls to the origin", knobs, got)
		}
	}
}

// Behaviour 9: "Offered cost of a limited request still reaches the origin (preset only)."
func TestOfferedCostReachesTheOrigin(t *testing.T) {
	for knobs, want := range map[string]int64{posthog: 13, "": 10} {
		w := newWorld(t)
		w.estimates(knobs)
		n := w.node("eu", "a")
		n.known("k", 10, 10)
		if d := n.take("k", 3, 10); d.Allowed {
			t.Errorf("%q: %+v", knobs, d)
		}
		w.clock.advance(8 * time.Second)
		n.take("k", 0, 10)
		n.sync()
		if got := totals(w.origin("eu"))[w.estimateCell("k", 0)]; got != want {
			t.Errorf("%q: the origin holds %d, want %d", knobs, got, want)
		}
	}
}

// Behaviour 15: "Outage, L = 10,000: never read and pending 10,000 → allowed; level 5,000 + pending 10,000 while down
// past max_read_outage → allowed; level 12,000 → limited; healthy and level 5,000 + 10,000 → limited."
func TestAnOutageDoesNotCutOffTheInnocent(t *testing.T) {
	const limit = 10_000
	w := newWorld(t)
	w.estimates(`{"preset":"posthog","max_read_outage_ms":10000}`)
	n := w.node("eu", "a")
	n.known("five", 5_000, limit)
	n.known("twelve", 14_000, limit)
	n.known("healthy", 5_000, limit)
	w.clock.advance(8 * time.Second)
	n.take("healthy", 1_400, limit) // it was 5,000, of which 1,333 have drained
	n.take("healthy", 10_000, limit)
	if d := n.take("healthy", 1, limit); d.Allowed {
		t.Errorf("healthy, known 5,000 and pending 10,000: %+v", d)
	}
	w.origin("eu").Faults.Fail(errors.New("down"))
	if err := n.SyncOnce(t.Context()); err == nil {
		t.Error("a sync with an origin that is down succeeds")
	}
	n.take("never", 10_000, limit)
	if d := n.take("never", 1, limit); !d.Allowed {
		t.Errorf("never read and pending 10,000: %+v", d)
	}
	for _, k := range []string{"five", "twelve"} {
		n.take(k, 10_000, limit)
	}
	if d := n.take("five", 1, limit); d.Allowed {
		t.Errorf("known 5,000 and pending 10,000, down for an instant: %+v", d)
	}
	w.clock.advance(10 * time.Second)
	if d := n.take("five", 1, limit); !d.Allowed {
		t.Errorf("known 5,000 and pending 10,000, down past max_read_outage: %+v", d)
	}
	if d := n.take("twelve", 1, limit); d.Allowed { // 14,000, of which 3,000 have drained
		t.Errorf("known 12,000: %+v", d)
	}
	w.origin("eu").Faults.Fail(nil)
	n.sync()
	if d := n.take("five", 1, limit); d.Allowed {
		t.Errorf("the origin is back, and knows of what was pending: %+v", d)
	}
}

// After a change of its mode, a namespace must not read the counts of the other mode. The modes have separate entries
// in memory, and a handle follows.
func TestModesShareNothing(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	key, err := n.Handle("acme", "api", "k", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	n.take("k", 8, 10)
	n.replay()
	n.replay()
	w.estimates("")
	if err := n.LoadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.w.publish()
	if d := n.take("k", 7, 10); !d.Allowed || d.Current != 7 {
		t.Errorf("in the estimate mode: %+v", d)
	}
	n.sync()
	n.replay()
	if d := key.Peek(t.Context(), 10, 1); d.Current != 8 {
		t.Errorf("by a handle: %+v", d)
	}
	totals := totals(w.origin("eu"))
	if totals[w.cell("k")] != 8 || totals[w.estimateCell("k", 0)] != 7 {
		t.Errorf("the origin holds %v", totals)
	}
	if w.published("eu", w.cell("k")) != 8 || w.published("eu", w.estimateCell("k", 0)) != 7 {
		t.Errorf("published: %v", w.counts.Rows())
	}
	w.counts.SetNamespaces()
	if err := n.LoadSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := n.take("k", 0, 10); d.Current != 8 {
		t.Errorf("back in the exact mode: %+v", d)
	}
}

// Other regions' counts are part of the level, as in the exact mode.
func TestOtherRegionsCountInEstimates(t *testing.T) {
	for _, knobs := range []string{"", posthog} {
		w := newWorld(t)
		w.estimates(knobs)
		eu, us := w.node("eu", "a"), w.node("us", "b")
		us.take("k", 9, 10)
		us.sync()
		eu.take("k", 1, 10)
		eu.sync()
		eu.w.publish()
		if d := eu.take("k", 1, 10); d.Allowed || d.Current != 11 {
			t.Errorf("%q: %+v", knobs, d)
		}
	}
}

// Batches: all or nothing, mixed with the exact mode; offered cost counts all the same.
func TestBatchesOfEstimates(t *testing.T) {
	for knobs, want := range map[string]float64{"": 5, posthog: 6} {
		w := newWorld(t)
		w.estimates(knobs)
		n := w.node("eu", "a")
		n.known("a", 5, 10)
		n.known("b", 9, 10)
		other := ask("c", 1, 10)
		other.Namespace = "exact"
		b := n.AllowMany(t.Context(), []dataplane.Request{ask("a", 1, 10), ask("b", 5, 10), other})
		if b.Err != nil || b.Allowed || !b.Decisions[0].Allowed || b.Decisions[1].Allowed || !b.Decisions[2].Allowed {
			t.Errorf("%q: %+v", knobs, b)
		}
		if d := n.take("a", 0, 10); d.Current != want {
			t.Errorf("%q: a is at %v, want %v", knobs, d.Current, want)
		}
		if b := n.AllowMany(t.Context(), []dataplane.Request{ask("new", 50, 10), ask("a", 1, 10), other}); !b.Allowed {
			t.Errorf("%q: %+v", knobs, b)
		}
		if d := n.take("new", 0, 10); d.Current != 50 {
			t.Errorf("%q: new is at %v", knobs, d.Current)
		}
	}
}

// "All offered cost counts", once: also for a batch that is denied by a cached time, and judged again by the clock
// itself.
func TestADeniedBatchIsOfferedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := region(t, 1, memstore.NewOrigin(memstore.OriginOptions{}), store.NamespaceRow{Mode: "estimate", Estimate: `{"preset":"posthog"}`})
		defer stopAll(nodes)
		n, r := nodes[0], ask("k", 100, 10)
		r.Duration = time.Hour
		cell := window.Cell{Key: window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Hour, Mode: window.Estimate},
			Sequence: window.Sequence(time.Now().UnixMilli(), time.Hour.Milliseconds())}
		n.Allow(t.Context(), r) // the first request of a key is allowed
		time.Sleep(time.Second) // and synced
		r.Cost = 7
		for i := range 5 {
			before := n.Cell(cell).Count
			b := n.AllowMany(t.Context(), []dataplane.Request{r})
			if got := n.Cell(cell).Count - before; b.Allowed || got != 7 {
				t.Fatalf("batch %d: allowed %v, 7 were offered, %d counted", i, b.Allowed, got)
			}
			time.Sleep(time.Millisecond)
		}
	})
}
