package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// "A caller who uses 6 of 10 in eu and 4 in us is denied in both after convergence."
func TestACallerOfTwoRegionsIsDeniedInBoth(t *testing.T) {
	servers.TurnSQL(t, testACallerOfTwoRegionsIsDeniedInBoth)
}

func testACallerOfTwoRegionsIsDeniedInBoth(t *testing.T) {
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
		took := await.True(t, n.ID+" has heard of all ten", func() bool {
			return limit(t, n, limitRequest("user_42", 0, 10, time.Hour)).Current >= 10
		})
		if r := limit(t, n, limitRequest("user_42", 1, 10, time.Hour)); r.Allowed || r.Remaining != 0 || r.RetryAfterMs <= 0 {
			t.Errorf("%s: %v", n.ID, r)
		}
		t.Logf("%s knew after another %v", n.ID, took.Round(time.Millisecond))
	}
}

// Nodes of one region learn of each other's cost through its Redis, whichever of them has
// something to send. TestNodesOfARegionAgreeWithinTwoTicks proves how soon, in virtual time.
func TestNodesOfARegionAgree(t *testing.T) { servers.TurnSQL(t, testNodesOfARegionAgree) }

func testNodesOfARegionAgree(t *testing.T) {
	s := start(t)
	a, b := s.Nodes[0], s.Nodes[1]
	for round := range 5 {
		user := fmt.Sprint("user_", round)
		limit(t, a, limitRequest(user, 7, 100, time.Hour))
		limit(t, b, limitRequest(user, 5, 100, time.Hour))
		await.True(t, "both know of 12", func() bool {
			return limit(t, a, limitRequest(user, 0, 100, time.Hour)).Current == 12 &&
				limit(t, b, limitRequest(user, 0, 100, time.Hour)).Current == 12
		})
	}
}
