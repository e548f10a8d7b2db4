package dataplane_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func (n *node) reserve(identifier string, cost, limit int64) *dataplane.Allowance {
	n.w.t.Helper()
	r, d := n.AllowUpTo(n.w.t.Context(), ask(identifier, cost, limit))
	if d.Err != nil || !d.Allowed {
		n.w.t.Fatalf("%+v", d)
	}
	return &r
}

func settle(t testing.TB, r *dataplane.Allowance, cost, want int64) {
	t.Helper()
	if got, err := r.Settle(cost); err != nil || got != want {
		t.Errorf("settled %d, %v; want %d", got, err, want)
	}
}

// Cost that was not sent yet is removed as if it had never been accepted.
func TestSettlingBeforeAnybodyKnows(t *testing.T) {
	w := newWorld(t)
	w.flushes() // so that there is unsent cost
	for name, n := range map[string]*node{"alone": w.alone(), "fleet": w.node("eu", "a")} {
		r := n.reserve("k", 80, 100)
		settle(t, r, 30, -50)
		settle(t, r, 0, 0) // once
		wantAllowed(t, name, n.take("k", 70, 100), true, 0)
		if got := n.Cell(w.cell("k")).Count; got != 100 {
			t.Errorf("%s: count %d", name, got)
		}
	}
	n := w.node("eu", "b")
	settle(t, n.reserve("k2", 80, 100), 30, -50)
	n.replay()
	n.replay()
	if got := totals(w.origin("eu"))[w.cell("k2")]; got != 30 {
		t.Errorf("origin has %d", got)
	}
	if got := w.published("eu", w.cell("k2")); got != 30 {
		t.Errorf("published %d", got)
	}
}

// Cost that was sent stays at the other nodes and becomes this node's credit: decisions here subtract it at once, and
// the next cost that this node accepts there is paid from it.
func TestSettlingAfterOthersKnow(t *testing.T) {
	w := newWorld(t)
	w.flushes() // so that there is unsent cost
	a, b := w.node("eu", "a"), w.node("eu", "b")
	us := w.node("us", "c")
	r := a.reserve("k", 80, 100)
	a.replay()
	a.replay()
	settle(t, r, 30, -50)
	origin := func() int64 { return totals(w.origin("eu"))[w.cell("k")] }
	if origin() != 80 || w.published("eu", w.cell("k")) != 80 {
		t.Fatal("confirmed history shrank")
	}
	wantAllowed(t, "here at once", a.take("k", 0, 100), true, 70)
	wantAllowed(t, "not yet at b", b.take("k", 0, 100), true, 20)
	a.take("k", 40, 100) // paid from the credit
	a.replay()
	a.replay()
	if origin() != 80 {
		t.Errorf("origin has %d, want the 80 that it knew", origin())
	}
	wantAllowed(t, "30 + 40 spent", a.take("k", 0, 100), true, 30)
	a.take("k", 20, 100) // 10 of credit are left
	a.replay()
	a.replay()
	if origin() != 90 || w.published("eu", w.cell("k")) != 90 {
		t.Errorf("origin %d, row %d, want the true 90", origin(), w.published("eu", w.cell("k")))
	}
	w.clock.advance(6 * time.Second)
	us.w.publish()
	for name, n := range map[string]*node{"a": a, "b": b, "us": us} {
		wantAllowed(t, name+" knows the truth", n.take("k", 0, 100), true, 10)
	}
}

// "Cost above the estimate is charged at once, even past the limit."
func TestSettlingMoreThanTheEstimate(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	settle(t, n.reserve("k", 10, 100), 150, 140)
	d := n.take("k", 1, 100)
	wantAllowed(t, "past the limit", d, false, 0)
	if want := 80*time.Second + time.Millisecond; d.RetryAfter != want {
		t.Errorf("retry after %v, want %v: 150 * weight must fall below 100", d.RetryAfter, want)
	}
	n.replay()
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 150 {
		t.Errorf("origin has %d", got)
	}
}

