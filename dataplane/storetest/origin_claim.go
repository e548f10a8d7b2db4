package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// claim expects every claim to be answered without an error.
func claim(t reporter, o store.Origin, claims ...store.Claim) []store.Claimed {
	t.Helper()
	claimed := o.Claim(t.Context(), claims)
	if len(claimed) != len(claims) {
		t.Fatalf("claim %d costs: %d answers", len(claims), len(claimed))
	}
	for i, c := range claimed {
		if c.Err != nil {
			t.Fatalf("claim %d of %d from %v: %v", claims[i].Cost, claims[i].AtMost, claims[i].Cell, c.Err)
		}
	}
	return claimed
}

// notClaimed expects an error that says that the cost was certainly not added.
func notClaimed(t *testing.T, what string, c store.Claimed) {
	t.Helper()
	if c.Err == nil || errors.Is(c.Err, store.ErrMaybeApplied) || c.Total != 0 || c.Added {
		t.Errorf("%s: %+v; want a certain failure", what, c)
	}
}

func wantClaimed(t *testing.T, got []store.Claimed, want ...store.Claimed) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("claims are answered %+v, want %+v", got, want)
	}
}

func yes(total int64) store.Claimed { return store.Claimed{Total: total, Added: true} }
func no(total int64) store.Claimed  { return store.Claimed{Total: total} }

func testClaimTotals(t *testing.T, o store.Origin) {
	c := liveCells(3)
	wantClaimed(t, claim(t, o, store.Claim{Cell: c[0], Cost: 4, AtMost: 10}), yes(4))
	add(t, o, store.Add{Cell: c[0], Cost: 2})
	// "Claims of one cell are decided in their order", each on what those before left.
	wantClaimed(t, claim(t, o,
		store.Claim{Cell: c[0], Cost: 5, AtMost: 10},
		store.Claim{Cell: c[1], Cost: 5, AtMost: 5},
		store.Claim{Cell: c[0], Cost: 3, AtMost: 10},
		store.Claim{Cell: c[0], Cost: 2, AtMost: 10},
		store.Claim{Cell: c[0], Cost: 1, AtMost: 10},
		store.Claim{Cell: c[2], Cost: 6, AtMost: 5},
	), no(6), yes(5), yes(9), no(9), yes(10), no(0))
	// A total may be past AtMost already: others had another limit.
	wantClaimed(t, claim(t, o, store.Claim{Cell: c[0], Cost: 1, AtMost: 3}, store.Claim{Cell: c[0], Cost: 1, AtMost: 11}), no(10), yes(11))
	wantClaimed(t, claim(t, o))
	wantTotals(t, o, c, 11, 5, 0)
}

func testClaimRefusedChangesNothing(t *testing.T, o store.Origin) {
	c := liveCells(2)
	add(t, o, store.Add{Cell: c[0], Cost: 7})
	for _, atMost := range []int64{math.MinInt64, -1, 0, 2} {
		wantClaimed(t, claim(t, o, store.Claim{Cell: c[0], Cost: 3, AtMost: atMost}, store.Claim{Cell: c[1], Cost: 3, AtMost: atMost}), no(7), no(0))
	}
	wantTotals(t, o, c, 7, 0)
	wantClaimed(t, claim(t, o, store.Claim{Cell: c[1], Cost: 3, AtMost: 3}), yes(3))
}

func testClaimNotPositive(t *testing.T, o store.Origin) {
	c := liveCells(2)
	add(t, o, store.Add{Cell: c[0], Cost: 7})
	for i, cost := range []int64{0, -1, math.MinInt64} {
		got := o.Claim(t.Context(), []store.Claim{{Cell: c[0], Cost: cost, AtMost: 9}, {Cell: c[1], Cost: 1, AtMost: 9}})
		if len(got) != 2 {
			t.Fatalf("%d answers to 2 claims", len(got))
		}
		notClaimed(t, fmt.Sprint("cost ", cost), got[0])
		wantClaimed(t, got[1:], yes(int64(i+1)))
	}
	wantTotals(t, o, c, 7, 3)
}

// Neighbours that a float64 cannot tell apart, and sums that no int64 holds.
func testClaimBig(t *testing.T, o store.Origin) {
	const big = 1 << 60
	c := liveCells(3)
	raise(t, o, store.Add{Cell: c[0], Cost: big}, store.Add{Cell: c[1], Cost: math.MaxInt64 - 5}, store.Add{Cell: c[2], Cost: window.LimitMax})
	wantClaimed(t, claim(t, o,
		store.Claim{Cell: c[0], Cost: 2, AtMost: big + 1},
		store.Claim{Cell: c[0], Cost: 1, AtMost: big + 1},
		store.Claim{Cell: c[0], Cost: 1, AtMost: big + 1},
		store.Claim{Cell: c[1], Cost: 6, AtMost: math.MaxInt64},
		store.Claim{Cell: c[1], Cost: math.MaxInt64, AtMost: math.MaxInt64},
		store.Claim{Cell: c[1], Cost: 5, AtMost: math.MaxInt64},
		store.Claim{Cell: c[2], Cost: window.LimitMax, AtMost: 2 * window.LimitMax},
		store.Claim{Cell: c[2], Cost: 1, AtMost: 2 * window.LimitMax},
	), no(big), yes(big+1), no(big+1), no(math.MaxInt64-5), no(math.MaxInt64-5), yes(math.MaxInt64), yes(2*window.LimitMax), no(2*window.LimitMax))
	wantTotals(t, o, c, big+1, math.MaxInt64, 2*window.LimitMax)
}

