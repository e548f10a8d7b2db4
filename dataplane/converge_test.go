package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Merging adds the cost that other nodes added: the origin's answer never hides cost that this node accepted between
// sending and answer, or before its first read.
func TestMergesLoseNothingOfOnesOwn(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("eu", "b")
	b.take("k", 30, 100)
	b.replay()
	w.origin("eu").Faults.Fail(errDown)
	a.take("k", 5, 100) // accepted before the first read
	w.origin("eu").Faults.Fail(nil)
	w.clock.advance(time.Second)
	a.take("k", 1, 100) // reads 30
	if s := a.Cell(w.cell("k")); s.Count != 36 || s.Unsent != 6 {
		t.Fatalf("after hydration: %+v", s)
	}
	// Another 2 are accepted while the 6 are in flight.
	sent := false
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpSend && !sent {
			sent = true
			a.take("k", 2, 100)
		}
		return nil
	})
	a.replay()
	if s := a.Cell(w.cell("k")); s.Count != 38 || s.Unsent != 2 {
		t.Fatalf("after the answer: %+v", s)
	}
	a.replay()
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 38 {
		t.Errorf("origin has %d", got)
	}
}

// A read that is answered while this node's own cost is in flight must not count that cost as another node's.
func TestAReadDuringASendCountsNothingTwice(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("k", 5, 100)
	reading := false
	w.origin("eu").Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpSend && !reading {
			reading = true
			w.clock.advance(6 * time.Second) // stale: the next decision reads
			n.take("k", 1, 100)
		}
		return nil
	})
	n.replay()
	n.replay()
	if s := n.Cell(w.cell("k")); s.Count != 6 || s.Unsent != 0 {
		t.Errorf("%+v", s)
	}
}

// "If a total is smaller than the node's last total, the origin has lost data: heal it with a max-merge, not with
// another increment."
func TestAWipedOriginIsHealed(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("eu", "b")
	a.take("k", 6, 100)
	a.replay()
	b.take("k", 4, 100)
	b.replay()
	w.clock.advance(6 * time.Second)
	a.take("k", 1, 100) // reads 10, has 1 unsent
	w.origin("eu").Wipe()
	if s := a.Cell(w.cell("k")); s.Count != 11 {
		t.Fatalf("a: %+v", s)
	}
	a.replay()
	b.take("k", 1, 100)
	for range 2 {
		b.replay()
		a.replay()
	}
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 12 {
		t.Errorf("origin has %d after the wipe, want 12", got)
	}
	if got := a.Cell(w.cell("k")).Count; got != 12 {
		t.Errorf("a counts %d of 12", got)
	}
}

// A node's last send is its last chance to detect a loss, and to heal the origin.
func TestAWipeThatStopFindsIsHealed(t *testing.T) {
	w := newWorld(t)
	a := w.node("eu", "a")
	a.take("k", 6, 100)
	a.replay()
	w.origin("eu").Wipe()
	a.take("k", 1, 100)
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 7 {
		t.Errorf("origin has %d after the last node has left, want 7", got)
	}
}

// Cost whose send got no answer is sent again, and counts once.
func TestALostReplyCountsOnce(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("k", 5, 100)
	w.origin("eu").Faults.LoseReplies(true)
	if err := n.ReplayOnce(t.Context()); err == nil || errors.Is(err, store.ErrNotApplied) {
		t.Fatalf("replay: %v", err)
	}
	w.origin("eu").Faults.LoseReplies(false)
	n.replay()
	total := totals(w.origin("eu"))[w.cell("k")]
	if total != 5 {
		t.Errorf("origin has %d of 5", total)
	}
	if got := n.Cell(w.cell("k")).Count; got != total {
		t.Errorf("the node holds %d, the origin %d", got, total)
	}
}

