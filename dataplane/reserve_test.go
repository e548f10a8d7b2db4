package dataplane_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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

func reserveFor(id string, ttl time.Duration, requests ...dataplane.Request) dataplane.ReserveRequest {
	return dataplane.ReserveRequest{ID: id, Requests: requests, TTL: ttl, Returned: true}
}

// wantReserved reserves, and checks whether the reservation is granted or refused.
func wantReserved(t testing.TB, l *dataplane.Limiter, r dataplane.ReserveRequest, allowed bool) dataplane.Reserved {
	t.Helper()
	got := l.Reserve(t.Context(), r)
	if got.Err != nil || got.Allowed != allowed || len(got.Decisions) == 0 {
		t.Errorf("reserve %s: %+v, want %v", r.ID, got, allowed)
	}
	return got
}

func wantSettled(t testing.TB, what string, got dataplane.Settlement, err error, settled, late bool, spent ...int64) {
	t.Helper()
	if err != nil || got.Settled != settled || got.Late != late || !slices.Equal(got.Spent, spent) {
		t.Errorf("%s: %+v, %v; want settled %v, late %v, spent %v", what, got, err, settled, late, spent)
	}
}

// places runs a test in both places of reservations: in a process, and at an origin that two nodes share.
func places(t *testing.T, test func(t *testing.T, a, b *dataplane.Limiter)) {
	t.Run("alone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, err := dataplane.New(dataplane.Config{})
			if err != nil {
				t.Fatal(err)
			}
			nodes := []*dataplane.Limiter{l}
			defer stopAll(nodes)
			test(t, l, l)
		})
	})
	t.Run("fleet", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			nodes := region(t, 2, memstore.NewOrigin(memstore.OriginOptions{Shards: 3}), store.NamespaceRow{})
			defer stopAll(nodes)
			test(t, nodes[0], nodes[1])
		})
	})
}

// "A cost above the reserved cost counts too, past the limit. A smaller cost leaves room for other reservations at
// once."
func TestAReservationIsSettledAtAnyNode(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		ctx := t.Context()
		wantReserved(t, a, reserveFor("one", 0, ask("k", 60, 100)), true)
		wantReserved(t, b, reserveFor("two", 0, ask("k", 60, 100)), false)
		s, err := b.Settle(ctx, "one", 10)
		wantSettled(t, "less", s, err, true, false, 10)
		wantReserved(t, a, reserveFor("two", 0, ask("k", 90, 100)), true)
		s, err = b.Settle(ctx, "two", 120)
		wantSettled(t, "more", s, err, true, false, 120)
		if d := b.Allow(ctx, ask("k", 1, 129)); d.Allowed {
			t.Errorf("130 were spent: %+v", d)
		}
		wantReserved(t, a, reserveFor("three", 0, ask("k", 1, 130)), false)
	})
}

// "All or nothing": a key that is full leaves the others unchanged.
func TestAReservationIsAllOrNothing(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		keys := []dataplane.Request{ask("k0", 10, 10), ask("k1", 10, 10), ask("k2", 10, 10), ask("k0", 1, 10)}
		got := wantReserved(t, a, reserveFor("all", 0, keys...), false)
		if !got.Decisions[0].Allowed || got.Decisions[3].Allowed {
			t.Errorf("%+v", got.Decisions)
		}
		wantReserved(t, b, reserveFor("three", 0, keys[:3]...), true)
		s, err := a.Settle(t.Context(), "three", 1, 2, 3)
		wantSettled(t, "three", s, err, true, false, 1, 2, 3)
		for i, left := range []int64{9, 8, 7} {
			wantReserved(t, b, reserveFor(fmt.Sprint("more", i), 0, ask(fmt.Sprint("k", i), left+1, 10)), false)
			wantReserved(t, b, reserveFor(fmt.Sprint("left", i), 0, ask(fmt.Sprint("k", i), left, 10)), true)
		}
	})
}

