package slots_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/memstore"
)

// fleet runs a test with nodes over an origin, in a bubble.
func fleet(t *testing.T, nodes int, test func(t *testing.T, origin *memstore.Origin, n []*node)) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		var all []*node
		for range nodes {
			all = append(all, nodeOf(t, origin, int64(nodes)))
		}
		test(t, origin, all)
		for _, n := range all {
			n.kill()
		}
	})
}

// "A holder that dies holds nothing longer than its ttl + 1 s."
func TestAKilledNodesSlotsAreFreeSoonAfterItsTTL(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 10 * time.Second, 5 * time.Minute} {
		for _, lived := range []time.Duration{0, ttl / 3, ttl} {
			fleet(t, 2, func(t *testing.T, _ *memstore.Origin, n []*node) {
				for range 3 {
					if r := n[0].try(3, ttl); !r.Granted {
						t.Fatalf("%+v", r)
					}
				}
				time.Sleep(lived)
				n[0].kill()
				killed := time.Now()
				for i := range 3 {
					if r := n[1].waitFor(ttl+time.Second-time.Since(killed), 3, ttl); !r.Granted {
						t.Errorf("slot %d is not free %v after the kill: %+v", i, time.Since(killed), r)
					}
				}
			})
		}
	}
}

// Requests that wait on a node are served in their order, without the requests that gave up.
func TestWaitersAreServedInTheirOrder(t *testing.T) {
	for name, nodes := range map[string]int{"alone": 0, "fleet": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var origin *memstore.Origin
				if nodes > 0 {
					origin = memstore.NewOrigin(memstore.OriginOptions{})
				}
				testOrder(t, nodeOf(t, origin, 1))
			})
		})
	}
}

func testOrder(t *testing.T, n *node) {
	defer n.kill()
	first := n.waitFor(time.Second, 1, time.Minute)
	var mu sync.Mutex
	var served []int
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			within := time.Hour
			if i%3 == 1 {
				within = time.Second
			}
			r := n.waitFor(within, 1, time.Minute)
			if !r.Granted {
				return
			}
			mu.Lock()
			served = append(served, i)
			mu.Unlock()
			time.Sleep(time.Second)
			r.Lease.Release()
		})
		synctest.Wait()
		if r := n.try(1, time.Minute); r.Granted {
			t.Error("somebody has overtaken those who wait")
		}
	}
	if got := n.Stats().Waiters; got != 10 {
		t.Errorf("%d wait", got)
	}
	time.Sleep(2 * time.Second)
	first.Lease.Release()
	all.Wait()
	if got := fmt.Sprint(served); got != "[0 2 3 5 6 8 9]" {
		t.Errorf("served %s", got)
	}
	if s := n.Stats(); s.Waiters != 0 || s.Leases != 0 {
		t.Errorf("%+v are left", s)
	}
}

