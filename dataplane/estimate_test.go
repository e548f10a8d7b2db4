package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const posthog = `{"preset":"posthog"}`

// estimates puts the namespace of ask into the estimate mode.
func (w *world) estimates(knobs string) {
	w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Mode: "estimate", Estimate: knobs})
}

// estimateCell is cell in the estimate mode, so many cells ago.
func (w *world) estimateCell(identifier string, ago int64) window.Cell {
	c := w.cell(identifier)
	c.Mode = window.Estimate
	c.Sequence -= ago
	return c
}

// others lets other nodes of the region count cost in a cell.
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

// known makes a key that the node has just heard of: its region's count is count.
func (n *node) known(identifier string, count, limit int64) {
	n.w.t.Helper()
	n.w.others(n.w.estimateCell(identifier, 0), count-limit/100-1)
	n.take(identifier, limit/100+1, limit)
	n.sync()
}

func (n *node) asked(identifier string) bool { return n.Asked(n.w.estimateCell(identifier, 0).Key) }

// Behaviour 6: "Known 5 fresh, cost 1 → allowed. Known 10, cost 1 → limited. Answer:
// level, limit, window, custom override or not."
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

// Behaviour 7: "Unknown key → allowed whatever the cost, and a sync is asked for (if the
// cost reaches the floor). No I/O on the path, ever."
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

// Behaviour 8: "A fresh entry → no sync asked. Synced 60 s ago at pressure .5 → asked.
// Asked twice → once in the set."
func TestSyncsAreAskedForOnce(t *testing.T) {
	w := newWorld(t)
	w.estimates(posthog)
	n := w.node("eu", "a")
	n.known("k", 50, 100)
	if n.take("k", 1, 100); n.asked("k") {
		t.Error("a fresh entry asks")
	}
	w.clock.advance(60 * time.Second)
	w.others(w.estimateCell("k", 0), 60)
	n.take("k", 50, 100)
	n.take("k", 1, 100)
	if keys, _ := n.Waiting(); keys != 1 {
		t.Errorf("%d keys wait", keys)
	}
}

// Behaviour 5, on a limiter: "tier changes act at once".
func TestTierChangesActAtOnce(t *testing.T) {
	w := newWorld(t)
	w.estimates("")
	n := w.node("eu", "a")
	n.known("k", 300, 1000) // low: every 60 s
	w.clock.advance(8 * time.Second)
	if n.take("k", 1, 1000); n.asked("k") {
		t.Error("asked after 8 s at 30 %")
	}
	if n.take("k", 500, 1000); !n.asked("k") {
		t.Error("not asked after 8 s at 80 %")
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

// Behaviour 11: "A sync that reads cur 7, prev 3 at t = 90 → known 8.5, pressure .85
// (limit 10) or .085 (override 100)."
func TestASyncTellsTheLevel(t *testing.T) {
	w := newWorld(t)
	w.estimates(`{"preset":"posthog","overrides":"vip=100"}`)
	n := w.node("eu", "a")
	w.clock.set(90 * time.Second)
	for _, k := range []string{"k", "vip"} {
		w.others(w.estimateCell(k, 1), 3)
		w.others(w.estimateCell(k, 0), 6)
		n.take(k, 1, 10)
		n.sync()
		if d := n.take(k, 0, 10); d.Current != 8.5 {
			t.Errorf("%s: known %v, want 8.5", k, d.Current)
		}
	}
	got := gather(t, n.Limiter)
	if got[`weir_sync_tier_keys{tier="hot"}`] != 1 || got[`weir_sync_tier_keys{tier="idle"}`] != 1 || got[`weir_tier_transitions_total{from="low",to="hot"}`] != 1 {
		t.Errorf("tiers: %v", got)
	}
}

// Behaviour 11: "Only cost covered by the reply leaves pending: cost that came in during
// the round trip stays."
func TestCostDuringTheRoundTripStaysPending(t *testing.T) {
	w := newWorld(t)
	w.estimates(posthog)
	n := w.node("eu", "a")
	n.take("k", 5, 100)
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpSend {
			n.take("k", 7, 100)
		}
		return nil
	})
	n.sync()
	w.origin("eu").Faults.Hook(nil)
	if got := totals(w.origin("eu"))[w.estimateCell("k", 0)]; got != 5 {
		t.Errorf("the origin holds %d, want 5", got)
	}
	w.clock.advance(2400 * time.Millisecond) // four units drain, of the five that are known
	if d := n.take("k", 0, 100); d.Current != 8 {
		t.Errorf("level %v, want 1 known and 7 pending", d.Current)
	}
	w.clock.advance(time.Minute) // what is known is gone, and what is pending does not drain
	if d := n.take("k", 0, 100); d.Current != 7 {
		t.Errorf("level %v a minute later, want 7 pending", d.Current)
	}
}