// "A denial changes no count": the cost of a refused reservation stays free for all others.
func TestARefusedReservationChangesNoCount(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		for i := range 5 {
			both := []dataplane.Request{ask("k0", 100, 100), ask("k1", 11, 10)}
			wantReserved(t, a, reserveFor(fmt.Sprint("both", i), 0, both...), false)
		}
		time.Sleep(time.Second)
		if d := b.Allow(t.Context(), ask("k0", 1, 100)); !d.Allowed || d.Remaining != 99 {
			t.Errorf("%+v", d)
		}
	})
}

// "A reservation can be settled only once": 1,000 repeated, late and reordered settlements change nothing.
func TestRepeatedSettlesChangeNothing(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		ctx, rnd := t.Context(), rand.New(rand.NewPCG(1, 2))
		wantReserved(t, a, reserveFor("one", 0, ask("k", 60, 100)), true)
		s, err := a.Spend(ctx, "one", 30)
		wantSettled(t, "so far", s, err, false, false, 30)
		s, err = b.Spend(ctx, "one", 20)
		wantSettled(t, "reordered", s, err, false, false, 30)
		s, err = b.Settle(ctx, "one", 40)
		wantSettled(t, "settled", s, err, true, false, 40)
		nodes := []*dataplane.Limiter{a, b}
		for i := range 1000 {
			n := nodes[rnd.IntN(2)]
			switch i % 5 {
			case 0:
				s, err = n.Settle(ctx, "one", rnd.Int64N(100))
			case 1:
				s, err = n.Spend(ctx, "one", rnd.Int64N(100))
			case 2:
				s, err = n.Cancel(ctx, "one")
			case 3:
				s, err = n.Extend(ctx, "one", time.Hour)
			default:
				wantOver(t, n, reserveFor("one", 0, ask("k", 60, 100)))
			}
			wantSettled(t, fmt.Sprint("again ", i), s, err, true, true, 40)
			time.Sleep(10 * time.Millisecond)
		}
		wantReserved(t, a, reserveFor("more", 0, ask("k", 61, 100)), false)
		wantReserved(t, a, reserveFor("left", 0, ask("k", 60, 100)), true)
	})
}

// A late call counts nothing a second time. A minute later, the reservation no longer exists.
func TestLateSettlesChangeNothing(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		wantReserved(t, a, reserveFor("one", 5*time.Second, askDay("k", 60, 100)), true)
		s, err := a.Settle(t.Context(), "one", 10)
		wantSettled(t, "settled", s, err, true, false, 10)
		for i := range 2 {
			time.Sleep(25 * time.Second)
			s, err = b.Settle(t.Context(), "one", 10)
			wantSettled(t, fmt.Sprint("again ", i), s, err, true, true, 10)
		}
		time.Sleep(time.Minute)
		if s, err = b.Settle(t.Context(), "one", 10); !errors.Is(err, dataplane.ErrNoReservation) {
			t.Errorf("%+v, %v", s, err)
		}
		wantReserved(t, a, reserveFor("more", 0, askDay("k", 91, 100)), false)
		wantReserved(t, a, reserveFor("left", 0, askDay("k", 90, 100)), true)
	})
}

// askDay is ask with a window that is longer than reservations.
func askDay(identifier string, cost, limit int64) dataplane.Request {
	r := ask(identifier, cost, limit)
	r.Duration = 24 * time.Hour
	return r
}

