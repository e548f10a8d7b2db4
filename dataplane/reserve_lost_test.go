package dataplane_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// hooked is an origin whose calls about reservations go through hook, if it is set.
type hooked struct {
	store.FullOrigin
	hook atomic.Pointer[hook]
}

// hook handles a call about reservations. It can call do to make the call.
type hook func(ctx context.Context, call store.HoldCall, do func() (store.HoldReply, error)) (store.HoldReply, error)

func (o *hooked) Hold(ctx context.Context, call store.HoldCall) (store.HoldReply, error) {
	do := func() (store.HoldReply, error) { return o.FullOrigin.Hold(ctx, call) }
	if by := o.hook.Load(); by != nil {
		return (*by)(ctx, call, do)
	}
	return do()
}

// idIn returns an id whose record is in a shard.
func idIn(o *memstore.Origin, shard int, name string) string {
	for i := 0; ; i++ {
		id := fmt.Sprint(name, i)
		k := store.RecordKey(id)
		if o.GroupOf(&k) == shard {
			return id
		}
	}
}

// keyIn returns an identifier whose cells are in a shard.
func keyIn(o *memstore.Origin, shard int, d time.Duration) string {
	for i := 0; ; i++ {
		n := fmt.Sprint("k", i)
		k := window.Key{Workspace: "acme", Namespace: "api", Identifier: n, Duration: d}
		if o.GroupOf(&k) == shard {
			return n
		}
	}
}

// A promoted replica lacks a reservation, and the settlement of another. Their node states both again, without any
// further call.
func TestAPromotedReplicaIsToldOfReservations(t *testing.T) {
	for _, shards := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{Shards: shards})
			nodes := region(t, 2, origin, store.NamespaceRow{})
			defer stopAll(nodes)
			origin.Totals() // draws the epochs, which a promotion does not change
			wantReserved(t, nodes[0], reserveFor("settled", time.Hour, askDay("k", 60, 100)), true)
			time.Sleep(time.Second)
			replica := origin.State()
			s, err := nodes[1].Settle(t.Context(), "settled", 10)
			wantSettled(t, "settled", s, err, true, false, 10)
			wantReserved(t, nodes[0], reserveFor("open", time.Hour, askDay("k", 50, 100)), true)
			origin.Rollback(replica)
			time.Sleep(3 * time.Second)
			wantReserved(t, nodes[0], reserveFor("more", time.Hour, askDay("k", 41, 100)), false)
			wantReserved(t, nodes[1], reserveFor("left", time.Hour, askDay("k", 40, 100)), true)
			s, err = nodes[1].Settle(t.Context(), "settled", 10)
			wantSettled(t, "again", s, err, true, true, 10)
			s, err = nodes[1].Settle(t.Context(), "open", 5)
			wantSettled(t, "open", s, err, true, false, 5)
		})
	}
}

// Spent cost counts if the answer to its report was lost, and the reservation had ended when its node called again.
func TestWhatWasSpentCountsThoughItsAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 2, origin, store.NamespaceRow{})
		defer stopAll(nodes)
		wantReserved(t, nodes[0], reserveFor("one", 3*time.Second, askDay("k", 60, 100)), true)
		origin.Faults.LoseReplies(true)
		if _, err := nodes[0].Spend(t.Context(), "one", 50); err == nil {
			t.Error("an answer that is lost has come")
		}
		origin.Faults.LoseReplies(false)
		time.Sleep(5 * time.Second)
		s, err := nodes[1].Settle(t.Context(), "one", 50)
		wantSettled(t, "one", s, err, false, true, 50)
		wantReserved(t, nodes[0], reserveFor("more", time.Hour, askDay("k", 51, 100)), false)
		wantReserved(t, nodes[1], reserveFor("left", time.Hour, askDay("k", 50, 100)), true)
	})
}