// Behaviour 14: "pending-sync set cap 2 with 4 keys → 2 and a counter; 25 writes with cap
// 10 a tick → 15 carried over".
func TestSyncsAreBounded(t *testing.T) {
	w := newWorld(t)
	w.estimates(`{"pending_max":2}`)
	n := w.node("eu", "a")
	for i := range 4 {
		n.take(fmt.Sprint(i), 1, 10)
	}
	if keys, refused := n.Waiting(); keys != 2 || refused != 2 {
		t.Errorf("%d wait, %d were not taken", keys, refused)
	}
	n.sync()
	if n.take("3", 1, 10); !n.asked("3") {
		t.Error("there is room again, and nobody asks")
	}

	w = newWorld(t)
	w.estimates(`{"batch_max":10}`)
	n = w.node("eu", "a")
	for i := range 25 {
		n.take(fmt.Sprint(i), 1, 10)
	}
	for _, want := range []int{15, 5, 0} {
		n.sync()
		if keys, _ := n.Waiting(); keys != want {
			t.Errorf("%d wait, want %d", keys, want)
		}
	}
	if got := w.origin("eu").Stats().CellsAdded; got != 25 {
		t.Errorf("%d increments of 25", got)
	}
}

// What is restored to an origin that has lost its counts waits by the settings of its namespace, as any sync does.
func TestRestoredEstimatesAreBounded(t *testing.T) {
	w := newWorld(t)
	w.estimates(`{"batch_max":10}`)
	n := w.node("eu", "a")
	for i := range 25 {
		n.take(fmt.Sprint(i), 1, 10)
	}
	for range 3 {
		n.sync()
	}
	w.origin("eu").Wipe()
	n.take("0", 1, 10)
	n.sync()
	n.AwaitCalls()
	for _, want := range []int{25, 15, 5, 0} {
		if keys, _ := n.Waiting(); keys != want {
			t.Errorf("%d wait, want %d", keys, want)
		}
		n.sync()
	}
	for i := range 25 {
		want := int64(1)
		if i == 0 {
			want = 2
		}
		if got := totals(w.origin("eu"))[w.estimateCell(fmt.Sprint(i), 0)]; got != want {
			t.Errorf("the origin has %d of %d of key %d", got, want, i)
		}
	}
}

// A key that is only read while the origin is found to have lost its counts is restored as well.
func TestAnEstimateThatIsReadIsRestored(t *testing.T) {
	w := newWorld(t)
	w.estimates("")
	n := w.node("eu", "a")
	n.take("k", 8, 10)
	n.take("other", 8, 10)
	n.sync()
	w.clock.advance(20 * time.Second)
	w.origin("eu").Wipe()
	n.take("other", 1, 10)
	n.take("k", 0, 10)
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpRead {
			n.AwaitCalls() // the walk for what is to be restored meets the key in the middle of its sync
		}
		return nil
	})
	n.sync()
	w.origin("eu").Faults.Hook(nil)
	n.sync()
	if got := totals(w.origin("eu"))[w.estimateCell("k", 0)]; got != 8 {
		t.Errorf("the origin has %d of 8", got)
	}
}

// Behaviour 14: "a cell five epochs old is purged, not written".
func TestOldCellsAreNotWritten(t *testing.T) {
	w := newWorld(t)
	w.estimates(posthog)
	n := w.node("eu", "a")
	n.take("k", 50, 100)
	old := w.estimateCell("k", 0)
	w.clock.advance(5 * time.Minute)
	n.sync()
	if stats := w.origin("eu").Stats(); stats.CellsAdded != 0 || totals(w.origin("eu"))[old] != 0 {
		t.Errorf("written: %+v", stats)
	}
	got := gather(t, n.Limiter)
	if got[`weir_dropped_cost_total{cause="expired"}`] != 50 {
		t.Errorf("dropped %v, want 50", got[`weir_dropped_cost_total{cause="expired"}`])
	}
}

