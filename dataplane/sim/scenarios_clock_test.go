package sim

import (
	"testing"
	"time"
)

// After the clock of a Redis was ahead and is corrected, no caller is locked out for more than two windows and a
// second. No caller is locked out when the clock reaches the windows of that time again.
//
//weir:unraced
func TestAClockThatWasAheadLocksNobodyOutLater(t *testing.T) {
	r := simulate(t, lookup(t, "clock-ahead"), Options{Seed: 1, Duration: 10 * time.Minute})
	most := map[string]float64{askAlways: 2*60 + 1, askAgain: 0}
	for _, g := range r.Groups {
		if g.LockedOutS > most[g.Name] || g.KeysAtLimit == 0 && g.Name == askAgain {
			t.Errorf("%q: locked out for %v s, want %v at most; %d keys at their limits", g.Name, g.LockedOutS, most[g.Name],
				g.KeysAtLimit)
		}
	}
	if len(r.Groups) != len(most) || r.DoubledCost != 0 {
		t.Errorf("%d groups, cost doubled %d", len(r.Groups), r.DoubledCost)
	}
}
