package dataplane_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// Behaviour 8: "A fresh entry → no sync queued. Synced 60 s ago at pressure .5 → queued. Queued twice → once in the
// set."
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

// Behaviour 11: "A sync that reads cur 7, prev 3 at t = 90 → level 8.5, pressure .85 (limit 10) or .085 (override
// 100)."
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

// Behaviour 11: "Only cost covered by the reply leaves pending: cost that came in during the round trip stays."
func TestCostDuringTheRoundTripStaysPending(t *testing.T) {
	w := newWorld(t)
	w.estimates(posthog)
	n := w.node("eu", "a")
	n.KnowTime()
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
	w.clock.advance(2400 * time.Millisecond) // four units drain, of the level of five
	if d := n.take("k", 0, 100); d.Current != 8 {
		t.Errorf("level %v, want 1 known and 7 pending", d.Current)
	}
	w.clock.advance(time.Minute) // the synced level has drained, and pending cost does not drain
	if d := n.take("k", 0, 100); d.Current != 7 {
		t.Errorf("level %v a minute later, want 7 pending", d.Current)
	}
}

// Cost that came in during a sync is sent by another sync if it is past a step or the key is hot, also if no request
// follows. "n nodes lack at most n steps of each other's cost."
func TestCostDuringASyncIsSentAlthoughNoRequestFollows(t *testing.T) {
	for _, c := range []struct{ before, during, limit, want int64 }{
		{97, 1, 100, 98}, // hot
		{300, 40, 1000, 340},
		{300, 1, 1000, 300}, // less than a step, which is a fiftieth of the limit
	} {
		w := newWorld(t)
		w.estimates("")
		n := w.node("eu", "a")
		n.KnowTime()
		n.take("k", c.before, c.limit)
		w.origin("eu").Faults.Hook(func(op memstore.Op) error {
			if op == memstore.OpSend {
				n.take("k", c.during, c.limit)
			}
			return nil
		})
		n.sync()
		w.origin("eu").Faults.Hook(nil)
		n.sync()
		n.sync()
		if got := totals(w.origin("eu"))[w.estimateCell("k", 0)]; got != c.want {
			t.Errorf("%d, and %d during the sync: the origin holds %d, want %d", c.before, c.during, got, c.want)
		}
		if keys, _ := n.Waiting(); keys != 0 {
			t.Errorf("%d, and %d during the sync: %d keys wait", c.before, c.during, keys)
		}
	}
}

// Cost that came in during a sync is sent too if the cell ends before the sync does.
func TestCostDuringASyncIsSentAlthoughItsCellEnds(t *testing.T) {
	w := newWorld(t)
	w.estimates("")
	n := w.node("eu", "a")
	n.KnowTime()
	n.take("k", 300, 1000)
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpSend {
			n.take("k", 40, 1000)
			w.clock.set(time.Minute)
			n.take("k", 1, 1000)
		}
		return nil
	})
	n.sync()
	w.origin("eu").Faults.Hook(nil)
	n.sync()
	if got := totals(w.origin("eu"))[w.estimateCell("k", 1)]; got != 340 {
		t.Errorf("the origin holds %d, want 340", got)
	}
	if keys, _ := n.Waiting(); keys != 0 {
		t.Errorf("%d keys wait", keys)
	}
}

// A key that is held back waits for its next request, also if all of its cost is unsent. Otherwise a flood of new keys
// would take the syncs of all other keys.
func TestAKeyThatIsHeldBackWaitsForItsNextRequest(t *testing.T) {
	w := newWorld(t)
	w.estimates("")
	n := w.node("eu", "a", fewNewKeys)
	n.KnowTime()
	for i := range 310 {
		n.Allow(t.Context(), long("api", fmt.Sprint("flood-", i), 1))
	}
	for range 5 {
		n.sync()
	}
	if keys, _ := n.Waiting(); keys != 0 || n.stored("api") != 300 || n.HeldBack() != 10 {
		t.Errorf("%d keys wait, the origin holds %d, and keys were held back %d times", keys, n.stored("api"), n.HeldBack())
	}
	w.clock.advance(time.Second)
	n.Allow(t.Context(), long("api", "flood-309", 2))
	if n.sync(); n.stored("api") != 301 {
		t.Errorf("the origin holds %d keys after a request, want 301", n.stored("api"))
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

// "Own cost is sent once it comes to a step", whatever counts the node receives from other regions meanwhile.
func TestWhatIsHeardKeepsNoCostBack(t *testing.T) {
	w := newWorld(t)
	w.estimates("")
	n := w.node("eu", "a")
	n.take("k", 1, 100)
	n.sync()
	cell := w.estimateCell("k", 0)
	for i := range int64(5) { // the received cost is even, and the request odd: none passes a multiple of 2
		n.ApplyForeign([]store.Foreign{{Cell: cell, Count: 1 + 3*i}})
		n.take("k", 1, 100)
	}
	if !n.Waits(cell.Key) {
		t.Errorf("5 of a limit of 100 wait, and no sync is wanted: the step is 2")
	}
}

// Cost below the floor is never sent, and is no loss.
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

// A rolling restart gives no fresh budget: a node that stops sends its cost, below its floor or not.
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

// The reply of a write is not read again: a key that has cost to send is not read. Only its previous cell is read, on
// the first request and while other nodes may still add to it.
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
	for range 10 { // no previous cell has changed for long
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
