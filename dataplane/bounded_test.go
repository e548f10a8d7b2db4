package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/shared/window"
)

// Eviction never drops a key at or over its limit before its window ends, however it reached the limit and in
// whichever cell. It must not drop it in the next window either, while the previous cell has weight.
//
//weir:unraced
func TestAKeyAtItsLimitOutlivesAFlood(t *testing.T) {
	ctx := context.Background()
	for how, fill := range map[string]func(n *node){
		"by a single": func(n *node) { n.take("full", 10, 10) },
		"by a batch": func(n *node) {
			n.AllowMany(ctx, []dataplane.Request{ask("full", 4, 10), ask("full", 6, 10)})
		},
		"by a handle": func(n *node) { n.handle("full").Allow(ctx, 10, 10) },
		"by a denial": func(n *node) {
			n.take("full", 4, 1000)
			n.take("full", 7, 10)
		},
		"by a settlement": func(n *node) {
			held, _ := n.AllowUpTo(ctx, ask("full", 1, 10))
			if change, err := held.Settle(10); err != nil || change != 9 {
				n.w.t.Fatalf("settled %d: %v", change, err)
			}
		},
	} {
		for _, minute := range []int{0, 1} { // either slot of an entry
			t.Run(fmt.Sprintf("%s, minute %d", how, minute), func(t *testing.T) {
				w := newWorld(t)
				w.clock.set(time.Duration(minute) * time.Minute)
				n := w.alone(func(c *dataplane.Config) { c.EntriesMax = 200 })
				fill(n)
				tooMuch := 11 - n.Cell(w.cell("full")).Count
				for _, when := range []string{"in its window", "in the next"} {
					n.flood(10_000)
					if d := n.take("full", tooMuch, 10); d.Allowed {
						t.Errorf("%s: %+v", when, d)
					}
					w.clock.set(time.Duration(minute+1) * time.Minute)
				}
			})
		}
	}
}

func (n *node) handle(identifier string) *dataplane.Handle {
	k, err := n.Handle("acme", "api", identifier, time.Minute)
	if err != nil {
		n.w.t.Fatal(err)
	}
	return k
}

// flood sends a single request for each of many keys.
func (n *node) flood(keys int) {
	for i := range keys {
		n.Allow(context.Background(), ask(fmt.Sprint("flood", i), 1, 1000))
	}
}

// Eviction never drops unsent cost (send first): a key far from its limit stays until the origin has its cost. Then
// it can go, and is read again with its cost.
func TestUnsentCostIsNotEvicted(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a", func(c *dataplane.Config) { c.Settings, c.EntriesMax = nil, 64 })
	n.take("k", 5, 100)
	peek := func() { // a flood without cost: all of it can be evicted at once
		for i := range 2000 {
			n.take(fmt.Sprint("flood", i), 0, 100)
			n.take(fmt.Sprint("flood", i), 101, 100) // can never pass, but is a second request
		}
	}
	w.origin("eu").Faults.Fail(errDown)
	for range 3 {
		peek()
		if err := n.ReplayOnce(t.Context()); err == nil {
			t.Fatal("the origin is down")
		}
		if s := n.Cell(w.cell("k")); !s.Held || !s.Sending || s.Count != 5 {
			t.Fatalf("before it was sent: %+v", s)
		}
	}
	w.origin("eu").Faults.Fail(nil)
	n.replay()
	peek()
	if n.Cell(w.cell("k")).Held {
		t.Error("idle, sent and far from its limit, and still held: the flood proves nothing")
	}
	wantAllowed(t, "when it comes back", n.take("k", 1, 100), true, 94)
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 5 {
		t.Errorf("the origin has %d", got)
	}
}

// Each tick examines a bounded number of entries, whatever their total. After enough ticks it has examined all of
// them.
//
//weir:unraced
func TestASweepTickIsBounded(t *testing.T) {
	const tickMax = 30_000
	for _, entries := range []int{1000, 20_000, 160_000} {
		w := newWorld(t)
		n := w.alone()
		for i := range entries {
			r := ask(strconv.Itoa(i), 1, 10)
			if i%16 == 0 {
				r.Duration = time.Second
			}
			n.Allow(t.Context(), r)
		}
		w.clock.advance(2*time.Second + time.Minute) // one in sixteen has expired, and late requests cannot reach it
		looked, ticks := 0, 0
		for ; looked < 2*entries; ticks++ { // two rounds, whatever the start position was
			tick := n.SweepTick()
			if tick > tickMax || tick == 0 {
				t.Fatalf("one tick looked at %d of %d entries", tick, entries)
			}
			looked += tick
		}
		if got, want := n.Entries(), entries-(entries+15)/16; got != want {
			t.Errorf("%d entries after %d ticks, want %d", got, ticks, want)
		}
		if most := 4 + 2*entries/4096; ticks > most {
			t.Errorf("%d ticks for %d entries, want at most %d", ticks, entries, most)
		}
	}
}