// A reservation ends after its TTL without any call, and counts as fully spent or as returned, as its caller chose.
func TestAReservationEndsByItself(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		ctx := t.Context()
		spent := reserveFor("spent", 5*time.Second, ask("k", 40, 100))
		spent.Returned = false
		wantReserved(t, a, spent, true)
		wantReserved(t, a, reserveFor("returned", 5*time.Second, ask("k", 50, 100)), true)
		wantReserved(t, b, reserveFor("longer", 5*time.Second, ask("k", 10, 100)), true)
		if s, err := b.Spend(ctx, "returned", 7); err != nil || s.Late {
			t.Fatal(s, err)
		}
		if s, err := a.Extend(ctx, "longer", 30*time.Second); err != nil || s.Late {
			t.Fatal(s, err)
		}
		wantReserved(t, b, reserveFor("early", 0, ask("k", 1, 100)), false)
		time.Sleep(5*time.Second + time.Millisecond)
		s, err := b.Settle(ctx, "returned", 50)
		wantSettled(t, "too late", s, err, false, true, 7)
		wantReserved(t, b, reserveFor("more", 0, ask("k", 44, 100)), false)
		wantReserved(t, b, reserveFor("left", 0, ask("k", 43, 100)), true)
		s, err = a.Settle(ctx, "longer", 3)
		wantSettled(t, "in time", s, err, true, false, 3)
		time.Sleep(20 * time.Minute)
		if _, err := a.Settle(ctx, "returned", 1); !errors.Is(err, dataplane.ErrNoReservation) {
			t.Error(err)
		}
	})
}

func TestReservationsNameWhatIsWrong(t *testing.T) {
	places(t, func(t *testing.T, a, b *dataplane.Limiter) {
		ctx := t.Context()
		good := ask("k", 1, 100)
		bad := good
		bad.Cost = -1
		one := []dataplane.Request{good}
		for want, r := range map[string]dataplane.ReserveRequest{
			"requests holds 0 items (1 to 32)":  {},
			"requests holds 33 items (1 to 32)": {Requests: slices.Repeat(one, 33)},
			"cost is -1":                        {Requests: []dataplane.Request{good, bad}},
			"ttl is 1ms (1s to 24h0m0s)":        {Requests: one, TTL: time.Millisecond},
			"ttl is 25h0m0s (1s to 24h0m0s)":    {Requests: one, TTL: 25 * time.Hour},
			"id has 125 bytes (1 to 124)":       {Requests: one, ID: strings.Repeat("x", 125)},
			"holder has 65 bytes (at most 64)":  {Requests: one, Holder: strings.Repeat("x", 65)},
		} {
			got := a.Reserve(ctx, r)
			if !errors.Is(got.Err, dataplane.ErrInvalid) || got.Allowed || !strings.Contains(got.Err.Error(), want) {
				t.Errorf("%q: %v", want, got.Err)
			}
		}
		wantReserved(t, a, reserveFor("one", 0, good), true)
		if got := b.Reserve(ctx, reserveFor("one", 0, ask("k", 2, 100))); !errors.Is(got.Err, dataplane.ErrReservationUsed) || got.Allowed {
			t.Errorf("%+v", got)
		}
		for _, costs := range [][]int64{nil, {1, 2}, {-1}} {
			if _, err := b.Settle(ctx, "one", costs...); !errors.Is(err, dataplane.ErrInvalid) {
				t.Errorf("%v: %v", costs, err)
			}
		}
		if _, err := b.Settle(ctx, "none", 1); !errors.Is(err, dataplane.ErrNoReservation) {
			t.Error(err)
		}
		if _, err := b.Settle(ctx, "", 1); !errors.Is(err, dataplane.ErrInvalid) {
			t.Error(err)
		}
		if _, err := b.Extend(ctx, "one", time.Millisecond); !errors.Is(err, dataplane.ErrInvalid) {
			t.Error(err)
		}
		wantReserved(t, b, reserveFor("left", 0, ask("k", 99, 100)), true)
	})
}

// historian has the expected state of every reservation of a key.
type historian struct {
	*rapid.T
	nodes []*dataplane.Limiter
	known map[string]*heldCost
	ids   []string
}

type heldCost struct {
	cost, spent int64
	endsAt      time.Time
	settled     bool
}

// counts returns the cost that a reservation counts now. The reservations of these histories return the rest at their
// end.
func (h *heldCost) counts() int64 {
	if h.settled || !time.Now().Before(h.endsAt) {
		return h.spent
	}
	return max(h.cost, h.spent)
}

func (h *historian) used() (sum int64) {
	for _, r := range h.known {
		sum += r.counts()
	}
	return sum
}

