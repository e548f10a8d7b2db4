package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A key's names can be any bytes, and the settled cells are the reserved cells.
func TestReservationsOfAnyNames(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		for i, name := range []string{"\xff\xfe", "<&>", "\u2028", `"\`} {
			id := fmt.Sprint("any", i)
			wantReserved(t, a, reserveFor(id, 0, ask(name, 60, 100)), true)
			s, err := b.Settle(t.Context(), id, 10)
			wantSettled(t, name, s, err, true, false, 10)
			wantReserved(t, b, reserveFor(id+"more", 0, ask(name, 90, 100)), true)
		}
	})
}

// The most requests with the longest names fit a record, whatever bytes they have.
func TestReservationsOfTheLongestNames(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		r := reserveFor("long", 0)
		var costs []int64
		for i := range dataplane.ReservedMax {
			q := ask(fmt.Sprintf("%02d%s", i, strings.Repeat("<", window.IdentifierBytesMax-2)), 60, 100)
			q.Workspace = strings.Repeat("\x01", window.WorkspaceBytesMax)
			q.Namespace = strings.Repeat("&", window.NamespaceBytesMax)
			r.Requests, costs = append(r.Requests, q), append(costs, 1)
		}
		wantReserved(t, a, r, true)
		s, err := b.Settle(t.Context(), "long", costs...)
		wantSettled(t, "long", s, err, true, false, costs...)
	})
}

// A caller that leaves, before a call or during it, reserves nothing, and causes no outage for other callers.
func TestWhoHasLeftReservesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 1, origin, store.NamespaceRow{})
		defer stopAll(nodes)
		origin.Faults.Delay(2 * time.Millisecond)
		for i := range 100 {
			ctx, leave := context.WithCancel(t.Context())
			if i%2 == 0 {
				leave()
			}
			origin.Faults.Hook(func(op memstore.Op) error {
				if op == memstore.OpHold {
					leave()
				}
				return nil
			})
			r := reserveFor(fmt.Sprint("left", i), 0, ask("k", 60, 100))
			if got := nodes[0].Reserve(ctx, r); !errors.Is(got.Err, context.Canceled) || got.Allowed {
				t.Fatalf("%d: %+v", i, got)
			}
			origin.Faults.Hook(nil)
			time.Sleep(2 * time.Second)
		}
		got := wantReserved(t, nodes[0], reserveFor("all", 0, ask("k", 100, 100)), true)
		if got.Decisions[0].Source != dataplane.SourceOrigin {
			t.Errorf("%+v", got)
		}
	})
}

// A node that dies before the answer to a reservation leaves the reservation behind. A caller that repeats the
// request gets it.
func TestAReservationAskedForAgainIsHeld(t *testing.T) {
	for _, returned := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			nodes := region(t, 2, origin, store.NamespaceRow{Outage: "closed"})
			defer stopAll(nodes)
			r := reserveFor("one", 4*time.Second, ask("k", 60, 100))
			r.Returned = returned
			origin.Faults.LoseReplies(true)
			nodes[0].Reserve(t.Context(), r)
			origin.Faults.LoseReplies(false)
			wantReserved(t, nodes[1], r, true)
			time.Sleep(3 * time.Second)
			wantReserved(t, nodes[1], reserveFor("more", 0, ask("k", 41, 100)), false)
			wantReserved(t, nodes[1], reserveFor("left", 0, ask("k", 40, 100)), true)
			s, err := nodes[1].Settle(t.Context(), "one", 0)
			wantSettled(t, "one", s, err, true, false, 0)
			wantReserved(t, nodes[1], reserveFor("back", 0, ask("k", 61, 100)), false)
			wantReserved(t, nodes[1], reserveFor("all", 0, ask("k", 60, 100)), true)
		})
	}
}

// wantOver repeats a reservation that is over.
func wantOver(t testing.TB, l *dataplane.Limiter, r dataplane.ReserveRequest) {
	t.Helper()
	got := l.Reserve(t.Context(), r)
	if !errors.Is(got.Err, dataplane.ErrReservationOver) || !errors.Is(got.Err, dataplane.ErrReservationUsed) || got.Allowed {
		t.Errorf("reserve %s: %+v, want %v", r.ID, got, dataplane.ErrReservationOver)
	}
}

// The id of a reservation that is over reserves nothing: callers who use ids again do not pass their limit.
func TestAnEndedReservationAskedForAgainHoldsNothing(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		r := reserveFor("one", time.Second, ask("k", 60, 100))
		wantReserved(t, a, r, true)
		time.Sleep(2 * time.Second)
		wantOver(t, b, r)
		all := reserveFor("all", 0, ask("k", 100, 100))
		wantReserved(t, a, all, true)
		wantOver(t, a, r) // there is no room for it either
		time.Sleep(50 * time.Millisecond)
		s, err := b.Settle(t.Context(), "all", 1)
		wantSettled(t, "all", s, err, true, false, 1)
		wantOver(t, a, all)
		wantOver(t, b, all)
	})
}

// "Calls with the same ID … share one reservation", also in the next window, whether there is room for another
// reservation or not.
func TestAReservationAskedForInTheNextWindowIsOne(t *testing.T) {
	for _, cost := range []int64{30, 60} {
		places(t, func(t *testing.T, a, b *dataplane.Limiter) {
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(119 * time.Second)))
			r := reserveFor("one", 10*time.Minute, ask("k", cost, 100))
			wantReserved(t, a, r, true)
			time.Sleep(2 * time.Second)
			got := wantReserved(t, b, r, true)
			if !got.Decisions[0].Allowed {
				t.Errorf("%+v", got)
			}
			s, err := b.Settle(t.Context(), "one", 0)
			wantSettled(t, "one", s, err, true, false, 0)
			wantReserved(t, a, reserveFor("all", 0, ask("k", 100, 100)), true)
		})
	}
}

// A repeated reservation that passed over its limit holds nothing, even if there is room for it now.
func TestAShadowedReservationAskedForAgainHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := region(t, 2, memstore.NewOrigin(memstore.OriginOptions{}), store.NamespaceRow{Shadow: true})
		defer stopAll(nodes)
		wantReserved(t, nodes[0], reserveFor("one", 0, ask("k", 60, 100)), true)
		two := reserveFor("two", 0, ask("k", 41, 100))
		wantReserved(t, nodes[1], two, true)
		for _, id := range []string{"one", "two"} {
			wantReserved(t, nodes[1], two, true)
			if _, err := nodes[0].Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		wantOver(t, nodes[0], two)
		got := wantReserved(t, nodes[1], reserveFor("all", 0, ask("k", 100, 100)), true)
		if got.Decisions[0].Shadowed {
			t.Errorf("%+v", got)
		}
	})
}

// A settlement that has not reached the origin is sent again.
func TestSettlesReachTheOriginLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 2, origin, store.NamespaceRow{})
		defer stopAll(nodes)
		wantReserved(t, nodes[0], reserveFor("one", 0, ask("k", 60, 100)), true)
		afterRecord(origin, func() { origin.Faults.Fail(errors.New("down")) })
		s, err := nodes[0].Settle(t.Context(), "one", 10)
		wantSettled(t, "one", s, err, true, false, 10)
		origin.Faults.Hook(nil)
		origin.Faults.Fail(nil)
		wantReserved(t, nodes[1], reserveFor("early", 0, ask("k", 90, 100)), false)
		time.Sleep(5 * time.Second)
		wantReserved(t, nodes[1], reserveFor("left", 0, ask("k", 90, 100)), true)
	})
}

// afterRecord calls do before the second call about reservations: a settlement first changes the record, and then its
// holds.
func afterRecord(origin *memstore.Origin, do func()) {
	calls := 0
	origin.Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpHold {
			if calls++; calls == 2 {
				do()
			}
		}
		return nil
	})
}

// busy counts the calls about reservations and leases in flight.
type busy struct {
	store.FullOrigin
	now, most atomic.Int64
}

func (b *busy) call() (end func()) {
	for n := b.now.Add(1); ; {
		if most := b.most.Load(); n <= most || b.most.CompareAndSwap(most, n) {
			return func() { b.now.Add(-1) }
		}
	}
}

func (b *busy) Hold(ctx context.Context, call store.HoldCall) (store.HoldReply, error) {
	defer b.call()()
	return b.FullOrigin.Hold(ctx, call)
}

func (b *busy) Grants(ctx context.Context, shard int, call store.GrantCall) (store.GrantReply, error) {
	defer b.call()()
	return b.FullOrigin.Grants(ctx, shard, call)
}

// However many callers reserve and acquire at once, half of a client's connections to the origin stay free for
// decisions, replay and settings.
func TestManyReservationsLeaveConnectionsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := memstore.NewOrigin(memstore.OriginOptions{})
		origin := &busy{FullOrigin: there}
		nodes := region(t, 1, origin, store.NamespaceRow{}, func(c *dataplane.Config) { c.ReadTimeout = time.Second })
		defer stopAll(nodes)
		there.Faults.Delay(5 * time.Millisecond)
		var reserving sync.WaitGroup
		for i := range 40 * runtime.GOMAXPROCS(0) {
			reserving.Go(func() {
				r := nodes[0].Reserve(t.Context(), reserveFor(fmt.Sprint(i), 0, ask("k", 1, 1<<40)))
				if r.Err != nil || !r.Allowed || r.Decisions[0].Source != dataplane.SourceOrigin {
					t.Errorf("%+v", r)
				}
				_, d := nodes[0].AcquireToken(t.Context(), dataplane.ConcurrencyRequest{Workspace: "w", Namespace: "n",
					Identifier: "i", Limit: 1 << 40}, fmt.Sprint(i), false)
				if d.Err != nil || !d.Allowed || d.Source != dataplane.SourceOrigin {
					t.Errorf("%+v", d)
				}
			})
		}
		reserving.Wait()
		if most := origin.most.Load(); most > 5*int64(runtime.GOMAXPROCS(0)) {
			t.Errorf("%d calls were under way at a time", most)
		}
	})
}

// A settlement that the origin has applied, and whose reply was lost, counts once, however long the origin is out of
// reach.
func TestASettlementWhoseReplyIsLostIsCountedOnce(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 90 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			nodes := region(t, 2, origin, store.NamespaceRow{})
			defer stopAll(nodes)
			wantReserved(t, nodes[0], reserveFor("one", time.Hour, askDay("k", 60, 100)), true)
			afterRecord(origin, func() { origin.Faults.LoseReplies(true) })
			s, err := nodes[0].Settle(t.Context(), "one", 10)
			wantSettled(t, "one", s, err, true, false, 10)
			origin.Faults.Hook(nil)
			origin.Faults.LoseReplies(false)
			origin.Faults.Fail(errors.New("down"))
			time.Sleep(away)
			origin.Faults.Fail(nil)
			wantReserved(t, nodes[1], reserveFor("probe", time.Second, askDay("k", 1, 100)), true)
			time.Sleep(10 * time.Second)
			wantReserved(t, nodes[1], reserveFor("more", 0, askDay("k", 91, 100)), false)
			wantReserved(t, nodes[1], reserveFor("left", 0, askDay("k", 90, 100)), true)
		})
	}
}

// If a shard of an origin loses its data, the lost reservations are stated again, and no other shard counts them
// twice.
func TestWhatAnotherPartLosesIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		nodes := region(t, 2, origin, store.NamespaceRow{})
		defer stopAll(nodes)
		for i := range 10 {
			id, key := fmt.Sprint(i), fmt.Sprint("k", i)
			wantReserved(t, nodes[0], reserveFor(id, time.Hour, askDay(key, 60, 100)), true)
			s, err := nodes[0].Settle(t.Context(), id, 40)
			wantSettled(t, id, s, err, true, false, 40)
			wantReserved(t, nodes[0], reserveFor("open"+id, time.Hour, askDay(key, 5, 100)), true)
		}
		time.Sleep(2 * time.Minute)
		origin.WipeShard(0)
		time.Sleep(5 * time.Second)
		for i := range 10 {
			key := fmt.Sprint("k", i)
			counts := window.Key{Workspace: "acme", Namespace: "api", Identifier: key, Duration: 24 * time.Hour}
			if origin.ShardOf(&counts) == 1 {
				wantReserved(t, nodes[1], reserveFor("more"+key, 0, askDay(key, 56, 100)), false)
				wantReserved(t, nodes[1], reserveFor("left"+key, 0, askDay(key, 55, 100)), true)
			}
			if _, err := nodes[1].Settle(t.Context(), fmt.Sprint(i), 50); !errors.Is(err, dataplane.ErrNoReservation) {
				t.Errorf("%s: %v, long after it was settled", key, err)
			}
		}
	})
}

// An origin that answers no call hangs, however many requests wait to call it: it is an outage, and the node is not
// busy.
func TestAHungOriginIsAnOutageOfReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 1, there, store.NamespaceRow{Outage: "open"})
		defer stopAll(nodes)
		time.Sleep(11 * time.Second)
		there.Faults.Delay(time.Hour)
		var calls sync.WaitGroup
		for i := range 500 {
			calls.Go(func() {
				got := nodes[0].Reserve(t.Context(), reserveFor(fmt.Sprint(i), 0, ask("k", 1, 1000)))
				if got.Err != nil || !got.Allowed || !got.Decisions[0].Source.Degraded() {
					t.Errorf("%+v", got)
				}
				if _, err := nodes[0].Settle(t.Context(), "x", 1); errors.Is(err, dataplane.ErrBusy) {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		there.Faults.Delay(0)
	})
}
