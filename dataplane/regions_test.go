package dataplane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/window"
)

// drain returns the cost that a caller gets who requests the whole limit again and again.
func (n *node) drain(identifier string, each, limit int64) (got int64) {
	n.w.t.Helper()
	for range limit/each + 1 {
		if !n.take(identifier, each, limit).Allowed {
			return got
		}
		got += each
	}
	return got
}

// A caller who visits one region after the other gets the limit once.
func TestRegionsInTurn(t *testing.T) {
	w := newWorld(t)
	w.flushes() // no loop runs here, so a decision must not wait for a flush
	const limit, regions = 100, 10
	var nodes []*node
	for i := range regions {
		nodes = append(nodes, w.node(fmt.Sprint("r", i), "a"))
	}
	w.converge()
	var got int64
	for _, n := range nodes {
		got += n.drain("k", 1, limit)
		n.replay()
		w.converge()
		w.clock.advance(time.Second)
	}
	if got > limit*102/100 {
		t.Errorf("%d of %d were let pass in %d regions", got, limit, regions)
	}
}

// A region that held the key, and a region that did not, receive the cost that a third region has accepted.
func TestWhatOneRegionAcceptsAllKnow(t *testing.T) {
	w := newWorld(t)
	eu, us, ap := w.node("eu", "a"), w.node("us", "b"), w.node("ap", "c")
	us.take("k", 1, 100)
	us.replay()
	w.converge()
	eu.take("k", 40, 100)
	eu.replay()
	w.converge()
	wantAllowed(t, "a key that is held", us.take("k", 10, 100), true, 49)
	us.replay()
	w.converge()
	wantAllowed(t, "a key that is new", ap.take("k", 0, 100), true, 49)
	if s := eu.Cell(w.cell("k")); s.Count != 40 || s.Foreign != 11 {
		t.Errorf("%+v", s)
	}
}

// Two nodes of a region receive each other's cost, also the node that has nothing to send.
func TestANodeThatWasIdleHearsOfTheOther(t *testing.T) {
	w := newWorld(t)
	w.flushes()
	change := func(c *dataplane.Config) { c.RegionNodes = 2 }
	a, b := w.node("eu", "a", change), w.node("eu", "b", change)
	b.take("k", 1, 100)
	b.replay()
	if d := a.take("k", 99, 100); !d.Allowed {
		t.Errorf("99 of 99: %+v", d)
	}
	a.replay()
	w.clock.advance(250 * time.Millisecond)
	if d := b.take("k", 99, 100); d.Allowed {
		t.Errorf("199 of 100: %+v", d)
	}
}

// A chunk whose answer is lost is sent again unchanged, and counts once.
func TestALostReplyIsCountedOnce(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("k", 5, 100)
	w.origin("eu").Faults.LoseReplies(true)
	for range 3 {
		if err := n.ReplayOnce(t.Context()); err == nil {
			t.Fatal("there was an answer")
		}
		n.take("k", 1, 100)
	}
	if got := n.Health().PendingCost; got != 8 {
		t.Errorf("%d of 8 are pending", got)
	}
	w.origin("eu").Faults.LoseReplies(false)
	n.replay()
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 8 {
		t.Errorf("the origin has %d of 8", got)
	}
	if s := n.Cell(w.cell("k")); s.Count != 8 || s.Unsent != 0 || s.Sending {
		t.Errorf("%+v", s)
	}
}

// An origin that was emptied gets back the cost that both nodes have accepted, and no more, whatever they have
// received from each other.
func TestAnEmptiedOriginIsRestored(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("eu", "b")
	const keys = 20
	accept := func(n *node, cost int64) {
		for i := range keys {
			if !n.take(fmt.Sprint("k", i), cost, 1000).Allowed {
				t.Fatal("denied")
			}
		}
	}
	accept(a, 6)
	a.replay()
	accept(b, 4)
	b.replay()
	accept(a, 1) // unsent
	w.origin("eu").Wipe()
	a.take("k0", 1, 1000)
	for range 3 {
		a.replay()
		b.take("k1", 1, 1000)
		b.replay()
	}
	for i := range keys {
		want := int64(11)
		switch i {
		case 0:
			want++
		case 1:
			want += 3
		}
		if got := totals(w.origin("eu"))[w.cell(fmt.Sprint("k", i))]; got != want {
			t.Errorf("k%d: the origin has %d of %d", i, got, want)
		}
	}
}