// The cost of a cell that has expired is dropped, and counted as dropped. So is the cost of a chunk that got no
// answer and is sent again after that, because an origin may leave no count of it.
func TestCostOfAnExpiredCellIsDroppedAndCounted(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("k", 5, 100)
	w.origin("eu").Faults.Fail(errDown)
	if err := n.ReplayOnce(t.Context()); err == nil {
		t.Fatal("the origin is down")
	}
	if h := n.Health(); h.PendingCost != 5 || h.DroppedCost != 0 {
		t.Fatalf("%+v", h)
	}
	n.take("k", 3, 100) // not in the chunk that got no answer
	w.clock.set(2 * time.Minute)
	w.origin("eu").Faults.Fail(nil)
	n.replay()
	if h := n.Health(); h.PendingCost != 0 || h.DroppedCost != 8 {
		t.Errorf("%+v, origin %v", h, totals(w.origin("eu")))
	}
}

// If a chunk is sent again while its cell still has weight, or is answered at once, its cost is not dropped.
func TestCostThatComesInTimeIsNotDropped(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	n.take("k", 5, 100)
	w.origin("eu").Faults.Fail(errDown)
	if err := n.ReplayOnce(t.Context()); err == nil {
		t.Fatal("the origin is down")
	}
	w.clock.set(2*time.Minute - time.Millisecond)
	w.origin("eu").Faults.Fail(nil)
	n.replay()
	n.take("k", 4, 100)
	n.replay()
	if h := n.Health(); h.PendingCost != 0 || h.DroppedCost != 0 {
		t.Errorf("%+v, origin %v", h, totals(w.origin("eu")))
	}
}

// Cost that peers added to a cell in its last moments is read once more after the cell has closed.
func TestAClosedCellIsReadOnceMore(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("eu", "b")
	w.clock.set(59 * time.Second)
	a.take("k", 1, 100)
	a.replay()
	b.take("k", 50, 100)
	b.replay() // a has not received these
	cell := w.cell("k")
	for _, at := range []time.Duration{60 * time.Second, 61 * time.Second} {
		w.clock.set(at)
		a.take("k", 1, 100)
		a.replay()
	}
	if got := a.Cell(cell).Count; got != 51 {
		t.Errorf("a holds %d of the closed cell, want 51", got)
	}
	before := w.origin("eu").Stats().Gets
	for range 5 {
		w.clock.advance(100 * time.Millisecond)
		a.take("k", 1, 100)
		a.replay()
	}
	if got := w.origin("eu").Stats().Gets - before; got != 0 {
		t.Errorf("read %d more times", got)
	}
}

// The work of replay is proportional to active keys, not to requests.
func TestReplayAggregates(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	for range 1000 {
		n.take("a", 1, 10_000)
		n.take("b", 1, 10_000)
	}
	n.replay()
	if s := w.origin("eu").Stats(); s.Sends != 1 || s.CellsAdded != 2 {
		t.Errorf("%+v", s)
	}
}

// If the origin refuses an increment, all others must still be sent.
func TestOneFailingCellHoldsUpNoOther(t *testing.T) {
	origin := &poisoned{Origin: memstore.NewOrigin(memstore.OriginOptions{Clock: func() time.Time { return epoch }}), identifier: "k0000"}
	l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin, Clock: func() time.Time { return epoch }})
	if err != nil {
		t.Fatal(err)
	}
	const keys = 2000
	for i := range keys {
		l.Allow(t.Context(), ask(fmt.Sprintf("k%04d", i), 1, 10))
	}
	if err := l.ReplayOnce(t.Context()); err == nil {
		t.Error("the failure was not reported")
	}
	if got := len(totals(origin.Origin)); got != keys-1 {
		t.Errorf("%d cells at the origin, want %d", got, keys-1)
	}
}

// poisoned is an origin at which all increments of an identifier fail.
type poisoned struct {
	*memstore.Origin
	identifier string
}

// model is the expected state of a region: the cost that its nodes accepted in each cell.
type model map[window.Cell]int64