// Eviction, requests, failing sends and reads run at the same time, and lose nothing: the origin has all accepted
// cost, except for the cost that the full table reported as dropped.
func TestEvictionLosesNothing(t *testing.T) {
	const entriesMax, keys, workers = 48, 64, 8
	w := newWorld(t)
	n := w.node("eu", "a", func(c *dataplane.Config) {
		c.Settings, c.EntriesMax, c.Clock = nil, entriesMax, func() time.Time { return epoch }
	})
	var calls atomic.Int64
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op != memstore.OpSend {
			return nil
		}
		runtime.Gosched() // a delay in which other goroutines can run
		if calls.Add(1)%4 == 0 {
			return errDown // "certainly not applied"
		}
		return nil
	})
	var accepted [keys]atomic.Int64
	var stop atomic.Bool
	deadline := time.Now().Add(1500 * time.Millisecond)
	handles := make([]*dataplane.Handle, keys)
	for i := range handles {
		handles[i] = n.handle(fmt.Sprint("k", i))
	}
	together(workers+2, func(worker int) {
		switch worker {
		case workers:
			for !stop.Load() {
				if err := n.ReplayOnce(context.Background()); err != nil && !errors.Is(err, errDown) {
					t.Error(err)
				}
				runtime.Gosched()
			}
			return
		case workers + 1:
			for !stop.Load() {
				if got := n.Entries(); got > entriesMax {
					t.Errorf("%d entries", got)
				}
				n.SweepTick()
			}
			return
		}
		defer stop.Store(true)
		for i := worker; time.Now().Before(deadline); i += 7 {
			k, other := i%keys, (i*i+worker)%keys
			switch i % 3 {
			case 0:
				if handles[k].Allow(context.Background(), window.LimitMax, 1).Allowed {
					accepted[k].Add(1)
				}
			case 1:
				n.take(fmt.Sprint("k", k), 2, window.LimitMax)
				accepted[k].Add(2)
			default:
				n.AllowMany(context.Background(), []dataplane.Request{
					ask(fmt.Sprint("k", k), 1, window.LimitMax), ask(fmt.Sprint("k", other), 3, window.LimitMax)})
				accepted[k].Add(1)
				accepted[other].Add(3)
			}
		}
	})
	n.AwaitCalls()
	w.origin("eu").Faults.Hook(nil)
	n.replay()
	var all, arrived int64
	totals := totals(w.origin("eu"))
	for i := range keys {
		total := totals[w.cell(fmt.Sprint("k", i))]
		if total > accepted[i].Load() {
			t.Errorf("k%d: the origin has %d of %d", i, total, accepted[i].Load())
		}
		all, arrived = all+accepted[i].Load(), arrived+total
	}
	h := n.Health()
	if arrived != all-h.DroppedCost || h.PendingCost != 0 {
		t.Errorf("the origin has %d of %d accepted; %d were dropped, %d are pending", arrived, all, h.DroppedCost, h.PendingCost)
	}
	t.Logf("%d accepted, %d dropped", all, h.DroppedCost)
}

// A cold batch of 100 keys costs one origin round trip (a pipeline), not 200.
func TestAColdBatchIsOneRoundTrip(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("k7", 1, 100) // warm
	before := w.origin("eu").Stats()
	var requests []dataplane.Request
	for i := range 101 {
		requests = append(requests, ask(fmt.Sprint("k", i), 1, 100), ask(fmt.Sprint("k", i), 1, 100))
	}
	b := n.AllowMany(t.Context(), requests)
	after := w.origin("eu").Stats()
	if !b.Allowed || after.Calls()-before.Calls() != 1 || after.CellsRead-before.CellsRead != 200 {
		t.Errorf("allowed %v by %d calls for %d cells, want 1 for the 200 of 100 keys", b.Allowed, after.Calls()-before.Calls(), after.CellsRead-before.CellsRead)
	}
	for i, d := range b.Decisions {
		want := dataplane.SourceOrigin
		if i/2 == 7 {
			want = dataplane.SourceLocal
		}
		if d.Source != want {
			t.Errorf("item %d: source %v, want %v", i, d.Source, want)
		}
	}
	n.AllowMany(t.Context(), requests)
	if got := w.origin("eu").Stats().Calls(); got != after.Calls() {
		t.Errorf("%d calls for a batch of warm keys", got-after.Calls())
	}
}
