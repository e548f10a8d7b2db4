package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var originClaimTests = map[string]func(*originTest){
	"adds each cost only up to AtMost, and answers the total in either case": func(h *originTest) {
		c := h.cells(3)
		h.claim([]store.Claim{{Cell: c[0], Cost: 4, AtMost: 10}}, yes(4))
		h.send(store.Cost{Cell: c[0], Add: 2})
		// "Claims of one cell are decided in their order", each on what those before left.
		h.claim([]store.Claim{
			{Cell: c[0], Cost: 5, AtMost: 10}, {Cell: c[1], Cost: 5, AtMost: 5}, {Cell: c[0], Cost: 3, AtMost: 10},
			{Cell: c[0], Cost: 2, AtMost: 10}, {Cell: c[0], Cost: 1, AtMost: 10}, {Cell: c[2], Cost: 6, AtMost: 5},
		}, no(6), yes(5), yes(9), no(9), yes(10), no(0))
		h.claim([]store.Claim{{Cell: c[0], Cost: 1, AtMost: 3}, {Cell: c[0], Cost: 1, AtMost: 11}}, no(10), yes(11))
		h.claim(nil)
		h.wantRegions(c, 11, 5, 0)
	},
	"counts what was restored": func(h *originTest) {
		c := h.cells(1)
		h.send(store.Cost{Cell: c[0], Add: 1, Restore: 5, Known: 7})
		h.claim([]store.Claim{{Cell: c[0], Cost: 3, AtMost: 10}, {Cell: c[0], Cost: 2, AtMost: 10}}, no(8), yes(10))
	},
	"one that finds no room changes and creates nothing": func(h *originTest) {
		c := h.cells(2)
		h.send(store.Cost{Cell: c[0], Add: 7})
		for _, atMost := range []int64{math.MinInt64, -1, 0, 2} {
			h.claim([]store.Claim{
				{Cell: c[0], Cost: 3, AtMost: atMost, Limit: 5}, {Cell: c[1], Cost: 3, AtMost: atMost, Limit: 5},
			}, no(7), no(0))
		}
		wantChanges(h)
	},
	"a cost that is not positive is not applied": func(h *originTest) {
		c := h.cells(2)
		h.send(store.Cost{Cell: c[0], Add: 7})
		for i, cost := range []int64{0, -1, math.MinInt64} {
			r := h.Claim(h.Context(), h.stream.claims(store.Claim{Cell: c[0], Cost: cost, AtMost: 9},
				store.Claim{Cell: c[1], Cost: 1, AtMost: 9}))
			if bad := r.Totals[0]; bad.Err == nil || errors.Is(bad.Err, store.ErrMaybeApplied) || bad.Region != 0 || r.Added[0] {
				h.Errorf("cost %d: %+v", cost, bad)
			}
			if !r.Added[1] || r.Totals[1].Region != int64(i+1) {
				h.Errorf("beside cost %d: %+v", cost, r.Totals[1])
			}
		}
		h.wantRegions(c, 7, 3)
	},
	"is exact up to CountMax": func(h *originTest) {
		c := h.cells(2)
		h.send(store.Cost{Cell: c[0], Add: store.CountMax - 5}, store.Cost{Cell: c[1], Add: 1 << 52})
		h.claim([]store.Claim{
			{Cell: c[0], Cost: 6, AtMost: math.MaxInt64}, {Cell: c[0], Cost: math.MaxInt64, AtMost: math.MaxInt64},
			{Cell: c[0], Cost: 5, AtMost: math.MaxInt64}, {Cell: c[1], Cost: 2, AtMost: 1<<52 + 1},
			{Cell: c[1], Cost: 1, AtMost: 1<<52 + 1},
		}, no(store.CountMax-5), no(store.CountMax-5), yes(store.CountMax), no(1<<52), yes(1<<52+1))
	},
	"takes as many cells as it is given":                                  testOriginClaimMany,
	"never exceeds AtMost and wastes no room, however many claim at once": testOriginClaimConcurrently,
	"a lost reply leaves it perhaps applied, and says so":                 testClaimLost,
	"the same again finds out what was added, and adds nothing":           testClaimAgain,
	"one that comes late is refused":                                      testClaimLate,
	"refuses claims without a stream or a number":                         testBadClaims,
	"does not lose what is sent meanwhile":                                testOriginClaimBesideSends,
}

// originClaimForeignTests are for origins that are Relayed.
var originClaimForeignTests = map[string]func(*originTest){
	"answers with the foreign total": testClaimForeign,
}

