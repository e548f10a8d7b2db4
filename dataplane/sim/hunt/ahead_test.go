package hunt

import (
	"testing"
	"time"
)

// Histories in which an origin's clock is ahead for a while: one seed in six has such a history.
func TestAClockThatWasAheadSeedsHold(t *testing.T) {
	holds(t, func(seed uint64) Plan {
		for {
			if p := Draw(seed); p.Changes(SetClock) {
				return p
			}
			seed += 1_000_000
		}
	})
}

// A caller that spent a limit while the clock was ahead sends requests again when the clock reaches the cell that has
// the cost.
func TestNobodyIsDeniedForCostThatWasAhead(t *testing.T) {
	for _, ahead := range []time.Duration{20 * time.Second, 40 * time.Second, time.Minute} {
		p := kept(Key{Name: "k0", Limit: 100, Duration: 2 * time.Second})
		p.Fleet.Nodes, p.Fleet.Relays, p.Fleet.Late, p.Fleet.Ahead = []int{2}, []int{1}, []int{0}, []time.Duration{0}
		p.Steps = []Step{
			{At: time.Second, Do: SetClock, Delay: ahead, After: 5 * time.Second},
			{At: 3 * time.Second, Do: Ask, Cost: 1}, // the node's clock follows
			{At: 4 * time.Second, Do: Ask, Cost: 90},
			{At: 4*time.Second + ahead, Do: Ask, Node: 1, Cost: 90},
		}
		if r := mustHold(t, p); r.Decisions < 3 {
			t.Errorf("%d decisions", r.Decisions)
		}
	}
}
