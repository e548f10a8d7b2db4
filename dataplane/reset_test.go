package dataplane_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// reset returns a row for ask's keys, made now.
func (w *world) reset(identifier string, generation int64) store.ResetRow {
	nowMs := w.clock.Now().UnixMilli()
	return store.ResetRow{Workspace: "acme", Namespace: "api", Identifier: identifier, Generation: generation,
		AtMs: nowMs, ExpiresAtMs: nowMs + 2*window.DurationMax.Milliseconds()}
}

func (n *node) loadSettings() {
	n.w.t.Helper()
	if err := n.LoadSettings(context.Background()); err != nil {
		n.w.t.Fatal(err)
	}
}

// everyone sends all unsent cost, and relays publish it to the other regions.
func everyone(nodes ...*node) {
	for range 2 {
		for _, n := range nodes {
			n.replay()
		}
		for _, n := range nodes {
			n.w.publish()
		}
	}
}

// Cells of older generations stop counting everywhere. When a node has read the settings, the key passes in every
// region. Neither the origin, nor a relay, nor a node that still counts by the previous generation brings a count
// back.
func TestAResetLetsPassInAllRegions(t *testing.T) {
	w := newWorld(t)
	w.tune(func(set *tuning.Tuning) { set.Floor = 0 })
	eu, slow, us := w.node("eu", "a"), w.node("eu", "slow"), w.node("us", "b")
	for _, n := range []*node{eu, us} {
		wantAllowed(t, "before", n.take("k", 5, 10), true, 5)
		n.take("other", 5, 10)
	}
	everyone(eu, us)
	wantAllowed(t, "all is spent", us.take("k", 1, 10), false, 0)

	w.clock.advance(time.Second)
	w.counts.SetResets(w.reset("k", 1))
	wantAllowed(t, "not read yet", eu.take("k", 1, 10), false, 0)
	eu.loadSettings()
	us.loadSettings()
	slow.take("k", 0, 10)
	everyone(eu, slow, us)
	wantAllowed(t, "eu", eu.take("k", 4, 10), true, 6)
	everyone(eu, slow, us)
	wantAllowed(t, "us knows of 4", us.take("k", 6, 10), true, 0)
	everyone(eu, slow, us)
	wantAllowed(t, "and eu of 6", eu.take("k", 1, 10), false, 0)
	wantAllowed(t, "another key is not touched", eu.take("other", 1, 10), false, 0)
	wantAllowed(t, "who does not know goes by the old counts", slow.take("k", 1, 10), false, 0)

	// In the next window the key is like any other, and the previous window has only the cost that was counted since the
	// reset.
	w.clock.set(90 * time.Second)
	wantAllowed(t, "half of 10 is left", us.take("k", 5, 10), true, 0)
	everyone(eu, us)
	if got := w.published("us", w.cell("k")); got != 5 {
		t.Errorf("the next cell has the name that it always had, and holds %d, want 5", got)
	}
	slow.loadSettings()
	w.clock.set(3*time.Minute - time.Millisecond)
	slow.take("k", 0, 10)
	w.clock.set(3 * time.Minute)
	wantAllowed(t, "and two windows later all have the same", slow.take("k", 10, 10), true, 0)
	slow.replay()
	wantAllowed(t, "as eu hears from its origin", eu.take("k", 1, 10), false, 0)
}

// Generation 0 keeps its names; only the cell of the reset has others.
func TestAResetRenamesOnlyItsCell(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	w.counts.SetResets(w.reset("k", 3))
	n.loadSettings()
	n.take("k", 2, 10)
	n.replay()
	since := w.cell("k")
	since.Generation = 3
	w.clock.advance(time.Minute)
	n.take("k", 1, 10)
	n.replay()
	for c, want := range map[window.Cell]int64{since: 2, w.cell("k"): 1} {
		if got := totals(w.origin("eu"))[c]; got != want {
			t.Errorf("%v: %d, want %d", c, got, want)
		}
	}
}