func (h *historian) node() *dataplane.Limiter { return rapid.SampledFrom(h.nodes).Draw(h.T, "node") }

func (h *historian) reserve(t *testing.T, limit int64) {
	id := fmt.Sprint(len(h.ids))
	cost := rapid.Int64Range(1, 50).Draw(h.T, "cost")
	ttl := time.Duration(rapid.IntRange(1, 10).Draw(h.T, "ttl")) * time.Second
	r, node := reserveFor(id, ttl, ask("k", cost, limit)), h.node()
	got := node.Reserve(t.Context(), r)
	if !got.Allowed && got.Decisions[0].Source == dataplane.SourceLocal { // refused by counts that are at most 20 ms old
		time.Sleep(20 * time.Millisecond)
		got = node.Reserve(t.Context(), r)
	}
	fits := h.used()+cost <= limit
	if got.Err != nil || got.Allowed != fits {
		t.Fatalf("%d used of %d, %d more: %+v", h.used(), limit, cost, got)
	}
	if fits {
		h.ids = append(h.ids, id)
		h.known[id] = &heldCost{cost: cost, endsAt: time.Now().Add(ttl)}
	}
}

func (h *historian) change(t *testing.T, what int) {
	if len(h.ids) == 0 {
		return
	}
	id := rapid.SampledFrom(h.ids).Draw(h.T, "id")
	r, node, cost := h.known[id], h.node(), rapid.Int64Range(0, 70).Draw(h.T, "spent")
	late := r.settled || !time.Now().Before(r.endsAt)
	var got dataplane.Settlement
	var err error
	switch what {
	case 0:
		got, err = node.Settle(t.Context(), id, cost)
		if !late {
			r.spent, r.settled = max(r.spent, cost), true
		}
	case 1:
		got, err = node.Spend(t.Context(), id, cost)
		if !late {
			r.spent = max(r.spent, cost)
		}
	case 2:
		got, err = node.Extend(t.Context(), id, 5*time.Second)
		if ends := time.Now().Add(5 * time.Second); !late && ends.After(r.endsAt) {
			r.endsAt = ends
		}
	}
	wantSettled(t, fmt.Sprint(what), got, err, r.settled, late, r.spent)
}

// Any history of reservations at several nodes grants exactly the cost that fits in addition to held and spent cost.
func TestAnyHistoryOfReservationsIsExact(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			nodes := region(t, 3, memstore.NewOrigin(memstore.OriginOptions{Shards: 2}), store.NamespaceRow{})
			defer stopAll(nodes)
			h := &historian{T: r, nodes: nodes, known: make(map[string]*heldCost)}
			limit := rapid.Int64Range(1, 200).Draw(r, "limit")
			for range rapid.IntRange(1, 40).Draw(r, "calls") {
				switch what := rapid.IntRange(0, 5).Draw(r, "what"); {
				case what <= 2:
					h.change(t, what)
				case what == 3:
					time.Sleep(time.Duration(rapid.IntRange(1, 1400).Draw(r, "pause")) * time.Millisecond)
				default:
					h.reserve(t, limit)
				}
			}
		})
	})
}

// 200 streams of unpredictable cost on two nodes: none passes the limit, and nearly all of the limit is used.
func TestStreamsUseTheirLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := region(t, 2, memstore.NewOrigin(memstore.OriginOptions{}), store.NamespaceRow{})
		defer stopAll(nodes)
		const limit, ceiling = 1_000_000, 20_000
		var spent, held atomic.Int64
		var streams sync.WaitGroup
		for i := range 200 {
			streams.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(i), 7))
				for n := 0; ; n++ {
					id, node := fmt.Sprint(i, "-", n), nodes[rnd.IntN(2)]
					got := node.Reserve(t.Context(), reserveFor(id, 20*time.Second, ask("k", ceiling, limit)))
					if got.Err != nil {
						t.Error(got.Err)
						return
					}
					if !got.Allowed {
						if spent.Load() > limit-ceiling {
							return
						}
						time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
						continue
					}
					if h := held.Add(ceiling); h+spent.Load() > limit {
						t.Errorf("%d held and spent", h+spent.Load())
					}
					time.Sleep(time.Duration(100+rnd.IntN(2000)) * time.Millisecond)
					cost := rnd.Int64N(ceiling)
					held.Add(-ceiling)
					spent.Add(cost)
					if _, err := nodes[rnd.IntN(2)].Settle(t.Context(), id, cost); err != nil {
						t.Error(err)
					}
				}
			})
		}
		streams.Wait()
		if got := spent.Load(); got > limit || got < limit*95/100 {
			t.Errorf("%d of %d were spent", got, limit)
		}
	})
}