// Slots that were requested for callers who gave up are handed back.
func TestCancelledWaitersLeaveNothingBehind(t *testing.T) {
	fleet(t, 2, func(t *testing.T, _ *memstore.Origin, n []*node) {
		held := n[0].try(1, 10*time.Second)
		n[1].way.Faults.Delay(100 * time.Millisecond) // so that its answers come when no request waits any more
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				if r := n[1].waitFor(time.Duration(i+1)*50*time.Millisecond, 1, 10*time.Second); r.Granted {
					r.Lease.Release()
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		held.Lease.Release()
		all.Wait()
		time.Sleep(500 * time.Millisecond)
		if s := n[1].Stats(); s.Waiters != 0 || s.Leases != 0 {
			t.Errorf("%+v", s)
		}
		if r := n[0].waitFor(time.Second, 1, 10*time.Second); !r.Granted {
			t.Errorf("the slot has not come back: %+v", r)
		}
	})
}

func TestASlotGoesFromNodeToNode(t *testing.T) {
	fleet(t, 2, func(t *testing.T, _ *memstore.Origin, n []*node) {
		for i := range 10 {
			r := n[i%2].waitFor(time.Second, 1, time.Minute)
			if !r.Granted {
				t.Fatalf("turn %d: %+v", i, r)
			}
			time.Sleep(30 * time.Millisecond)
			r.Lease.Release()
		}
	})
}

// All requests that wait with the same ID get a node's last slot together, even behind another request that gets none
// then.
func TestThoseWhoWaitForOneIDShareANodesLastSlot(t *testing.T) {
	fleet(t, 1, func(t *testing.T, _ *memstore.Origin, n []*node) {
		held := n[0].try(1, time.Minute)
		var calls sync.WaitGroup
		for _, id := range []string{"job", "other", "job"} {
			calls.Go(func() {
				a := ask(1, time.Minute)
				a.ID, a.Unattended = id, true
				if r := n[0].Wait(t.Context(), a); !r.Granted {
					t.Errorf("%s: %+v", id, r)
				}
			})
			synctest.Wait()
		}
		held.Lease.Release()
		synctest.Wait()
		if waits := n[0].Stats().Waiters; waits != 1 {
			t.Errorf("%d wait on, want the request with another ID", waits)
		}
		if l, ok := n[0].ByID(&key, "job"); ok {
			l.Release()
		}
		calls.Wait()
	})
}

// A node whose own callers wait leaves slots to other nodes now and then.
func TestNodesTakeTurns(t *testing.T) {
	fleet(t, 2, func(t *testing.T, _ *memstore.Origin, n []*node) {
		began := time.Now()
		var work sync.WaitGroup
		for _, n := range n {
			for range 3 {
				work.Go(func() {
					for time.Since(began) < time.Minute {
						if r := n.waitFor(time.Minute, 1, 10*time.Second); r.Granted {
							time.Sleep(50 * time.Millisecond)
							r.Lease.Release()
						}
					}
				})
			}
		}
		work.Wait()
		a, b := n[0].Stats().Granted, n[1].Stats().Granted
		if min(a, b) < max(a, b)/20 || a+b < 600 {
			t.Errorf("one node had %d turns, the other %d", a, b)
		}
	})
}

// Spare slots make further leases local, and are handed back if they are not used.
func TestSpareSlots(t *testing.T) {
	fleet(t, 2, func(t *testing.T, _ *memstore.Origin, n []*node) {
		for range 2 {
			n[0].try(100, 3*time.Second)
		}
		before, _ := n[0].calls()
		for i := range 20 {
			if r := n[0].try(100, 3*time.Second); !r.Granted || r.Asked {
				t.Fatalf("lease %d: %+v", i, r)
			}
		}
		if after, _ := n[0].calls(); len(after) != len(before) {
			t.Errorf("%d calls", len(after)-len(before))
		}
		time.Sleep(4 * time.Second)
		for i := range 78 {
			if r := n[1].waitFor(time.Second, 100, 3*time.Second); !r.Granted {
				t.Fatalf("lease %d: %+v", i, r)
			}
		}
		if r := n[1].try(100, 3*time.Second); r.Granted {
			t.Error("one more")
		}
	})
}

// A lease is lost when its slot cannot be renewed, in time for the next holder. Err returns that at once.
func TestLeasesAreLostInAnOutage(t *testing.T) {
	for ttl := time.Second; ttl < 3*time.Second; ttl += 170 * time.Millisecond {
		testLost(t, ttl)
	}
}

func testLost(t *testing.T, ttl time.Duration) {
	fleet(t, 2, func(t *testing.T, _ *memstore.Origin, n []*node) {
		r, began := n[0].try(1, ttl), time.Now()
		n[0].way.Faults.Fail(errors.New("it is out"))
		granted := make(chan slots.Result)
		go func() { granted <- n[1].waitFor(5*time.Second, 1, ttl) }()
		time.Sleep(ttl - 10*time.Millisecond)
		if err := r.Lease.Err(); err != nil {
			t.Error("too early:", err)
		}
		<-r.Lease.Done()
		if err := r.Lease.Err(); !errors.Is(err, slots.ErrLost) {
			t.Error(err)
		}
		select {
		case <-granted:
			t.Error("it had been granted before it was lost")
		default:
		}
		if next := <-granted; !next.Granted {
			t.Errorf("%+v", next)
		}
		sent, at := n[0].calls()
		for i, call := range sent {
			after := at[i].Sub(began)
			if after > ttl-250*time.Millisecond && call.Asks[0].Have > 0 {
				t.Errorf("said after %v, where it may arrive too late", after)
			}
		}
		r.Lease.Release()
		if got := n[0].Stats(); got.Lost != 1 || got.Leases != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A replica that has not received a lease was promoted, and another node got the slot.
func TestLeasesAreRevoked(t *testing.T) {
	fleet(t, 2, func(t *testing.T, origin *memstore.Origin, n []*node) {
		before := origin.State()
		r := n[0].try(1, 3*time.Second)
		origin.Rollback(before)
		if r := n[1].try(1, 3*time.Second); !r.Granted {
			t.Errorf("%+v", r)
		}
		time.Sleep(1500 * time.Millisecond)
		if !ended(r.Lease) || !errors.Is(r.Lease.Err(), slots.ErrRevoked) {
			t.Error(r.Lease.Err())
		}
		if got := n[0].Stats(); got.Leases != 0 || got.Lost != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// Requests beyond the bounds get their errors.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := slots.New(slots.Config{EntriesMax: 2, WaitersMax: 1})
		of := func(id string) *slots.Ask {
			return &slots.Ask{Name: slots.Name{Workspace: "w", Namespace: "n", Identifier: id}, Limit: 1, TTL: time.Second}
		}
		a := table.Try(t.Context(), of("a"))
		table.Try(t.Context(), of("b"))
		if r := table.Try(t.Context(), of("c")); !errors.Is(r.Err, slots.ErrFull) || r.Granted {
			t.Errorf("a third key: %+v", r)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go table.Wait(ctx, of("a"))
		synctest.Wait()
		if r := table.Wait(t.Context(), of("a")); !errors.Is(r.Err, slots.ErrWaiters) {
			t.Errorf("a second waiter: %+v", r)
		}
		cancel()
		synctest.Wait()
		a.Lease.Release()
		time.Sleep(time.Second)
		if r := table.Try(t.Context(), of("c")); !r.Granted {
			t.Errorf("an idle key gives way: %+v", r)
		}
	})
}

// Stop ends all leases and hands the slots back.
func TestStopHandsBack(t *testing.T) {
	fleet(t, 2, func(t *testing.T, _ *memstore.Origin, n []*node) {
		r := n[0].try(1, 5*time.Minute)
		waits := make(chan slots.Result)
		go func() { waits <- n[0].waitFor(time.Hour, 1, time.Minute) }()
		synctest.Wait()
		n[0].kill()
		if err := n[0].Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if w := <-waits; w.Granted || !errors.Is(w.Err, slots.ErrStopped) {
			t.Errorf("%+v", w)
		}
		if !ended(r.Lease) || !errors.Is(r.Lease.Err(), slots.ErrStopped) {
			t.Error(r.Lease.Err())
		}
		if r := n[0].try(1, time.Minute); r.Granted {
			t.Errorf("after the end: %+v", r)
		}
		if r := n[1].try(1, time.Minute); !r.Granted {
			t.Errorf("%+v", r)
		}
	})
}

// A node that stops keeps no spare slot, however many it had, and hands them back even right after a call that failed.
func TestStopHandsSpareSlotsBack(t *testing.T) {
	for _, failed := range []bool{false, true} {
		fleet(t, 2, func(t *testing.T, _ *memstore.Origin, n []*node) {
			n[0].try(20, 5*time.Minute)
			n[0].try(20, 5*time.Minute)
			if failed {
				n[0].way.Faults.Fail(errors.New("away"))
				for n[0].try(20, 5*time.Minute).Granted { // until there is no spare slot
				}
				n[0].way.Faults.Fail(nil)
			}
			n[0].kill()
			if err := n[0].Stop(t.Context()); err != nil {
				t.Error(err)
			}
			for i := range 20 {
				if r := n[1].waitFor(100*time.Millisecond, 20, time.Minute); !r.Granted {
					t.Fatalf("failed %v, slot %d: %+v", failed, i, r)
				}
			}
		})
	}
}