// claimed is how a claim is answered: the region's total, and whether it was added.
type claimed struct {
	total int64
	added bool
}

func yes(total int64) claimed { return claimed{total, true} }
func no(total int64) claimed  { return claimed{total, false} }

// claim expects claims to be answered like this.
func (h *originTest) claim(claims []store.Claim, want ...claimed) {
	h.Helper()
	r := h.Claim(h.Context(), h.stream.claims(claims...))
	if len(r.Totals) != len(claims) || len(r.Added) != len(claims) || len(claims) > 0 && r.Now.IsZero() {
		h.Fatalf("%d claims are answered %+v", len(claims), r)
	}
	for i, total := range r.Totals {
		if total.Err != nil || total.Region != want[i].total || r.Added[i] != want[i].added || total.Epoch == 0 {
			h.Errorf("claim %+v: %+v, added %v; want %+v", claims[i], total, r.Added[i], want[i])
		}
	}
}

func testOriginClaimMany(h *originTest) {
	cells := h.cells(1300)
	claims, want := make([]store.Claim, len(cells)), make([]claimed, len(cells))
	for i, c := range cells {
		claims[i], want[i] = store.Claim{Cell: c, Cost: int64(i + 1), AtMost: 1000}, no(0)
		if i < 1000 {
			want[i] = yes(int64(i + 1))
		}
	}
	h.claim(claims, want...)
}