// A reservation that a replica lacks is settled while its node states it again.
func TestASettlementBesideALossCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		o := &hooked{FullOrigin: mem}
		nodes := region(t, 1, o, store.NamespaceRow{})
		defer stopAll(nodes)
		key, id := keyIn(mem, 0, 24*time.Hour), idIn(mem, 1, "r")
		mem.Totals()
		state := mem.State()
		wantReserved(t, nodes[0], reserveFor(id, time.Hour, askDay(key, 60, 100)), true)
		// other reservations that are stated first
		var slow atomic.Bool
		by := hook(func(ctx context.Context, call store.HoldCall, do func() (store.HoldReply, error)) (store.HoldReply, error) {
			if call.Record != nil && call.Record.Restored {
				slow.Store(true)
				time.Sleep(300 * time.Millisecond)
			}
			return do()
		})
		o.hook.Store(&by)
		mem.RollbackShard(0, state)
		for !slow.Load() {
			time.Sleep(10 * time.Millisecond)
		}
		s, err := nodes[0].Settle(t.Context(), id, 40)
		wantSettled(t, "settle", s, err, true, false, 40)
		o.hook.Store(nil)
		time.Sleep(10 * time.Second)
		wantReserved(t, nodes[0], reserveFor("more", time.Hour, askDay(key, 61, 100)), false)
		time.Sleep(time.Second)
		wantReserved(t, nodes[0], reserveFor("left", time.Hour, askDay(key, 60, 100)), true)
	})
}

// A reservation whose hold a replica lacks is settled at a node that did not make it.
func TestASettlementOfALostReservationCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		nodes := region(t, 2, mem, store.NamespaceRow{})
		defer stopAll(nodes)
		key, id := keyIn(mem, 0, 24*time.Hour), idIn(mem, 1, "r")
		mem.Totals()
		state := mem.State()
		wantReserved(t, nodes[0], reserveFor(id, time.Hour, askDay(key, 60, 100)), true)
		mem.RollbackShard(0, state)
		s, err := nodes[1].Settle(t.Context(), id, 40)
		wantSettled(t, "settle", s, err, true, false, 40)
		time.Sleep(10 * time.Second)
		wantReserved(t, nodes[0], reserveFor("more", time.Hour, askDay(key, 61, 100)), false)
		time.Sleep(time.Second)
		wantReserved(t, nodes[0], reserveFor("left", time.Hour, askDay(key, 60, 100)), true)
	})
}

// The record of a reservation in several groups arrives after its node has withdrawn it.
func TestARecordThatComesAfterItsWithdrawalIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		o := &hooked{FullOrigin: mem}
		nodes := region(t, 2, o, store.NamespaceRow{Outage: "closed"})
		defer stopAll(nodes)
		key, id := keyIn(mem, 0, 24*time.Hour), idIn(mem, 1, "r")
		var late atomic.Pointer[store.HoldCall]
		by := hook(func(ctx context.Context, call store.HoldCall, do func() (store.HoldReply, error)) (store.HoldReply, error) {
			if call.Record != nil && call.Record.Text != "" && !call.Record.Withdraw {
				late.Store(&call)
				<-ctx.Done()
				return store.HoldReply{}, ctx.Err()
			}
			return do()
		})
		o.hook.Store(&by)
		r := reserveFor(id, time.Hour, askDay(key, 60, 100))
		wantReserved(t, nodes[0], r, false)
		o.hook.Store(nil)
		time.Sleep(3 * time.Second)
		if _, err := mem.Hold(t.Context(), *late.Load()); err != nil {
			t.Fatal(err)
		}
		wantReserved(t, nodes[1], r, true)
		s, err := nodes[1].Settle(t.Context(), id, 60)
		wantSettled(t, "asked for again", s, err, true, false, 60)
		wantReserved(t, nodes[1], reserveFor("more", time.Hour, askDay(key, 41, 100)), false)
	})
}

// Reservations that used the same room in turn were settled at a node that did not make them. After a wipe, their own
// node restores them, and the origin still counts the cost that was accepted in addition.
func TestWhatWasSettledElsewhereBeforeAWipeHidesNoCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 2, mem, store.NamespaceRow{})
		defer stopAll(nodes)
		if d := nodes[0].Allow(t.Context(), askDay("k", 40, 100)); !d.Allowed {
			t.Fatal(d)
		}
		time.Sleep(2 * time.Second)
		for i := range 2 {
			id := fmt.Sprint("r", i)
			wantReserved(t, nodes[0], reserveFor(id, time.Minute, askDay("k", 60, 100)), true)
			s, err := nodes[1].Settle(t.Context(), id, 0)
			wantSettled(t, id, s, err, true, false, 0)
		}
		time.Sleep(20 * time.Second)
		mem.Wipe()
		time.Sleep(90 * time.Second)
		wantReserved(t, nodes[1], reserveFor("more", time.Hour, askDay("k", 61, 100)), false)
	})
}
