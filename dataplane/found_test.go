package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
)

// Eviction never drops unsent cost (send first). Cost that is in flight is still unsent: if the send fails, the entry
// must still have it.
func TestCostInFlightOutlivesAFlood(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a", func(c *dataplane.Config) { c.Settings, c.EntriesMax = nil, 64 })
	n.take("k", 5, 100)
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op != memstore.OpSend {
			return nil
		}
		for i := range 1000 { // a flood while the increment is in flight
			n.take(fmt.Sprint("flood", i), 0, 100)
			n.take(fmt.Sprint("flood", i), 101, 100) // can never pass, but uses the key
		}
		return errDown // "certainly not applied"
	})
	if err := n.ReplayOnce(t.Context()); !errors.Is(err, errDown) {
		t.Fatal(err)
	}
	w.origin("eu").Faults.Hook(nil)
	n.replay()
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 5 {
		t.Errorf("the origin has %d of 5 accepted; %d counted as dropped", got, n.Health().DroppedCost)
	}
}

// The bounds on work per tick carry the rest over, and an outage keeps the deltas: a later tick must send the cost
// that a tick left over.
func TestWhatATickDidNotGetToIsSentLater(t *testing.T) {
	for _, c := range []struct {
		keys   int
		outage bool
	}{{600, true}, {25_000, false}} {
		w := newWorld(t)
		n := w.node("eu", "a", func(c *dataplane.Config) { c.Settings = nil })
		for i := range c.keys {
			n.take(fmt.Sprint("k", i), 1, 10)
		}
		if c.outage {
			w.origin("eu").Faults.Fail(errDown)
			if err := n.ReplayOnce(t.Context()); err == nil {
				t.Fatal("the origin is down")
			}
			w.origin("eu").Faults.Fail(nil)
		}
		if got := n.Health().PendingCost; got != int64(c.keys) {
			t.Errorf("%d keys, outage %v: %d pending before", c.keys, c.outage, got)
		}
		for range 5 {
			n.replay()
		}
		if got := len(totals(w.origin("eu"))); got != c.keys {
			t.Errorf("%d keys, outage %v: %d at the origin, %d pending", c.keys, c.outage, got, n.Health().PendingCost)
		}
	}
}

// A shard that is down degrades only its own keys.
func TestADeadShardHoldsUpNoOther(t *testing.T) {
	origin := &deadShard{Origin: memstore.NewOrigin(memstore.OriginOptions{Clock: func() time.Time { return epoch }})}
	l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin, Clock: func() time.Time { return epoch },
		Breaker: dataplane.Breaker{CallsMin: 1_000_000}}) // so that failing calls are repeated
	if err != nil {
		t.Fatal(err)
	}
	for i := range 600 {
		l.Allow(t.Context(), ask(fmt.Sprintf("dead%d", i), 1, 10))
	}
	for i := range 3 {
		l.Allow(t.Context(), ask(fmt.Sprintf("live%d", i), 1, 10))
		for range 3 {
			_ = l.ReplayOnce(t.Context())
		}
		if got := len(totals(origin.Origin)); got != i+1 {
			t.Fatalf("%d of %d live cells at the origin", got, i+1)
		}
	}
}

type deadShard struct{ *memstore.Origin }

func (p *deadShard) Send(ctx context.Context, c store.Chunk) (store.Reply, error) {
	good := c
	good.Costs = nil
	for _, cost := range c.Costs {
		if !strings.HasPrefix(cost.Cell.Identifier, "dead") {
			good.Costs = append(good.Costs, cost)
		}
	}
	reply, err := p.Origin.Send(ctx, good)
	if err != nil {
		return reply, err
	}
	all := make([]store.Total, 0, len(c.Costs))
	for _, cost := range c.Costs {
		if strings.HasPrefix(cost.Cell.Identifier, "dead") {
			all = append(all, store.Total{Err: errDown})
			continue
		}
		all, reply.Totals = append(all, reply.Totals[0]), reply.Totals[1:]
	}
	reply.Totals = all
	return reply, nil
}

