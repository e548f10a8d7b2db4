package rollout

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// deeper returns the i-th of all searches that visit a random part of the worlds, and so go deep. Later searches have
// larger fleets, more operators and more faults.
func deeper(i, statesMax int) search {
	more := min(i/8, 4)
	return search{
		left:      allowance{starts: 2 + more/2, orders: 1 + i%3 + more/2, faults: 1 + i%4 + more},
		statesMax: statesMax, nodes: 1 + i/4%3, width: max(4, statesMax*(1+i%4)/4_000),
		draw: rand.New(rand.NewPCG(uint64(i), 1)), oneApproves: i%2 == 0,
		inShares: i%3 == 2,
	}
}

// Searches that go deep: a few, or with WEIR_SOAK=10m as many as fit in ten minutes.
//
//weir:unraced
func TestExploreRolloutsSoak(t *testing.T) {
	began, long := time.Now(), soakTime()
	states, deepest, taken := 0, 0, map[kind]int{}
	i := 0
	for ; i < 4 || time.Since(began) < long; i++ {
		statesMax := 20_000
		if long == 0 {
			statesMax = 1_000
		}
		e := exploreOne(t, deeper(i, statesMax), taken)
		states, deepest = states+len(e.visits), max(deepest, e.depth)
	}
	t.Logf("%d searches, %d states, up to %d moves deep:%s", i, states, deepest, summary(taken))
}

// soakTime returns how long to search: the duration in WEIR_SOAK, five minutes if it is not a duration, and 0 without
// WEIR_SOAK.
func soakTime() time.Duration {
	text := os.Getenv("WEIR_SOAK")
	long, err := time.ParseDuration(text)
	if text != "" && err != nil {
		return 5 * time.Minute
	}
	return long
}
