package dataplane_test

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

func newAlone(t testing.TB, cfg dataplane.Config) *dataplane.Limiter {
	t.Helper()
	l, err := dataplane.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopAll([]*dataplane.Limiter{l}) })
	return l
}

// "Without an origin … this process reserves by itself, and decides as AllowMany does": one limiter reserves, another
// allows the same requests, and the decisions are equal.
func TestAProcessReservesAsItAllowsMany(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			reserves, allows := newAlone(t, dataplane.Config{}), newAlone(t, dataplane.Config{})
			for i := range rapid.IntRange(1, 10).Draw(r, "calls") {
				var requests []dataplane.Request
				for range rapid.IntRange(1, 4).Draw(r, "items") {
					q := ask(fmt.Sprint("k", rapid.IntRange(0, 2).Draw(r, "key")), rapid.Int64Range(1, 30).Draw(r, "cost"),
						rapid.SampledFrom([]int64{5, 40}).Draw(r, "limit"))
					q.Shadow = rapid.IntRange(0, 4).Draw(r, "shadow") == 0
					requests = append(requests, q)
				}
				got := reserves.Reserve(t.Context(), reserveFor(fmt.Sprint(i), time.Hour, requests...))
				want := allows.AllowMany(t.Context(), requests)
				if got.Err != nil || got.Allowed != want.Allowed || !reflect.DeepEqual(got.Decisions, want.Decisions) {
					r.Fatalf("reserved: %+v\nallowed: %+v", got, want)
				}
				time.Sleep(time.Duration(rapid.IntRange(0, 40).Draw(r, "pause")) * time.Second)
			}
		})
	})
}

// Reservations of several keys, singles and batches share the limits of a process: each granted cost fits in addition
// to all held and spent cost at that moment, and cost that a settlement gives back is free at once.
func TestReservationsOfAProcessAreExactBesideOtherDecisions(t *testing.T) {
	const limit = 20
	l := newAlone(t, dataplane.Config{})
	var used [2]atomic.Int64 // lower bounds
	take := func(key int, cost int64) {
		if n := used[key].Add(cost); n > limit {
			t.Errorf("k%d: %d of %d", key, n, limit)
		}
	}
	both := func(cost int64) []dataplane.Request {
		return []dataplane.Request{askDay("k0", cost, limit), askDay("k1", cost, limit)}
	}
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for n := range 500 {
				cost, id := int64(1+(i+n)%5), fmt.Sprint(i, "-", n)
				r := reserveFor(id, time.Hour, both(cost)...)
				if i%4 == 3 { // a single whose cost is given back
					held, d := l.AllowUpTo(t.Context(), askDay("k0", cost, limit))
					if d.Allowed {
						take(0, cost)
						used[0].Add(-cost)
						if change, err := held.Settle(0); change != -cost || err != nil {
							t.Errorf("%d, %v", change, err)
						}
					}
					continue
				}
				if !l.Reserve(t.Context(), r).Allowed {
					continue
				}
				take(0, cost)
				take(1, cost)
				used[0].Add(-cost)
				used[1].Add(-cost)
				if _, err := l.Settle(t.Context(), id, 0, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	for _, r := range both(limit) {
		if d := l.Allow(t.Context(), r); !d.Allowed {
			t.Errorf("all was given back: %+v", d)
		}
	}
}

// A step of the wall clock neither ends nor prolongs a reservation. Callers get its end by their own clock.
func TestAClockStepChangesNoReservationsTime(t *testing.T) {
	for _, step := range []time.Duration{-3 * time.Hour, 0, 3 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var ahead atomic.Int64
			l := newAlone(t, dataplane.Config{Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
			wantReserved(t, l, reserveFor("one", 10*time.Second, askDay("k", 60, 100)), true)
			ahead.Store(int64(step))
			time.Sleep(9 * time.Second)
			s, err := l.Spend(t.Context(), "one", 20)
			wantSettled(t, "in time", s, err, false, false, 20)
			if want := time.Now().Add(step + time.Second); !s.EndsAt.Equal(want) {
				t.Errorf("it ends at %v, want %v", s.EndsAt, want)
			}
			time.Sleep(time.Second)
			s, err = l.Settle(t.Context(), "one", 30)
			wantSettled(t, "late", s, err, false, true, 20)
		})
	}
}

// During an outage a node reserves by itself. A retry returns the same reservation, during the outage and after it,
// and the cost counts once, also if the region's origin had stored the reservation before its answer was lost.
func TestAReservationOfAnOutageIsFoundAgain(t *testing.T) {
	for name, fail := range map[string]func(f *memstore.Faults, on bool){
		"lost answers": (*memstore.Faults).LoseReplies,
		"no calls": func(f *memstore.Faults, on bool) {
			if f.Fail(nil); on {
				f.Fail(errors.New("down"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := memstore.NewOrigin(memstore.OriginOptions{})
				nodes := region(t, 2, origin, store.NamespaceRow{})
				defer stopAll(nodes)
				wantReserved(t, nodes[0], reserveFor("before", time.Hour, askDay("k", 10, 100)), true)
				fail(&origin.Faults, true)
				one := reserveFor("one", time.Hour, askDay("k", 40, 100))
				for range 2 {
					if got := wantReserved(t, nodes[0], one, true); got.Decisions[0].Shadowed {
						t.Errorf("%+v", got)
					}
				}
				fail(&origin.Faults, false)
				wantReserved(t, nodes[0], one, true)
				time.Sleep(5 * time.Second)
				wantReserved(t, nodes[0], one, true)
				wantReserved(t, nodes[1], reserveFor("more", time.Hour, askDay("k", 51, 100)), false)
				time.Sleep(time.Second)
				if _, err := nodes[1].Settle(t.Context(), "one", 1); !errors.Is(err, dataplane.ErrNoReservation) {
					t.Errorf("at another node: %v", err)
				}
				s, err := nodes[0].Settle(t.Context(), "one", 45)
				wantSettled(t, "one", s, err, true, false, 45)
				time.Sleep(time.Second)
				wantReserved(t, nodes[1], reserveFor("more", time.Hour, askDay("k", 46, 100)), false)
				time.Sleep(time.Second)
				wantReserved(t, nodes[1], reserveFor("left", time.Hour, askDay("k", 45, 100)), true)
			})
		})
	}
}

// "Shadow lets the request pass although it is over its limit": also a request of a reservation, which then holds
// nothing for its key.
func TestARequestInShadowModeIsReservedOverItsLimit(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		wantReserved(t, a, reserveFor("all", time.Hour, askDay("k", 100, 100)), true)
		over := askDay("k", 7, 100)
		over.Shadow = true
		got := wantReserved(t, a, reserveFor("over", time.Hour, over, askDay("other", 5, 100)), true)
		if !got.Decisions[0].Shadowed || got.Decisions[1].Shadowed {
			t.Errorf("%+v", got)
		}
		s, err := b.Settle(t.Context(), "over", 7, 5)
		wantSettled(t, "over", s, err, true, false, 7, 5)
		s, err = b.Settle(t.Context(), "all", 40)
		wantSettled(t, "all", s, err, true, false, 40)
		wantReserved(t, a, reserveFor("left", time.Hour, askDay("k", 60, 100)), true)
	})
}