// A node that reads a reset late, in the next cell, starts the key again: it has its accepted cost in that cell from
// the origin, or not at all without the origin.
func TestALateResetBeginsItsKeyAnew(t *testing.T) {
	for _, answers := range []bool{true, false} {
		w := newWorld(t)
		n := w.node("eu", "a")
		late := w.reset("k", 1)
		w.clock.advance(2 * time.Minute)
		n.take("k", 10, 10)
		n.replay()
		w.counts.SetResets(late)
		n.loadSettings()
		if !answers {
			w.origin("eu").Faults.Fail(errDown)
		}
		if d := n.take("k", 1, 10); d.Allowed == answers {
			t.Errorf("the origin answers: %v: %+v", answers, d)
		}
	}
}

// A database that is restored to before a reset may give the same generation, or a smaller generation, to the next
// reset. Nodes with the lost reset apply the next reset like all other nodes: nodes that use different resets share
// no count. If the next reset has the lost generation, it discards less, and the same everywhere.
func TestAResetAfterARestoreIsTakenByAllNodes(t *testing.T) {
	for name, generation := range map[string]int64{"the lost one's generation": 7, "a smaller one": 3, "a greater one": 9} {
		w := newWorld(t)
		old := w.node("eu", "old")
		lost := w.reset("k", 7)
		w.counts.SetResets(lost)
		old.loadSettings()
		old.take("k", 3, 10)
		everyone(old)
		w.clock.advance(time.Minute)
		w.counts.SetResets(w.reset("k", generation))
		fresh := w.node("eu", "fresh")
		for _, n := range []*node{old, fresh} {
			n.loadSettings()
		}
		x, y := old.explain(ask("k", 0, 10)), fresh.explain(ask("k", 0, 10))
		if x.Reset != generation || x.ResetAt != y.ResetAt || x.Reset != y.Reset || x.Current.Generation != y.Current.Generation {
			t.Errorf("%s: reset %d of %v and %d of %v", name, x.Reset, x.ResetAt, y.Reset, y.ResetAt)
		}
		old.take("k", 5, 10)
		everyone(old, fresh)
		if a, b := old.take("k", 0, 10), fresh.take("k", 0, 10); a.Remaining != b.Remaining || a.Remaining > 5 {
			t.Errorf("%s: %d and %d are left of 10 after 5", name, a.Remaining, b.Remaining)
		}
	}
}

// The latest reset applies: rows may be read twice, out of order, or not at all.
func TestTheLatestResetHolds(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	first := w.reset("k", 1)
	w.clock.advance(time.Second)
	second := w.reset("k", 2)
	load := func(rows ...store.ResetRow) {
		w.counts.SetResets(rows...)
		n.loadSettings()
	}
	n.take("k", 10, 10)
	load(second)
	wantAllowed(t, "the second", n.take("k", 7, 10), true, 3)
	for what, rows := range map[string][]store.ResetRow{"again": {second}, "an older one": {first}, "none": nil, "both": {second, first}} {
		load(rows...)
		wantAllowed(t, what, n.take("k", 0, 10), true, 3)
	}
	expired := second
	expired.Identifier, expired.ExpiresAtMs = "old", w.clock.Now().UnixMilli()
	n.take("old", 10, 10)
	load(expired)
	wantAllowed(t, "one that has expired", n.take("old", 1, 10), false, 0)
	for _, bad := range []store.ResetRow{{}, {Workspace: "acme", Namespace: "api", Identifier: "k", Generation: 1 << 15}, {Workspace: "acme", Namespace: "api", Identifier: "k", Generation: 1, AtMs: -1}} {
		w.counts.SetResets(bad, second)
		if err := n.LoadSettings(t.Context()); err == nil {
			t.Errorf("%+v is taken", bad)
		}
		wantAllowed(t, "beside a row that makes no sense", n.take("k", 0, 10), true, 3)
	}
}

