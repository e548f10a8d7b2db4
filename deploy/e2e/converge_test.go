package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// A caller who uses 6 of 10 in eu and 4 in us is denied in both after convergence.
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

// B accepts 1 of 100; 0.6 s later A accepts 99; 250 ms later B is asked for 99 → denied. B has
// nothing to send meanwhile, so no reply tells it: it has to ask.
func TestAnIdleNodeAsksBeforeItGrantsMuch(t *testing.T) {
	servers.TurnSQL(t, testAnIdleNodeAsksBeforeItGrantsMuch)
}

func testAnIdleNodeAsksBeforeItGrantsMuch(t *testing.T) {
	s := start(t)
	a, b := s.Nodes[0], s.Nodes[1]
	for _, n := range []*stack.Node{a, b} {
		await.True(t, n.ID+" counts both nodes of its region", func() bool {
			res, err := http.Get(n.AdminURL() + "/metrics")
			if err != nil {
				return false
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			return err == nil && strings.Contains(string(text), "\nweir_region_nodes 2\n")
		})
	}
	for round := range 5 {
		user := fmt.Sprint("user_", round)
		if d := limit(t, b, limitRequest(user, 1, 100, time.Hour)); !d.Allowed {
			t.Fatalf("1 on B: %+v", d)
		}
		pause(t.Context(), 600*time.Millisecond)
		if d := limit(t, a, limitRequest(user, 99, 100, time.Hour)); !d.Allowed {
			t.Fatalf("99 on A: %+v", d)
		}
		pause(t.Context(), 250*time.Millisecond)
		if d := limit(t, b, limitRequest(user, 99, 100, time.Hour)); d.Allowed {
			t.Errorf("99 more on B are allowed: %+v", d)
		}
	}
}
