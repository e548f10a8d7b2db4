package e2e

import (
	"fmt"
	"testing"
	"time"
)

// "A caller who uses 6 of 10 in eu and 4 in us is denied in both after convergence."
func TestACallerOfTwoRegionsIsDeniedInBoth(t *testing.T) {
	s := start(t)
	eu, us := s.Nodes[:2], s.Nodes[2:]
	for i := range 6 {
		if r := limit(t, eu[i%2], limitRequest("user_42", 1, 10, time.Hour)); !r.Allowed {
			t.Fatalf("eu, request %d: %v", i, r)
		}
	}
	for i := range 4 {
		if r := limit(t, us[i%2], limitRequest("user_42", 1, 10, time.Hour)); !r.Allowed {
			t.Fatalf("us, request %d: %v", i, r)
		}
	}
	for _, n := range s.Nodes {
		took := eventually(t, 20*time.Second, n.ID+" has heard of all ten", func() bool {
			return limit(t, n, limitRequest("user_42", 0, 10, time.Hour)).Current >= 10
		})
		if r := limit(t, n, limitRequest("user_42", 1, 10, time.Hour)); r.Allowed || r.Remaining != 0 || r.RetryAfterMs <= 0 {
			t.Errorf("%s: %v", n.ID, r)
		}
		t.Logf("%s knew after another %v", n.ID, took.Round(time.Millisecond))
	}
}

// "Nodes of one region agree within two replay ticks": two ticks of 100 ms, each up to
// a fifth late, and the round trips.
func TestNodesOfARegionAgreeWithinTwoTicks(t *testing.T) {
	s := start(t)
	a, b := s.Nodes[0], s.Nodes[1]
	const ticks = 2*120*time.Millisecond + 50*time.Millisecond
	for round := range 5 {
		user := fmt.Sprint("user_", round)
		limit(t, a, limitRequest(user, 1, 100, time.Hour)) // both are warm
		limit(t, b, limitRequest(user, 1, 100, time.Hour))
		pause(t.Context(), 300*time.Millisecond)
		began := time.Now()
		limit(t, a, limitRequest(user, 7, 100, time.Hour))
		limit(t, b, limitRequest(user, 5, 100, time.Hour))
		// The one that sends second hears the other's cost in the answer; within a second
		// tick, when it has something to send again, so does the first.
		pause(t.Context(), 130*time.Millisecond)
		limit(t, a, limitRequest(user, 1, 100, time.Hour))
		limit(t, b, limitRequest(user, 1, 100, time.Hour))
		eventually(t, ticks-time.Since(began)+100*time.Millisecond, "both know of 16", func() bool {
			return limit(t, a, limitRequest(user, 0, 100, time.Hour)).Current >= 15 &&
				limit(t, b, limitRequest(user, 0, 100, time.Hour)).Current >= 15
		})
	}
}