// Handles and batches apply a reset with the settings. A reservation from before a reset is settled in the count in
// which it was made.
func TestResetOfWhatIsHeld(t *testing.T) {
	w := newWorld(t)
	w.flushes() // no loop runs here, so a decision must not wait for a flush
	n := w.node("eu", "a")
	w.counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k*", Limit: 10})
	n.loadSettings()
	key, err := n.Handle("acme", "api", "k", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	held, d := n.AllowUpTo(t.Context(), ask("k", 8, 99))
	wantAllowed(t, "reserved", d, true, 2)
	w.counts.SetResets(w.reset("k", 1))
	n.loadSettings()
	wantAllowed(t, "by the handle", key.Allow(t.Context(), 99, 3), true, 7)
	b := n.AllowMany(t.Context(), []dataplane.Request{ask("k", 2, 99), ask("k", 2, 99)})
	wantAllowed(t, "the batch", b.Decisions[1], b.Allowed, 3)
	if change, err := held.Settle(2); err != nil || change > 0 {
		t.Errorf("settled: %d, %v", change, err)
	}
	wantAllowed(t, "which is nothing to the key now", n.take("k", 0, 99), true, 3)
	if got, err := n.Refund(ask("k", 99, 99)); err != nil || got != 7 {
		t.Errorf("refunded %d, %v; want the 7 since the reset", got, err)
	}
	if d = n.take("k", 0, 99); d.Override != "k*" || d.Remaining != 10 {
		t.Errorf("the override of the pattern: %+v", d)
	}
}

// A reset ends the strict deadline of the earlier denials, and works the same in the estimate mode.
func TestResetInTheEstimateMode(t *testing.T) {
	for _, knobs := range []string{"", posthog} {
		w := newWorld(t)
		w.estimates(knobs)
		n := w.node("eu", "a")
		n.known("k", 20, 10)
		wantAllowed(t, "limited", n.take("k", 1, 10), false, 0)
		w.counts.SetResets(w.reset("k", 1))
		n.loadSettings()
		if d := n.take("k", 1, 10); !d.Allowed || d.Current != 1 {
			t.Errorf("%q: after the reset: %+v", knobs, d)
		}
	}
}

// Any history with resets agrees with a map from cell to cost: a reset removes the cell in which it was made and all
// earlier cells.
func TestResetsAgreeWithAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		w.flushes() // no loop runs here, so a decision must not wait for a flush
		w.tune(func(set *tuning.Tuning) { set.Floor = 0 })
		n := w.node("eu", "a")
		counted := map[int64]int64{}
		var newest store.ResetRow
		rt.Repeat(map[string]func(*rapid.T){
			"take": func(rt *rapid.T) {
				cost := rapid.Int64Range(0, 12).Draw(rt, "cost")
				nowMs := w.clock.Now().UnixMilli()
				seq := window.Sequence(nowMs, 60_000)
				uncovered := window.Uncovered(nowMs, 60_000)
				want := window.Fits(counted[seq], counted[seq-1], cost, 20, uncovered, 60_000)
				if want {
					counted[seq] += cost
				}
				d := n.take("k", cost, 20)
				if left := window.Remaining(counted[seq], counted[seq-1], 20, uncovered, 60_000); d.Allowed != want || d.Remaining != left {
					rt.Fatalf("cost %d: %+v; the map says %v, %d left", cost, d, want, left)
				}
			},
			"pass": func(rt *rapid.T) {
				w.clock.advance(time.Duration(rapid.IntRange(1, 70_000).Draw(rt, "ms")) * time.Millisecond)
			},
			"spread": func(*rapid.T) { everyone(n) },
			"reset": func(rt *rapid.T) {
				n.replay() // unsent cost in a later cell than the reset's counts a tick later
				row := w.reset("k", (newest.Generation+32_700+rapid.Int64Range(0, 63).Draw(rt, "stride"))%32_767+1)
				row.AtMs = max(newest.AtMs+1, row.AtMs-rapid.Int64Range(0, 30_000).Draw(rt, "ms ago"))
				row.ExpiresAtMs = row.AtMs + rapid.Int64Range(60_000, 240_000).Draw(rt, "expires after ms")
				newest = row
				w.counts.SetResets(newest)
				n.loadSettings()
				n.take("k", 0, 20) // reads the origin's count of a later cell, before a row has half of it
				for seq := range counted {
					if seq <= window.Sequence(newest.AtMs, 60_000) {
						delete(counted, seq)
					}
				}
			},
			"expire": func(*rapid.T) { // to just past its expiry, which the node notices by itself
				w.clock.advance(max(0, time.UnixMilli(newest.ExpiresAtMs+1).Sub(w.clock.Now())))
				n.loadSettings()
			},
			"load": func(*rapid.T) { n.loadSettings() },
			"lose the row": func(*rapid.T) {
				w.counts.SetResets()
				n.loadSettings()
			},
		})
	})
}