// Cost below the floor is told to nobody, and is no loss.
func TestCostBelowTheFloorExpires(t *testing.T) {
	w := newWorld(t)
	w.estimates("")
	n := w.node("eu", "a")
	n.take("k", 4, 1000)
	w.clock.advance(2 * time.Minute)
	n.take("k", 0, 1000)
	got := gather(t, n.Limiter)
	if got[`weir_dropped_cost_total{cause="expired"}`] != 0 || got["weir_estimate_unsynced_cost_total"] != 4 {
		t.Errorf("dropped %v, unsynced %v", got[`weir_dropped_cost_total{cause="expired"}`], got["weir_estimate_unsynced_cost_total"])
	}
}

// Behaviour 15: "Outage, L = 10,000: never read and pending 10,000 → allowed; known 5,000
// + pending 10,000 while down past max_read_outage → allowed; known 12,000 → limited;
// healthy and known 5,000 + 10,000 → limited."
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

// Behaviour 18: "Two goroutines hammering one key lose no increment."
func TestTwoGoroutinesLoseNoIncrement(t *testing.T) {
	const each = 50_000
	for _, knobs := range []string{"", posthog} {
		w := newWorld(t)
		w.estimates(knobs)
		n := w.node("eu", "a")
		var hammers sync.WaitGroup
		for range 2 {
			hammers.Go(func() {
				for i := range each {
					if i%100 == 0 {
						w.clock.advance(time.Millisecond)
					}
					n.Allow(t.Context(), ask("k", 1, 1<<40))
				}
			})
		}
		done := make(chan struct{})
		go func() { hammers.Wait(); close(done) }()
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
				n.sync()
			}
		}
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := totals(w.origin("eu"))[w.estimateCell("k", 0)]; got != 2*each {
			t.Errorf("%q: the origin holds %d of %d", knobs, got, 2*each)
		}
	}
}

// A node stops: a rolling restart hands out no fresh budget: below its floor or not.
func TestStopSendsEstimatesToo(t *testing.T) {
	w := newWorld(t)
	w.estimates("")
	n := w.node("eu", "a")
	for i := range 2500 {
		n.take(fmt.Sprint(i), 1, 100_000)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stats := w.origin("eu").Stats(); stats.CellsAdded != 2500 {
		t.Errorf("%+v", stats)
	}
}

// Never re-read what a write has told: a key that has cost to send is not read, but for
// the cell before, on first contact and while others may still add to it.
func TestTheReplyOfAWriteIsNotReadAgain(t *testing.T) {
	w := newWorld(t)
	w.estimates("")
	n := w.node("eu", "a")
	r := ask("k", 9000, 10_000)
	r.Duration = time.Hour
	n.Allow(t.Context(), r)
	n.sync()
	if stats := w.origin("eu").Stats(); stats.CellsAdded != 1 || stats.CellsRead != 1 {
		t.Errorf("on first contact: %+v", stats)
	}
	r.Cost = 1
	for range 10 { // no cell before has changed for long
		w.clock.advance(7500 * time.Millisecond)
		n.Allow(t.Context(), r)
		n.sync()
	}
	if stats := w.origin("eu").Stats(); stats.CellsAdded != 11 || stats.CellsRead > 10 {
		t.Errorf("after a minute: %+v", stats)
	}
	before := w.origin("eu").Stats().CellsRead
	w.clock.advance(7500 * time.Millisecond)
	n.Allow(t.Context(), r)
	n.sync()
	if got := w.origin("eu").Stats().CellsRead; got != before {
		t.Errorf("%d cells read", got-before)
	}
}

// Switching a namespace's mode must not read the other's counts, and its entries in
// memory are apart; a handle follows.
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
	n.w.tell()
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
		eu.w.tell()
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

// stuck is an origin that never answers anything.
type stuck struct{ store.Origin }

func (s stuck) Shards() int              { return 1 }
func (s stuck) ShardOf(*window.Key) int  { return 0 }
func (s stuck) hang(ctx context.Context) { <-ctx.Done() }
func (s stuck) Read(ctx context.Context, _ []window.Cell) (store.Reply, error) {
	s.hang(ctx)
	return store.Reply{}, ctx.Err()
}
func (s stuck) Send(ctx context.Context, _ store.Chunk) (store.Reply, error) {
	s.hang(ctx)
	return store.Reply{}, ctx.Err()
}
func (s stuck) Claim(ctx context.Context, _ store.Claims) store.ClaimReply {
	s.hang(ctx)
	return store.ClaimReply{}
}
func (s stuck) Listen(ctx context.Context, _ int, _ func([]store.Foreign)) error {
	s.hang(ctx)
	return nil
}

// Estimate: never any I/O or waiting on the request path, whatever the state (cold,
// stale, origin dead): with an origin that never answers, no time passes.
func TestEstimatesNeverWait(t *testing.T) {
	for _, knobs := range []string{"", posthog} {
		synctest.Test(t, func(t *testing.T) {
			counts := memstore.NewCounts(memstore.CountsOptions{})
			counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Mode: "estimate", Estimate: knobs})
			l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", Origin: stuck{}, Settings: counts, EntriesMax: 300})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // virtual: the settings are read
			for round := range 100 {
				began := time.Now()
				for i := range 10 {
					l.Allow(t.Context(), ask(fmt.Sprint(i), 5, 10))
					l.Allow(t.Context(), ask(fmt.Sprint("once", round, i), 50, 10))
				}
				l.Peek(t.Context(), ask("0", 0, 10))
				l.AllowMany(t.Context(), []dataplane.Request{ask("0", 1, 10), ask(fmt.Sprint("batch", round), 1, 10)})
				if waited := time.Since(began); waited != 0 {
					t.Fatalf("%q: round %d waited for %v", knobs, round, waited)
				}
				time.Sleep(3 * time.Second)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := l.Stop(ctx); err == nil {
				t.Error("nothing was confirmed, and Stop does not say so")
			}
		})
	}
}