// An allowance is settled in its own cell, while that cell still has weight, and not after.
func TestSettlingAcrossCells(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	r, late := n.reserve("k", 60, 100), n.reserve("k", 40, 100)
	w.clock.set(time.Minute)
	wantAllowed(t, "the window has just turned", n.take("k", 1, 100), false, 0)
	settle(t, r, 10, -50)
	wantAllowed(t, "the previous cell shrank by 50", n.take("k", 50, 100), true, 0)
	w.clock.set(2 * time.Minute)
	n.take("k", 0, 100)
	settle(t, late, 0, 0)
	wantAllowed(t, "its cell is gone", n.take("k", 0, 100), true, 50)
}

// A charge counts in the cell that has the estimate when the clock reaches that cell, even if a clock that was set
// back has moved the key to the previous cell.
func TestSettlingAfterTheClockWasSetBack(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	w.clock.set(55 * time.Second)
	w.clock.step(10 * time.Second)
	r := n.reserve("k", 10, 100)
	n.replay()
	n.replay()
	w.clock.step(-10 * time.Second)
	n.take("k", 0, 100) // the key is in the previous cell
	w.clock.set(70 * time.Second)
	settle(t, r, 80, 70)
	n.replay()
	n.replay()
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 80 {
		t.Errorf("the origin has %d of the estimate's cell, want 80", got)
	}
	w.clock.set(150 * time.Second)
	wantAllowed(t, "half of the cell before counts", n.take("k", 0, 100), true, 60)
}

// A key that was evicted since is added again for the charge.
func TestSettlingMoreOnAnEvictedKey(t *testing.T) {
	for name, evict := range map[string]func(w *world, n *node){
		"idle": func(w *world, n *node) {
			w.clock.advance(11 * time.Minute)
			n.Sweep()
		},
		"pushed out": func(w *world, n *node) {
			for i := range 400 {
				n.take(fmt.Sprint("flood", i), 1, 1000)
				n.replay()
				n.replay()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := w.node("eu", "a", func(c *dataplane.Config) { c.EntriesMax = 100 })
			r := ask("k", 10, 1000)
			r.Duration = time.Hour
			held, _ := n.AllowUpTo(t.Context(), r)
			n.replay()
			n.replay()
			if evict(w, n); n.Entry(window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Hour}) != nil {
				t.Fatal("it was not evicted")
			}
			settle(t, &held, 900, 890)
			r.Cost = 101
			if d := n.Allow(t.Context(), r); d.Allowed {
				t.Errorf("900 of 1000 are spent, and 101 passed: %+v", d)
			}
			n.replay()
			n.replay()
			cell := window.Cell{Key: window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Hour},
				Sequence: window.Sequence(w.clock.Now().UnixMilli(), time.Hour.Milliseconds())}
			if total, row := totals(w.origin("eu"))[cell], w.published("eu", cell); total != 900 || row != 900 {
				t.Errorf("the origin has %d, the row %d, of 900", total, row)
			}
		})
	}
}

// An evicted allowance gives nothing back: the cost that the key has counted since belongs to others, and earlier
// cost stays counted.
func TestSettlingLessOnAnEvictedKey(t *testing.T) {
	w := newWorld(t)
	n := w.alone(func(c *dataplane.Config) { c.EntriesMax = 100 })
	held := n.reserve("k", 4, 10)
	for i := range 400 {
		n.take(fmt.Sprint("flood", i), 1, 1000)
	}
	n.take("k", 5, 10)
	settle(t, held, 0, 0)
	wantAllowed(t, "4 were counted, and 5 since", n.take("k", 0, 10), true, 1)
}