// A reset that expires gives no fresh budget: its node goes on counting by it until the current window has ended.
func TestAResetThatExpiresHandsOutNothing(t *testing.T) {
	for _, origin := range []bool{false, true} {
		w := newWorld(t)
		n := w.node("eu", "a", func(c *dataplane.Config) {
			if !origin {
				c.Origin = nil
			}
		})
		r := ask("k", 10, 10)
		r.Duration = time.Hour
		w.clock.advance(50 * time.Minute)
		w.counts.SetResets(store.ResetRow{Workspace: "acme", Namespace: "api", Identifier: "k", Generation: 1,
			AtMs: w.clock.Now().UnixMilli(), ExpiresAtMs: w.clock.Now().Add(2 * time.Hour).UnixMilli()})
		load := func() {
			if err := n.LoadSettings(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		load()
		w.clock.advance(119 * time.Minute)
		if d := n.Allow(context.Background(), r); !d.Allowed {
			t.Fatalf("origin %v: %+v", origin, d)
		}
		if origin {
			n.replay()
		}
		n.replay()
		w.clock.advance(2 * time.Minute)
		load()
		if d := n.Allow(context.Background(), r); d.Allowed {
			t.Errorf("origin %v: 20 of 10 in two minutes, as a reset expires: %+v", origin, d)
		}
		w.clock.advance(3 * time.Hour)
		n.Sweep()
		load()
		if x, err := n.Explain(r); err != nil || x.SettingsResets != 0 {
			t.Errorf("origin %v: %d resets are known when all is over, %v", origin, x.SettingsResets, err)
		}
		if d := n.Allow(context.Background(), r); !d.Allowed {
			t.Errorf("origin %v: in a new window: %+v", origin, d)
		}
	}
}

// A node whose clock is wrong must not count a reset as expired before it has read its origin's clock: its first
// decisions use that clock, and a caller whom an operator has unblocked is allowed.
func TestANodeWithAWrongClockCountsByAResetFromItsFirstDecisionOn(t *testing.T) {
	for _, skew := range skews {
		t.Run(skew.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := memstore.NewOrigin(memstore.OriginOptions{})
				one := liveNode(t, origin.Client())
				if d := one.Allow(t.Context(), ask("k", 100, 100)); !d.Allowed {
					t.Fatalf("%+v", d)
				}
				if err := one.ReplayOnce(t.Context()); err != nil {
					t.Fatal(err)
				}
				counts := memstore.NewCounts(memstore.CountsOptions{})
				counts.SetResets(store.ResetRow{Workspace: "acme", Namespace: "api", Identifier: "k", Generation: 1,
					AtMs: time.Now().UnixMilli(), ExpiresAtMs: time.Now().Add(3 * time.Minute).UnixMilli()})
				two, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin.Client(), Settings: counts,
					Clock: func() time.Time { return time.Now().Add(skew) }})
				if err != nil {
					t.Fatal(err)
				}
				if err := two.LoadSettings(t.Context()); err != nil {
					t.Fatal(err)
				}
				if d := two.Allow(t.Context(), ask("k", 100, 100)); !d.Allowed {
					t.Errorf("%+v", d)
				}
				time.Sleep(4 * time.Minute) // the reset expires by the origin's clock
				if err := two.LoadSettings(t.Context()); err != nil {
					t.Fatal(err)
				}
				if x, err := two.Explain(ask("k", 0, 100)); err != nil || x.Reset != 0 {
					t.Errorf("after it has expired reset %d is in force: %v", x.Reset, err)
				}
				two.AwaitCalls()
			})
		})
	}
}
