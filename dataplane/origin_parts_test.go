package dataplane_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/guides/mapstore"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// bare runs a test with two started nodes of a region whose origin only counts.
func bare(t *testing.T, test func(t *testing.T, a, b *dataplane.Limiter)) {
	synctest.Test(t, func(t *testing.T) {
		nodes := region(t, 2, mapstore.New(), store.NamespaceRow{})
		defer stopAll(nodes)
		test(t, nodes[0], nodes[1])
	})
}

func TestNodesShareLimitsThroughAnOriginThatOnlyCounts(t *testing.T) {
	bare(t, func(t *testing.T, a, b *dataplane.Limiter) {
		if d := a.Allow(t.Context(), ask("k", 60, 100)); !d.Allowed {
			t.Fatalf("the first: %+v", d)
		}
		time.Sleep(time.Second)
		if d := b.Allow(t.Context(), ask("k", 41, 100)); d.Allowed || d.Remaining != 40 {
			t.Errorf("too much, at the other node: %+v", d)
		}
		if d := b.Allow(t.Context(), ask("k", 40, 100)); !d.Allowed || d.Source.Degraded() {
			t.Errorf("the rest, at the other node: %+v", d)
		}
	})
}

// A reservation counts for all nodes of the region, and only the process that made it settles it.
func TestWithoutAGranterAReservationIsItsProcesss(t *testing.T) {
	bare(t, func(t *testing.T, a, b *dataplane.Limiter) {
		got := wantReserved(t, a, reserveFor("one", time.Minute, ask("k", 60, 100)), true)
		if got.Decisions[0].Source.Degraded() || got.EndsAt.IsZero() {
			t.Errorf("%+v", got)
		}
		wantReserved(t, a, reserveFor("one", time.Minute, ask("k", 60, 100)), true) // the same reservation again
		wantReserved(t, a, reserveFor("two", time.Minute, ask("k", 50, 100)), false)
		time.Sleep(time.Second)
		if d := b.Allow(t.Context(), ask("k", 41, 100)); d.Allowed {
			t.Errorf("the other node lets pass what is reserved: %+v", d)
		}
		if _, err := b.Settle(t.Context(), "one", 10); !errors.Is(err, dataplane.ErrNoReservation) {
			t.Errorf("settled at the other node: %v", err)
		}
		s, err := a.Extend(t.Context(), "one", 2*time.Minute)
		wantSettled(t, "extended", s, err, false, false, 0)
		s, err = a.Settle(t.Context(), "one", 10)
		wantSettled(t, "settled", s, err, true, false, 10)
		if d := a.Allow(t.Context(), ask("k", 90, 100)); !d.Allowed {
			t.Errorf("what was given back: %+v", d)
		}
	})
}

// A concurrency limit holds for each process. A waiting request gets a slot when another caller of the process
// releases a slot.
func TestWithoutAGranterAConcurrencyLimitIsItsProcesss(t *testing.T) {
	bare(t, func(t *testing.T, a, b *dataplane.Limiter) {
		one := dataplane.ConcurrencyRequest{Workspace: "acme", Namespace: "api", Identifier: "k", Limit: 1}
		lease, d := a.Acquire(t.Context(), one)
		if !d.Allowed || d.Source.Degraded() {
			t.Fatalf("the first: %+v", d)
		}
		if _, d := a.Acquire(t.Context(), one); d.Allowed || d.Err != nil {
			t.Errorf("the second of one process: %+v", d)
		}
		other, d := b.Acquire(t.Context(), one)
		if !d.Allowed {
			t.Errorf("the first of the other process: %+v", d)
		}
		other.Release()
		time.AfterFunc(time.Minute, lease.Release)
		began := time.Now()
		next, d := a.AcquireWait(t.Context(), one)
		if !d.Allowed || time.Since(began) != time.Minute {
			t.Errorf("waited for %v: %+v", time.Since(began), d)
		}
		next.Release()
	})
}

func TestWithoutAGranterALeaseByIDIsItsProcesss(t *testing.T) {
	bare(t, func(t *testing.T, a, b *dataplane.Limiter) {
		one := dataplane.ConcurrencyRequest{Workspace: "acme", Namespace: "api", Identifier: "k", Limit: 1, TTL: 10 * time.Second}
		token, d := a.AcquireToken(t.Context(), one, "id", false)
		if !d.Allowed || token == "" || d.Source.Degraded() {
			t.Fatalf("%+v", d)
		}
		time.Sleep(8 * time.Second)
		if err := a.RenewTokens(t.Context(), 0, token)[0]; err != nil {
			t.Errorf("renewed: %v", err)
		}
		if err := b.RenewTokens(t.Context(), 0, token)[0]; !errors.Is(err, dataplane.ErrLeaseLost) {
			t.Errorf("renewed at the other node: %v", err)
		}
		time.Sleep(8 * time.Second)
		if _, d := a.AcquireToken(t.Context(), one, "other", false); d.Allowed {
			t.Errorf("while it is held: %+v", d)
		}
		for _, l := range []*dataplane.Limiter{b, a} { // releasing a lease of another process is no error
			if err := l.ReleaseTokens(t.Context(), token)[0]; err != nil {
				t.Errorf("released: %v", err)
			}
		}
		if _, d := a.AcquireToken(t.Context(), one, "other", false); !d.Allowed {
			t.Errorf("after it was released: %+v", d)
		}
	})
}