// A cell that has ended is not charged, on an evicted key either. A key without room in a full table is charged in
// the overflow, which is not sent to the origin.
func TestSettlingMoreWhereNothingCanBeCharged(t *testing.T) {
	w := newWorld(t)
	n := w.alone(func(c *dataplane.Config) { c.EntriesMax = 2 })
	late, full := n.reserve("late", 1, 10), n.reserve("full", 1, 10)
	for i := range 20 {
		n.take(fmt.Sprint("flood", i), 1, 1000)
	}
	for i := range 20 {
		n.take(fmt.Sprint("denied", i), 1000, 1000)
	}
	settle(t, full, 9, 8)
	if n.take("full", 3, 10).Allowed {
		t.Error("8 were charged, and 3 more of 10 pass")
	}
	if got := n.Health().DroppedCost; got < 8 {
		t.Errorf("%d dropped", got)
	}
	w.clock.set(2 * time.Minute)
	settle(t, late, 9, 0)
}

func TestSettleAndRefundRefuseBadInput(t *testing.T) {
	n := newWorld(t).alone()
	r := n.reserve("k", 5, 10)
	for _, cost := range []int64{-1, window.LimitMax + 1} {
		if _, err := r.Settle(cost); !errors.Is(err, dataplane.ErrInvalid) || r.Held() != 5 {
			t.Errorf("%d: %v, holds %d", cost, err, r.Held())
		}
	}
	if _, err := n.Refund(ask("", 1, 10)); !errors.Is(err, dataplane.ErrInvalid) {
		t.Error(err)
	}
	denied, d := n.AllowUpTo(t.Context(), ask("k", 6, 10))
	if d.Allowed || denied.Held() != 0 {
		t.Errorf("%+v", d)
	}
	settle(t, &denied, 3, 0)
	settle(t, &dataplane.Allowance{}, 3, 0)
}

func TestRefundNeverGoesBelowZero(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("k", 7, 10)
	n.replay()
	for i, want := range []int64{5, 2, 0} {
		got, err := n.Refund(ask("k", 5, 10))
		if err != nil || got != want {
			t.Errorf("refund %d: %d, %v; want %d", i, got, err, want)
		}
	}
	wantAllowed(t, "all given back", n.take("k", 10, 10), true, 0)
	if got, err := n.Refund(ask("unknown", 5, 10)); got != 0 || err != nil {
		t.Errorf("unknown key: %d, %v", got, err)
	}
}

// A node that has received another node's cost can give it back too. Then either node passes as much more.
func TestCostThatIsRefundedAtTwoNodesIsGivenBackTwice(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("eu", "b")
	a.take("k", 25, 100)
	a.replay()
	b.take("k", 1, 100) // b reads the key
	for _, n := range []*node{a, b} {
		if got, err := n.Refund(ask("k", 25, 100)); got != 25 || err != nil {
			t.Errorf("refunded %d, %v", got, err)
		}
	}
	a.replay()
	if got := a.take("k", 1, 100); got.Remaining != 99 {
		t.Errorf("the first node has %d left, want 99", got.Remaining)
	}
	if got := b.take("k", 1, 100); got.Remaining != 98 { // after its own cost of 1
		t.Errorf("the other node has %d left, want 98", got.Remaining)
	}
}