// All metrics are there from the start, and count what their names say.
func TestMetricsOfTheMode(t *testing.T) {
	w := newWorld(t)
	w.estimates(posthog)
	n := w.node("eu", "a")
	for name, v := range gather(t, n.Limiter) {
		if strings.Contains(name, "sync_") || strings.Contains(name, "tier") || strings.Contains(name, "estimate") || strings.Contains(name, "counts_total") {
			if v != 0 {
				t.Errorf("%s is %v at the start", name, v)
			}
		}
	}
	n.known("k", 10, 10)
	n.take("k", 1, 10)
	w.clock.advance(8 * time.Second)
	n.take("k", 0, 10)
	got := gather(t, n.Limiter)
	for name, want := range map[string]float64{
		`weir_eval_counts_total{result="allowed"}`: 2, `weir_eval_counts_total{result="limited"}`: 1, `weir_eval_counts_total{result="shadowed"}`: 0,
		`weir_cache_counts_total{result="hit"}`: 2, `weir_cache_counts_total{result="miss"}`: 1, `weir_cache_counts_total{result="sync_queued"}`: 2,
		`weir_origin_pending_sync{shard="0"}`: 1, "weir_sync_refused_total": 0,
		`weir_sync_tier_keys{tier="hot"}`: 1, `weir_sync_tier_keys{tier="idle"}`: 0, `weir_tier_transitions_total{from="low",to="hot"}`: 1,
		"weir_estimate_drift_ratio": 0, "weir_sync_staleness_seconds": 0,
		`weir_decisions_total{outcome="allowed",source="local"}`: 2,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (there: %v), want %v", name, v, ok, want)
		}
	}
	n.sync()
	got = gather(t, n.Limiter)
	for _, name := range []string{"weir_estimate_drift_ratio", "weir_sync_staleness_seconds"} {
		if got[name] != 1 {
			t.Errorf("%s has %v observations", name, got[name])
		}
	}
	w.clock.advance(5 * time.Minute)
	n.replay()
	n.Sweep()
	if got := gather(t, n.Limiter)[`weir_sync_tier_keys{tier="low"}`]; n.Entries() != 0 || got != 0 {
		t.Errorf("%d keys, of them %v low", n.Entries(), got)
	}
}

// "all that is offered counts", once: also of a batch that is denied by a time that the
// clock has told, and judged again by the clock itself.
func TestADeniedBatchIsOfferedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := region(t, 1, memstore.NewOrigin(memstore.OriginOptions{}), store.NamespaceRow{Mode: "estimate", Estimate: `{"preset":"posthog"}`})
		defer stopAll(nodes)
		n, r := nodes[0], ask("k", 100, 10)
		r.Duration = time.Hour
		cell := window.Cell{Key: window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Hour, Mode: window.Estimate},
			Sequence: window.Sequence(time.Now().UnixMilli(), time.Hour.Milliseconds())}
		n.Allow(t.Context(), r) // a first contact is allowed
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