// Random histories of requests, replays, reads and new cells: at every step each node keeps its invariants. When
// everything is sent and read, every node and the origin hold exactly the accepted cost.
func TestNodesConvergeToWhatWasAccepted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		w.flushes() // no loop runs here, so a decision must not wait for a flush
		nodes := make([]*node, rapid.IntRange(1, 4).Draw(rt, "nodes"))
		for i := range nodes {
			nodes[i] = w.node("eu", fmt.Sprint(i))
		}
		keys := []string{"a", "b"}
		accepted := model{}
		pick := func() *node { return nodes[rapid.IntRange(0, len(nodes)-1).Draw(rt, "node")] }
		check := func() {
			for i, n := range nodes {
				for _, k := range keys {
					s := n.Cell(w.cell(k))
					if s.Held && (s.Unsent < 0 || s.Settled < 0 || s.Settled > s.Count) {
						rt.Fatalf("node %d, %s: %+v", i, k, s)
					}
					if s.Count > accepted[w.cell(k)] {
						rt.Fatalf("node %d holds %d of %s, %d were accepted", i, s.Count, k, accepted[w.cell(k)])
					}
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"allow": func(rt *rapid.T) {
				k, cost := rapid.SampledFrom(keys).Draw(rt, "key"), rapid.Int64Range(0, 5).Draw(rt, "cost")
				if pick().take(k, cost, 1000).Allowed {
					accepted[w.cell(k)] += cost
				}
			},
			"batch": func(rt *rapid.T) {
				cost, limit := rapid.Int64Range(0, 5).Draw(rt, "cost"), rapid.Int64Range(0, 40).Draw(rt, "limit")
				b := pick().AllowMany(t.Context(), []dataplane.Request{ask("a", cost, 1000), ask("b", 1, limit), ask("a", 1, 1000)})
				if b.Allowed {
					accepted[w.cell("a")] += cost + 1
					accepted[w.cell("b")]++
				}
			},
			"replay": func(rt *rapid.T) { pick().replay() },
			"advance": func(rt *rapid.T) {
				w.clock.advance(time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "ms")) * time.Millisecond)
			},
			"down": func(rt *rapid.T) {
				w.origin("eu").Faults.Fail(errDown)
				n := pick()
				_ = n.ReplayOnce(t.Context())
				if n.take("a", 1, 1000).Allowed {
					accepted[w.cell("a")]++
				}
				w.origin("eu").Faults.Fail(nil)
			},
			"": func(rt *rapid.T) { check() },
		})
		w.clock.advance(301 * time.Millisecond) // after this, no key rests after a failed read
		for _, n := range nodes {
			n.replay()
		}
		w.clock.advance(6 * time.Second)
		for _, k := range keys {
			for i, n := range nodes {
				n.take(k, 0, 1<<40) // stale: reads both cells
				cell := w.cell(k)
				for _, c := range []window.Cell{cell, {Key: cell.Key, Sequence: cell.Sequence - 1}} {
					want := accepted[c]
					if got := n.Cell(c).Count; got != want {
						rt.Fatalf("node %d holds %d of %s cell %d, %d were accepted", i, got, k, c.Sequence, want)
					}
					if got := totals(w.origin("eu"))[c]; got != want {
						rt.Fatalf("the origin holds %d of %s cell %d, %d were accepted", got, k, c.Sequence, want)
					}
				}
			}
		}
	})
}

func (p *poisoned) Send(ctx context.Context, c store.Chunk) (store.Reply, error) {
	good := c
	good.Costs = nil
	for _, cost := range c.Costs {
		if cost.Cell.Identifier != p.identifier {
			good.Costs = append(good.Costs, cost)
		}
	}
	reply, err := p.Origin.Send(ctx, good)
	if err != nil {
		return reply, err
	}
	all := make([]store.Total, 0, len(c.Costs))
	for _, cost := range c.Costs {
		if cost.Cell.Identifier == p.identifier {
			all = append(all, store.Total{Err: errDown})
			continue
		}
		all, reply.Totals = append(all, reply.Totals[0]), reply.Totals[1:]
	}
	reply.Totals = all
	return reply, nil
}