// "Its namespace … is in shadow mode": a reservation also passes if its key has the highest number of holds.
func TestAReservationInShadowModePassesWithoutAHold(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		shadow := func(key string) dataplane.Request {
			r := askDay(key, 1, 1<<40)
			r.Shadow = true
			return r
		}
		for i := range store.HoldsMax {
			wantReserved(t, a, reserveFor(fmt.Sprint(i), time.Hour, askDay("k", 1, 1<<40)), true)
		}
		if got := a.Reserve(t.Context(), reserveFor("strict", time.Hour, askDay("k", 1, 1<<40))); got.Allowed ||
			!errors.Is(got.Err, dataplane.ErrReservations) {
			t.Errorf("one more: %+v", got)
		}
		got := wantReserved(t, a, reserveFor("more", time.Hour, shadow("k"), shadow("free")), true)
		if len(got.Decisions) == 2 && (!got.Decisions[0].Shadowed || got.Decisions[1].Shadowed) {
			t.Errorf("%+v", got)
		}
		s, err := b.Settle(t.Context(), "more", 5, 5)
		wantSettled(t, "more", s, err, true, false, 5, 5)
		if d := a.Peek(t.Context(), askDay("k", 1, 1<<40)); d.Current != store.HoldsMax+1 {
			t.Errorf("%+v", d)
		}
	})
}

// A repeated request is answered with the current counts, which include its own reservation once.
func TestARepeatedRequestIsAnsweredByTheCountsOfNow(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		one := reserveFor("one", time.Hour, askDay("k", 60, 100))
		if got := wantReserved(t, a, one, true); got.Decisions[0].Remaining != 40 {
			t.Errorf("first: %+v", got)
		}
		wantReserved(t, b, reserveFor("two", time.Hour, askDay("k", 10, 100)), true)
		for _, l := range []*dataplane.Limiter{a, b} {
			if d := wantReserved(t, l, one, true).Decisions[0]; !d.Allowed || d.Remaining != 30 || d.Current != 70 {
				t.Errorf("again: %+v", d)
			}
		}
	})
}