// The reservations of a node that is gone end as usual, and the other nodes restore the reservations that an emptied
// origin has lost. All held cost is free at its end, and spent cost counts.
func TestReservationsOutliveTheirNodeAndTheOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
		nodes := region(t, 3, origin, store.NamespaceRow{})
		defer stopAll(nodes)
		ctx := t.Context()
		wantReserved(t, nodes[2], reserveFor("gone", 5*time.Second, ask("k", 30, 100)), true)
		stopAll(nodes[2:])
		wantReserved(t, nodes[0], reserveFor("held", 10*time.Second, ask("k", 40, 100)), true)
		wantReserved(t, nodes[1], reserveFor("settled", 20*time.Second, ask("k", 30, 100)), true)
		if _, err := nodes[1].Settle(ctx, "settled", 20); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		wantReserved(t, nodes[0], reserveFor("back", 2*time.Second, ask("k", 41, 100)), false)
		wantReserved(t, nodes[0], reserveFor("back", 2*time.Second, ask("k", 40, 100)), true)
		origin.Wipe()
		time.Sleep(2200 * time.Millisecond) // each second a node checks for a loss, and restores
		s, err := nodes[1].Settle(ctx, "settled", 25)
		wantSettled(t, "settled before", s, err, true, true, 20)
		wantReserved(t, nodes[1], reserveFor("early", 0, ask("k", 41, 100)), false)
		time.Sleep(3 * time.Second)
		wantReserved(t, nodes[1], reserveFor("more", 0, ask("k", 81, 100)), false)
		s, err = nodes[1].Settle(ctx, "held", 9)
		wantSettled(t, "ended", s, err, false, true, 0)
		wantReserved(t, nodes[1], reserveFor("left", time.Second, ask("k", 40, 100)), true)
	})
}

// A lost reply is no outage. During an outage a namespace's policy decides, and reservations are this node's own.
func TestReservationsInAnOutage(t *testing.T) {
	for policy, allowed := range map[string]bool{"": true, "local": true, "open": true, "closed": false} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			nodes := region(t, 2, origin, store.NamespaceRow{Outage: policy})
			defer stopAll(nodes)
			lost := 0
			origin.Faults.Hook(func(op memstore.Op) error {
				if op == memstore.OpHold {
					lost++
					origin.Faults.LoseReplies(lost%2 == 1)
				}
				return nil
			})
			got := wantReserved(t, nodes[0], reserveFor("one", 0, ask("k", 60, 100)), true)
			if got.Decisions[0].Source != dataplane.SourceOrigin || got.Decisions[0].Remaining != 40 {
				t.Errorf("%+v", got)
			}
			s, err := nodes[1].Settle(t.Context(), "one", 10)
			wantSettled(t, "one", s, err, true, false, 10)
			origin.Faults.Hook(nil)
			origin.Faults.LoseReplies(false)
			origin.Faults.Fail(errors.New("down"))
			got = wantReserved(t, nodes[0], reserveFor("out", 0, ask("k", 20, 100)), allowed)
			if !got.Decisions[0].Source.Degraded() {
				t.Errorf("%+v", got)
			}
			if !allowed {
				if d := got.Decisions[0]; d.NeverPasses || d.RetryAfter <= 0 || d.Source != dataplane.SourceDegradedClosed {
					t.Errorf("%+v", d)
				}
				return
			}
			s, err = nodes[0].Settle(t.Context(), "out", 15)
			wantSettled(t, "out", s, err, true, false, 15)
			origin.Faults.Fail(nil)
			time.Sleep(10 * time.Second)
			// 25 are spent. The 5 that "out" did not spend may have been in flight to the origin already: then they count
			// there until nodes[0] uses them.
			wantReserved(t, nodes[1], reserveFor("more", 0, ask("k", 76, 100)), false)
			wantReserved(t, nodes[1], reserveFor("left", 0, ask("k", 70, 100)), true)
		})
	}
}