// Other nodes restore the cost of a node that died, if they have received it.
func TestAnEmptiedOriginHasWhatADeadNodeHadToldOf(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("eu", "b")
	a.take("k", 30, 100)
	a.replay()
	b.take("k", 5, 100) // reads 30
	b.replay()
	w.origin("eu").Wipe() // and node a has stopped
	b.take("k", 1, 100)
	for range 3 {
		b.replay()
	}
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 36 {
		t.Errorf("the origin has %d of 36", got)
	}
}

// A key at its limit, on which nothing is accepted any more, is restored at an emptied origin after the first answer
// about any key.
func TestAnEmptiedOriginIsToldOfKeysAtTheirLimits(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("eu", "b")
	a.take("full", 10, 10)
	a.take("other", 1, 10)
	a.replay()
	w.origin("eu").Wipe()
	a.take("other", 1, 10)
	a.replay()
	a.replay()
	if d := b.take("full", 1, 10); d.Allowed {
		t.Errorf("%+v", d)
	}
}

// If an emptied origin refuses a claim, this node decides the request, and the lost cost is sent first.
func TestAClaimOfAnEarlierEpoch(t *testing.T) {
	w := newWorld(t)
	n := w.waitsAlone()
	n.take("k", 5, 10)
	n.replay()
	w.origin("eu").Wipe()
	for range 10 {
		n.take("k", 1, 10)
		n.replay()
	}
	n.replay()
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 10 || n.Cell(w.cell("k")).Count != 10 {
		t.Errorf("the origin has %d of 10; the node %+v", got, n.Cell(w.cell("k")))
	}
}

// A late answer about a lost epoch changes nothing.
func TestALateAnswerOfALostEpoch(t *testing.T) {
	w := newWorld(t)
	late := &lateOrigin{FullOrigin: w.origin("eu")}
	a := w.node("eu", "a", func(c *dataplane.Config) { c.Origin = late })
	a.take("k", 6, 100)
	a.take("other", 1, 100)
	a.replay()
	w.clock.advance(6 * time.Second) // stale: the next decision reads
	late.then = func() {
		late.then = nil
		w.origin("eu").Wipe()
		a.take("other", 1, 100)
		await.True(t, "the new epoch is known, and k is restored", func() bool {
			return a.ReplayOnce(context.Background()) == nil && totals(w.origin("eu"))[w.cell("k")] == 6
		})
	}
	a.take("k", 1, 100)
	for range 4 {
		a.take("k", 1, 100)
		a.replay()
	}
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 11 {
		t.Errorf("the origin has %d of 11", got)
	}
}

// lateOrigin answers a read with an earlier state.
type lateOrigin struct {
	store.FullOrigin
	then func()
}

func (o *lateOrigin) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	reply, err := o.FullOrigin.Read(ctx, cells)
	if o.then != nil {
		o.then()
	}
	return reply, err
}

// Nodes whose clocks differ by 2 s agree on the cell: windows of 6 s admit at most 1 too many.
func TestNodesOfTwoClocksAgreeOnTheCell(t *testing.T) {
	w := newWorld(t)
	behind := func(c *dataplane.Config) { c.Clock = func() time.Time { return w.clock.Now().Add(-2 * time.Second) } }
	a, b := w.node("eu", "a"), w.node("eu", "b", behind)
	r := ask("k", 1, 60)
	r.Duration = 6 * time.Second
	a.replay() // both read the origin's time
	b.replay()
	for range 40 { // 12 s in steps of 300 ms
		w.clock.advance(300 * time.Millisecond)
		for _, n := range []*node{a, b} {
			n.Allow(t.Context(), r)
			n.replay()
		}
		if at, bt := a.explain(r).Current.Sequence, b.explain(r).Current.Sequence; at != bt {
			t.Fatalf("cells %d and %d", at, bt)
		}
	}
}