// If the origin is no Mailbox, settings come from Config.Settings, which also receives the heartbeats. Without
// Config.Settings, there are no settings, and no call fails because of it.
func TestWithoutAMailboxSettingsAreThoseOfConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memstore.NewCounts(memstore.CountsOptions{})
		counts.SetOverrides(store.OverrideRow{Workspace: "acme", Namespace: "api", Pattern: "k", Limit: 7})
		l := started(t, "eu", "a", mapstore.New(), counts)
		time.Sleep(time.Second)
		if d := l.Allow(t.Context(), ask("k", 1, 100)); d.Limit != 7 {
			t.Errorf("%+v", d)
		}
		if beats := counts.Heartbeats(); len(beats) != 1 {
			t.Errorf("heartbeats: %+v", beats)
		}
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: mapstore.New()})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.RefreshSettings(t.Context()); !errors.Is(err, dataplane.ErrNoSettings) {
			t.Errorf("settings of nowhere: %v", err)
		}
		if err := l.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		if d := l.Allow(t.Context(), ask("k", 1, 100)); d.Limit != 100 || !d.Allowed {
			t.Errorf("without settings: %+v", d)
		}
		time.Sleep(time.Minute)
		if err := l.Stop(t.Context()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

// Nodes send the cost again that an origin has lost, also if the origin only counts.
func TestAnOriginThatOnlyCountsIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := mapstore.New()
		nodes := region(t, 2, origin, store.NamespaceRow{})
		defer stopAll(nodes)
		nodes[0].Allow(t.Context(), ask("k", 60, 100))
		time.Sleep(time.Second)
		origin.Wipe()
		nodes[0].Allow(t.Context(), ask("k", 1, 100)) // it reads the origin, and sends the lost cost
		time.Sleep(time.Second)
		if d := nodes[1].Allow(t.Context(), ask("k", 40, 100)); d.Allowed || d.Remaining != 39 {
			t.Errorf("after the loss, at the other node: %+v", d)
		}
	})
}

// If a wrapper hides the Granter from one node, that node's reservations and leases are local to it. Its reservations
// count at the origin all the same: the nodes together never pass more than the limit, and neither settles the
// other's reservations.
func TestAGranterThatOneNodeDoesNotSeeOverspendsNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		counts := memstore.NewCounts(memstore.CountsOptions{})
		sees := started(t, "eu", "sees", origin, counts)
		other := started(t, "eu", "other", withoutParts{origin.Client()}, counts)
		time.Sleep(time.Second)
		wantReserved(t, sees, reserveFor("one", time.Minute, ask("k", 50, 100)), true)
		time.Sleep(time.Second)
		wantReserved(t, other, reserveFor("one", time.Minute, ask("k", 51, 100)), false)
		wantReserved(t, other, reserveFor("one", time.Minute, ask("k", 40, 100)), true)
		time.Sleep(time.Second)
		wantReserved(t, sees, reserveFor("two", time.Minute, ask("k", 11, 100)), false)
		s, err := other.Settle(t.Context(), "one", 30) // its own reservation
		wantSettled(t, "at the node that sees no Granter", s, err, true, false, 30)
		s, err = sees.Settle(t.Context(), "one", 20)
		wantSettled(t, "at the node that sees one", s, err, true, false, 20)
		time.Sleep(2 * time.Second)
		wantReserved(t, sees, reserveFor("three", time.Minute, ask("k", 41, 100)), false)
		wantReserved(t, sees, reserveFor("three", time.Minute, ask("k", 40, 100)), true) // with its 20, and 40 of the other
		time.Sleep(2 * time.Second)
		if d := other.Peek(t.Context(), ask("k", 21, 100)); d.Allowed {
			t.Errorf("more than is left: %+v", d)
		}
		if _, err := other.Settle(t.Context(), "three", 1); !errors.Is(err, dataplane.ErrNoReservation) {
			t.Errorf("a reservation that the other node holds at the origin: %v", err)
		}
	})
}

// withoutParts hides the optional parts of an origin.
type withoutParts struct{ store.Origin }