// During an outage an open namespace lets a reservation pass its limit, and Decision.Source reports it.
func TestAnOpenNamespaceReservesPastItsLimitInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 1, origin, store.NamespaceRow{Outage: "open"})
		defer stopAll(nodes)
		wantReserved(t, nodes[0], reserveFor("there", 0, ask("k", 100, 100)), true)
		origin.Faults.Fail(errors.New("down"))
		wantReserved(t, nodes[0], reserveFor("first", 0, ask("k", 60, 100)), true)
		for i := range 100 { // until the node's breaker opens
			nodes[0].Allow(t.Context(), ask(fmt.Sprint("cold", i), 1, 100))
		}
		got := wantReserved(t, nodes[0], reserveFor("past", 0, ask("k", 60, 100), ask("l", 60, 100)), true)
		if got.Decisions[0].Source != dataplane.SourceDegradedOpen {
			t.Errorf("%+v", got)
		}
		for _, d := range got.Decisions {
			if !d.Source.Degraded() {
				t.Errorf("%+v", d)
			}
		}
		origin.Faults.Fail(nil)
	})
}

// EndsAt is the end that the origin has stored, which is later than the node's own estimate by the duration of the
// call.
func TestAReservationEndsWhenItsRecordDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		nodes := region(t, 2, origin, store.NamespaceRow{})
		defer stopAll(nodes)
		origin.Faults.Delay(20 * time.Millisecond)
		got := wantReserved(t, nodes[0], reserveFor("one", 0, ask("k", 60, 100)), true)
		s, err := nodes[1].Spend(t.Context(), "one", 0)
		if err != nil || !s.EndsAt.Equal(got.EndsAt) {
			t.Errorf("it ends at %v, and at %v by its record (%v)", got.EndsAt, s.EndsAt, err)
		}
	})
}

// "its namespace … is in shadow mode": a reservation passes over its limit, and counts nothing. Requests in the
// estimate mode cannot be reserved.
func TestReservationsFollowTheirNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := region(t, 2, memstore.NewOrigin(memstore.OriginOptions{}), store.NamespaceRow{Shadow: true})
		defer stopAll(nodes)
		wantReserved(t, nodes[0], reserveFor("one", 0, ask("k", 60, 100)), true)
		got := wantReserved(t, nodes[1], reserveFor("two", 0, ask("k", 41, 100), ask("k2", 5, 100)), true)
		if !got.Decisions[0].Shadowed || got.Decisions[1].Shadowed {
			t.Errorf("%+v", got)
		}
		s, err := nodes[0].Settle(t.Context(), "two", 41, 5)
		wantSettled(t, "two", s, err, true, false, 41, 5)
		got = wantReserved(t, nodes[1], reserveFor("three", 0, ask("k", 40, 100)), true)
		if got.Decisions[0].Shadowed || got.Decisions[0].Remaining != 0 {
			t.Errorf("%+v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		nodes := region(t, 1, memstore.NewOrigin(memstore.OriginOptions{}), store.NamespaceRow{Mode: "estimate"})
		defer stopAll(nodes)
		if got := nodes[0].Reserve(t.Context(), reserveFor("one", 0, ask("k", 1, 100))); !errors.Is(got.Err, dataplane.ErrInvalid) {
			t.Errorf("%+v", got)
		}
	})
}