func testOriginClaimConcurrently(h *originTest) {
	rapid.Check(h.T, func(rt *rapid.T) {
		atMost := rapid.Int64Range(0, 60).Draw(rt, "at most")
		callers := rapid.SliceOfN(rapid.SliceOfN(rapid.Int64Range(1, 9), 1, 8), 2, 6).Draw(rt, "costs of each caller")
		cell := liveCell(freshWorkspace(), "x")
		var mu sync.Mutex
		added, leastRefused := int64(0), int64(math.MaxInt64)
		var problems []string
		var wg sync.WaitGroup
		for _, costs := range callers {
			stream := newOriginStream()
			wg.Go(func() {
				for _, cost := range costs {
					r := h.Claim(rt.Context(), stream.claims(store.Claim{Cell: cell, Cost: cost, AtMost: atMost}))
					total, took := r.Totals[0], r.Added[0]
					mu.Lock()
					if total.Err != nil || total.Region > atMost || !took && total.Region+cost <= atMost {
						problems = append(problems, fmt.Sprintf("cost %d: %+v", cost, r))
					}
					if took {
						added += cost
					} else {
						leastRefused = min(leastRefused, cost)
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		total := get(rt, h, cell)[0].Region
		if len(problems) > 0 || total != added || total > atMost || leastRefused <= atMost-total {
			rt.Fatalf("at most %d: the total is %d, %d were added, %d was refused; %v",
				atMost, total, added, leastRefused, problems)
		}
	})
}

func testClaimLost(h *originTest) {
	c := h.cells(1)
	h.epoch(c[0])
	h.claimLost(h.stream.claims(store.Claim{Cell: c[0], Cost: 3, AtMost: 9}))
	h.wantRegions(c, 3)
}

// again are claims that add nothing: what became of the same ones, if they were decided.
func again(claims store.Claims) store.Claims {
	claims.Claims = slices.Clone(claims.Claims)
	for i := range claims.Claims {
		claims.Claims[i].AtMost = -1
	}
	return claims
}

// wantClaimed expects claims to be answered like this.
func (h *originTest) wantClaimed(claims store.Claims, want ...claimed) {
	h.Helper()
	r := h.Claim(h.Context(), claims)
	for i, total := range r.Totals {
		if total.Err != nil || total.Region != want[i].total || r.Added[i] != want[i].added {
			h.Errorf("claim %d, %+v: %+v, added %v; want %+v", claims.Number, claims.Claims[i], total, r.Added[i], want[i])
		}
	}
}

func testClaimAgain(h *originTest) {
	c := h.cells(700)
	get(h, h, c...) // all epochs are drawn
	claims, first, second := make([]store.Claim, len(c)), make([]claimed, len(c)), make([]claimed, len(c))
	for i := range c {
		claims[i] = store.Claim{Cell: c[i], Cost: 3, AtMost: 2 + int64(i%2)}
	}
	arrived := h.stream.claims(claims...)
	h.claimLost(arrived)
	sum := int64(0)
	found := h.Claim(h.Context(), again(arrived)) // some parts of the call may not have arrived, and never will now
	for i, total := range found.Totals {
		first[i], second[i] = claimed{total.Region, found.Added[i]}, claimed{total.Region, false}
		if total.Err != nil || found.Added[i] != (total.Region == 3) {
			h.Errorf("claim %d: %+v, added %v", i, total, found.Added[i])
		}
		sum += total.Region
	}
	if sum == 0 || sum > 3*350 {
		h.Fatalf("%d was added", sum)
	}
	for range 2 {
		h.wantClaimed(again(arrived), first...)
		h.wantClaimed(arrived, first...)
	}
	h.wantClaimed(h.stream.claims(again(arrived).Claims...), second...)

	missing := h.stream.claims(store.Claim{Cell: c[0], Cost: 1, AtMost: 9}) // this one has not arrived yet
	h.wantClaimed(again(missing), no(0))
	h.wantClaimed(missing, no(0))
	h.Wipe(h)
	h.wantClaimed(again(arrived), make([]claimed, len(c))...) // what was added is lost with its epoch
}

// claimLost makes claims whose reply is lost.
func (h *originTest) claimLost(claims store.Claims) {
	h.Helper()
	if h.Lose == nil {
		h.Claim(h.Context(), claims)
		return
	}
	h.Lose(true)
	defer h.Lose(false)
	r := h.Claim(h.Context(), claims)
	for i, total := range r.Totals {
		if !errors.Is(total.Err, store.ErrMaybeApplied) || r.Added[i] || total.Region != 0 {
			h.Fatalf("claim %d, with the reply lost: %+v, added %v", i, total, r.Added[i])
		}
	}
}

func testClaimLate(h *originTest) {
	c := h.cells(2)
	late := h.stream.claims(store.Claim{Cell: c[0], Cost: 1, AtMost: 9})
	h.claim([]store.Claim{{Cell: c[0], Cost: 2, AtMost: 9}}, yes(2))
	other := h.Client(h)
	for _, way := range []store.Origin{h, other} {
		if r := way.Claim(h.Context(), late); r.Totals[0].Err == nil || r.Added[0] {
			h.Errorf("late: %+v", r)
		}
	}
	h.send(h.adds(c, 5)...) // the next call of the stream, though a chunk
	last := store.Claims{Stream: h.stream.id, Number: h.stream.number - 1, Claims: late.Claims}
	if r := other.Claim(h.Context(), last); r.Totals[0].Err == nil || r.Added[0] {
		h.Errorf("late, after a chunk: %+v", r)
	}
	h.wantRegions(c, 7, 0)
}

func testBadClaims(h *originTest) {
	c := h.cells(1)
	good := []store.Claim{{Cell: c[0], Cost: 1, AtMost: 9}}
	for _, bad := range []store.Claims{
		{Number: 1, Claims: good}, {Stream: 1, Claims: good}, {Stream: 1, Number: -1, Claims: good},
	} {
		r := h.Claim(h.Context(), bad)
		if err := r.Totals[0].Err; err == nil || errors.Is(err, store.ErrMaybeApplied) || r.Added[0] {
			h.Errorf("stream %d, number %d: %+v", bad.Stream, bad.Number, r)
		}
	}
	h.wantRegions(c, 0)
}

func testClaimForeign(h *originTest) {
	c := h.cells(1)
	h.apply(store.Foreign{Cell: c[0], Count: 8})
	for _, cost := range []int64{1, 10} {
		r := h.Claim(h.Context(), h.stream.claims(store.Claim{Cell: c[0], Cost: cost, AtMost: 5}))
		if r.Totals[0].Foreign != 8 || r.Totals[0].Region != 1 {
			h.Errorf("a claim of %d: %+v", cost, r)
		}
	}
}

func testOriginClaimBesideSends(h *originTest) {
	const callers, calls = 4, 50
	c := h.cells(1)
	var wg sync.WaitGroup
	for range callers {
		s, costs := newOriginStream(), h.adds(c, 1)
		wg.Go(func() {
			for range calls {
				if _, err := h.Send(h.Context(), s.chunk(h, costs...)); err != nil {
					h.Errorf("send: %v", err)
				}
				r := h.Claim(h.Context(), s.claims(store.Claim{Cell: c[0], Cost: 1, AtMost: math.MaxInt64}))
				if !r.Added[0] {
					h.Errorf("claim: %+v", r)
				}
			}
		})
	}
	wg.Wait()
	h.wantRegions([]window.Cell{c[0]}, 2*callers*calls)
}
