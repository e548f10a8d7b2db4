package dataplane_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// refusing is an origin that answers chunks but adds none of their costs, while refuses is set.
type refusing struct {
	*memstore.Origin
	refuses bool
}

func (o *refusing) Send(ctx context.Context, c store.Chunk) (store.Reply, error) {
	if !o.refuses {
		return o.Origin.Send(ctx, c)
	}
	costs := c.Costs
	c.Costs = nil
	reply, err := o.Origin.Send(ctx, c)
	for range costs {
		reply.Totals = append(reply.Totals, store.Total{Err: errDown})
	}
	return reply, err
}

// Invariant 7: cost that the origin refuses is sent with the next tick, even if no request comes for its key.
func TestWhatTheOriginRefusesIsSentAgain(t *testing.T) {
	w := newWorld(t)
	w.flushes() // so that there is unsent cost
	origin := &refusing{Origin: w.origin("eu"), refuses: true}
	n := w.node("eu", "a", func(c *dataplane.Config) { c.Origin = origin })
	n.take("k", 5, 10)
	if err := n.ReplayOnce(t.Context()); err == nil {
		t.Error("replay does not say that its cost was refused")
	}
	if got := n.Cell(w.cell("k")).Unsent; got != 5 {
		t.Fatalf("%d are unsent, want the 5 that were refused", got)
	}
	origin.refuses = false
	n.replay()
	if got := totals(w.origin("eu"))[w.cell("k")]; got != 5 {
		t.Errorf("the origin has %d of 5", got)
	}
}

// Cost that was counted by an entry from before a reset is sent and published: the cost of a cell that began after
// the reset has the key's own name, which other regions use as well.
func TestOtherRegionsHearOfTheCellAfterAReset(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a")
	late := w.reset("k", 1)
	w.clock.advance(2 * time.Minute)
	n.take("k", 5, 10)
	w.counts.SetResets(late)
	n.loadSettings()
	n.replay()
	changes, err := w.origin("eu").Client().Changes(t.Context(), 0, 10)
	want := store.Change{Cell: w.cell("k"), Total: 5, Limit: 10}
	if err != nil || len(changes.Cells) != 1 || changes.Cells[0] != want {
		t.Errorf("changed: %+v, %v; want %+v", changes.Cells, err, want)
	}
}

// An origin that has lost its counts refuses the claim that detects the loss, and decides the next claim: its node
// does not count the origin as down.
func TestAClaimFollowsTheOneThatFoundANewEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 5, origin, store.NamespaceRow{NodeShare: "wait"})
		defer stopAll(nodes)
		nodes[0].Allow(t.Context(), ask("k", 1, 6))
		time.Sleep(50 * time.Millisecond) // too short for a read of its own
		origin.Wipe()
		first := nodes[0].Allow(t.Context(), ask("k", 1, 6))
		second := nodes[0].Allow(t.Context(), ask("k", 1, 6))
		if first.Source != dataplane.SourceDegraded || second.Source != dataplane.SourceOrigin {
			t.Errorf("the first is decided by %v, the second by %v; want degraded and origin", first.Source, second.Source)
		}
	})
}

// slowClaims is an origin that answers claims slowly.
type slowClaims struct{ *memstore.Origin }

func (o slowClaims) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	reply, err := o.Origin.Send(ctx, chunk)
	if chunk.Bounded() {
		time.Sleep(500 * time.Millisecond)
	}
	return reply, err
}

// If a caller leaves and its cost is allowed, the claim's credit pays for it. If the claim is refused after all, the
// cost is sent, even if no request comes for its key.
func TestWhatARefusedClaimDoesNotPayForIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		patient := func(c *dataplane.Config) { c.ReadTimeout = 5 * time.Second }
		nodes := region(t, 5, slowClaims{origin}, store.NamespaceRow{NodeShare: "wait"}, patient)
		defer stopAll(nodes)
		nodes[0].Allow(t.Context(), ask("k", 0, 4))
		c := window.Cell{Key: window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute},
			Sequence: window.Sequence(time.Now().UnixMilli(), 60_000)}
		if _, err := add(origin, c, 4); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		d := nodes[0].Allow(ctx, ask("k", 1, 4))
		if !d.Allowed || d.Source != dataplane.SourceDegraded {
			t.Fatalf("%+v", d)
		}
		time.Sleep(3 * time.Second)
		if got := totals(origin)[c]; got != 5 {
			t.Errorf("the origin has %d, want 5", got)
		}
	})
}