// A failed cold read: decide locally; next try only after a pause (300 ms); then the origin's value is adopted. A
// replay in between must not replace the read, because it returns nothing about the previous cell.
func TestAReplayIsNoHydration(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("eu", "b")
	b.take("k", 10, 10)
	b.replay()
	w.clock.set(time.Minute)
	w.origin("eu").Faults.Fail(errDown)
	a.take("k", 1, 10) // cold read fails
	w.origin("eu").Faults.Fail(nil)
	w.clock.advance(100 * time.Millisecond)
	a.replay()
	for range 50 {
		w.clock.advance(100 * time.Millisecond)
		if rested := w.clock.Now().Sub(epoch) >= time.Minute+300*time.Millisecond; !rested {
			continue
		}
		if d := a.take("k", 1, 10); d.Allowed {
			t.Fatalf("at %v: 10 of the previous window at the origin, allowed: %+v", w.clock.Now().Sub(epoch), d)
		}
		a.replay()
	}
}

func TestABatchOnAFullTableIsAnswered(t *testing.T) {
	w := newWorld(t)
	n := w.alone(func(c *dataplane.Config) { c.EntriesMax = 1000 })
	for i := range 1000 {
		n.take(fmt.Sprint("idle", i), 0, 100)
	}
	done := make(chan dataplane.Batch, 1)
	go func() {
		done <- n.AllowMany(context.Background(), []dataplane.Request{ask("a", 1, 10), ask("b", 1, 10), ask("c", 1, 10)})
	}()
	select {
	case b := <-done:
		if !b.Allowed {
			t.Errorf("%+v", b)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("no answer in 5 s")
	}
}

// A batch of more new keys than the table can hold is answered too.
func TestABatchLargerThanTheTableIsAnswered(t *testing.T) {
	w := newWorld(t)
	n := w.alone(func(c *dataplane.Config) { c.EntriesMax = 10 })
	var requests []dataplane.Request
	for i := range 100 {
		requests = append(requests, ask(fmt.Sprint("k", i), 1, 10))
	}
	done := make(chan dataplane.Batch, 1)
	go func() { done <- n.AllowMany(context.Background(), requests) }()
	select {
	case b := <-done:
		if !b.Allowed {
			t.Errorf("%+v", b)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("no answer in 5 s")
	}
}

// Keys come and go, and look-ups still end.
//
//weir:unraced
func TestAFullTableGoesOn(t *testing.T) {
	for _, entriesMax := range []int{96, 1536, 10_000, 12_288} {
		w := newWorld(t)
		n := w.alone(func(c *dataplane.Config) { c.EntriesMax = entriesMax })
		done := make(chan bool)
		go func() {
			for i := range 20 * entriesMax {
				n.Allow(context.Background(), ask(fmt.Sprint(i), 1, 100))
			}
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(await.Patience): // a walk that never ends, not a slow machine
			t.Fatalf("%d entries: %d new keys do not come to an end", entriesMax, 20*entriesMax)
		}
	}
}

// "A clock that steps back must not resurrect budget": AllowAt accepts times up to ClockSkewMax back, and the sweep
// must leave the cells that such times use.
func TestASweptKeyIsNotResurrected(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	n.take("k", 10, 10)
	w.clock.set(2 * time.Minute)
	n.Sweep()
	if d := n.AllowAt(t.Context(), epoch.Add(time.Minute+time.Second), ask("k", 9, 10)); d.Allowed {
		t.Errorf("one second into the window after 10 of 10: %+v", d)
	}
}

// The same holds for the clock itself: a server's clock is set a minute back.
func TestAClockSetBackResurrectsNothing(t *testing.T) {
	w := newWorld(t)
	n := w.alone()
	n.take("k", 10, 10)
	w.clock.set(2 * time.Minute)
	n.Sweep()
	w.clock.set(time.Minute + time.Second)
	wantAllowed(t, "one second into the window after 10 of 10", n.take("k", 9, 10), false, 1)
}