func testClaimMany(t *testing.T, o store.Origin) {
	cells := liveCells(1700)
	var claims []store.Claim
	var answers []store.Claimed
	var totals []int64
	for i, c := range cells {
		claims = append(claims, store.Claim{Cell: c, Cost: int64(i + 1), AtMost: 1000})
		if i < 1000 {
			answers, totals = append(answers, yes(int64(i+1))), append(totals, int64(i+1))
		} else {
			answers, totals = append(answers, no(0)), append(totals, 0)
		}
	}
	if got := claim(t, o, claims...); !slices.Equal(got, answers) {
		t.Errorf("answers are out of order or wrong")
	}
	wantTotals(t, o, cells, totals...)
}

// Whatever the costs and the limit: the total is the sum of what was added, is never
// past AtMost, and leaves no room for what was refused.
func testClaimConcurrently(t *testing.T, o store.Origin) {
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		atMost := rapid.Int64Range(0, 60).Draw(rt, "at most")
		callers := rapid.SliceOfN(rapid.SliceOfN(rapid.Int64Range(1, 9), 1, 8), 2, 8).Draw(rt, "costs of each caller")
		cell := liveCell(freshWorkspace(), fmt.Sprint("round-", round))

		var mu sync.Mutex
		added, leastRefused := int64(0), int64(math.MaxInt64)
		var problems []string
		var wg sync.WaitGroup
		for _, costs := range callers {
			wg.Go(func() {
				for _, cost := range costs {
					got := o.Claim(t.Context(), []store.Claim{{Cell: cell, Cost: cost, AtMost: atMost}})[0]
					mu.Lock()
					if got.Err != nil || got.Total > atMost || !got.Added && got.Total+cost <= atMost {
						problems = append(problems, fmt.Sprintf("cost %d: %+v", cost, got))
					}
					if got.Added {
						added += cost
					} else {
						leastRefused = min(leastRefused, cost)
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		total := read(rt, o, cell)[0]
		if len(problems) > 0 || total != added || total > atMost || leastRefused <= atMost-total {
			rt.Fatalf("at most %d: the total is %d, %d were added, %d was refused; %v", atMost, total, added, leastRefused, problems)
		}
	})
}

// Claims race with increments: each is whole.
func testClaimBesideAdds(t *testing.T, o store.Origin) {
	const callers, calls = 4, 100
	c := liveCell("w", "x")
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range calls {
				if a := o.Add(t.Context(), []store.Add{{Cell: c, Cost: 1}})[0]; a.Err != nil {
					t.Errorf("add: %v", a.Err)
				}
				if a := o.Claim(t.Context(), []store.Claim{{Cell: c, Cost: 1, AtMost: math.MaxInt64}})[0]; a.Err != nil || !a.Added {
					t.Errorf("claim: %+v", a)
				}
			}
		})
	}
	wg.Wait()
	wantTotals(t, o, []window.Cell{c}, 2*callers*calls)
}

// "0 <= n < Shards(), always the same": whoever asks, and wherever the key lies.
func testShards(t *testing.T, o store.Origin) {
	add(t, o, store.Add{Cell: liveCells(1)[0], Cost: 1})
	testShardsOf(t, o)
}

func testShardsOf(t *testing.T, o interface {
	Shards() int
	ShardOf(*window.Key) int
}) {
	shards := o.Shards()
	if shards < 1 {
		t.Fatalf("%d shards", shards)
	}
	cells := append(liveCells(1000), lookalikeCells("w")...)
	cells = append(cells, longestCells("w")...)
	first := make([]int, len(cells))
	for i := range cells {
		first[i] = o.ShardOf(&cells[i].Key)
		if first[i] < 0 || first[i] >= shards {
			t.Fatalf("%v is in shard %d of %d", cells[i], first[i], shards)
		}
	}
	for i, c := range slices.Clone(cells) {
		c.Sequence++
		if got := o.ShardOf(&c.Key); got != first[i] {
			t.Fatalf("%v was in shard %d and is in shard %d", c, first[i], got)
		}
	}
	if got := o.Shards(); got != shards {
		t.Errorf("%d shards have become %d", shards, got)
	}
}