// Random histories of allowances, settlements, sends and publications on the nodes of a region: no count is ever
// negative or below the count that the origin confirmed, and the origin never holds less than the spent cost. When
// every credit is used, it holds exactly the spent cost.
func TestSettlementsKeepTheTruth(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		nodes := []*node{w.node("eu", "a"), w.node("eu", "b")}
		cell := w.cell("k")
		var spent int64
		open := map[*dataplane.Allowance]bool{}
		const limit = 1 << 40
		pick := func() *node { return nodes[rapid.IntRange(0, 1).Draw(rt, "node")] }
		rt.Repeat(map[string]func(*rapid.T){
			"reserve": func(rt *rapid.T) {
				cost := rapid.Int64Range(1, 20).Draw(rt, "cost")
				open[pick().reserve("k", cost, limit)] = true
				spent += cost
			},
			"settle": func(rt *rapid.T) {
				for r := range open {
					delete(open, r)
					held := r.Held()
					cost := rapid.Int64Range(0, 2*held).Draw(rt, "true cost")
					change, err := r.Settle(cost)
					if err != nil || change != cost-held {
						rt.Fatalf("settled %d, %v; want %d", change, err, cost-held)
					}
					spent += change
					return
				}
			},
			"replay":  func(rt *rapid.T) { pick().replay() },
			"publish": func(rt *rapid.T) { w.publish() },
			"": func(rt *rapid.T) {
				var pending int64
				for i, n := range nodes {
					s := n.Cell(cell)
					if s.Held && (s.Credit < 0 || s.Credit > s.Count || s.Settled > s.Count || s.Unsent < 0) {
						rt.Fatalf("node %d: %+v", i, s)
					}
					pending += s.Unsent - s.Credit
				}
				if total := totals(w.origin("eu"))[cell]; total+pending != spent {
					rt.Fatalf("origin %d and %d to come, %d were spent", total, pending, spent)
				}
			},
		})
		// Each node accepts as much again as its credit: then the origin's count is exact.
		for _, n := range nodes {
			if credit := n.Cell(cell).Credit; credit > 0 {
				n.take("k", credit, limit)
				spent += credit
			}
			n.replay()
		}
		if got := totals(w.origin("eu"))[cell]; got != spent {
			rt.Fatalf("origin has %d, %d were spent", got, spent)
		}
	})
}

// "A count is never below the cost that this node's callers spent", also for a key without room in a full table: the
// charge counts in the same place as its cost, at the origin or in the overflow.
func TestSettlingMoreOnAKeyWithoutRoom(t *testing.T) {
	for name, change := range map[string][]func(*dataplane.Config){"with an origin": nil, "alone": {withoutOrigin}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := w.fullTable("api", change...)
			r := n.reserve("victim", 1, 10)
			if r.Held() != 1 {
				t.Errorf("the reservation holds %d of 1", r.Held())
			}
			settle(t, r, 10, 9)
			if d := n.take("victim", 1, 10); d.Allowed {
				t.Errorf("10 of 10 are spent: %+v", d)
			}
			if r := n.reserve("other victim", 5, 10); r.Held() != 5 {
				t.Errorf("the reservation holds %d of 5", r.Held())
			} else {
				settle(t, r, 2, 0) // cost that is counted elsewhere stays counted
			}
		})
	}
}

// The previous cell still has weight, so it is charged on an evicted key as well.
func TestSettlingMoreOnAnEvictedKeyInTheNextWindow(t *testing.T) {
	w := newWorld(t)
	n := w.alone(func(c *dataplane.Config) { c.EntriesMax = 100 })
	held := n.reserve("k", 10, 1000)
	for i := range 400 {
		n.take(fmt.Sprint("flood", i), 1, 1000)
	}
	w.clock.set(time.Minute)
	settle(t, held, 1000, 990)
	wantAllowed(t, "1,000 were spent in the cell before", n.take("k", 11, 1000), false, 0)
}

// A charge on a key without an entry counts for requests that are being decided on the key.
func TestSettlingMoreIsSeenByThoseWhoDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		small := func(c *dataplane.Config) { c.EntriesMax, c.ReadTimeout = 20, time.Second }
		l := region(t, 1, origin, store.NamespaceRow{}, small)[0]
		defer stopAll([]*dataplane.Limiter{l})
		for i := range 80 {
			l.Allow(t.Context(), ask(fmt.Sprint("pinned", i), 1, 1))
		}
		n := &node{Limiter: l, w: newWorld(t)}
		r := n.reserve("victim", 1, 10)
		origin.Faults.Delay(100 * time.Millisecond)
		decided := make(chan dataplane.Decision)
		go func() { decided <- l.Allow(t.Context(), ask("victim", 5, 10)) }()
		synctest.Wait() // the request reads the origin
		if l.UntrackedKeys() != 1 {
			t.Fatalf("%d keys without an entry are decided on, want 1", l.UntrackedKeys())
		}
		settle(t, r, 10, 9)
		if d := <-decided; d.Allowed {
			t.Errorf("10 of 10 were spent: %+v", d)
		}
	})
}
