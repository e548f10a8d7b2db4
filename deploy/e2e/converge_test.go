package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/servers"
)

// A limit of 100 is used up in eu. Two seconds later us admits nothing, neither for a window of an hour nor for a
// window of 5 s.
func TestWhatOneRegionUsesUpAnotherDenies(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testWhatOneRegionUsesUpAnotherDenies)
}

func testWhatOneRegionUsesUpAnotherDenies(t *testing.T) {
	s := startShared(t)
	for round := range 3 {
		for !spendAndMove(t, s, fmt.Sprint("hour_", round), roomyWindow()) {
			continue
		}
		for !spendAndMove(t, s, fmt.Sprint("seconds_", round), 5*time.Second) {
			continue
		}
	}
}

// spendAndMove makes a caller use a limit up in eu at the start of a window, and send requests to us 2 s later. It
// returns false if the window ended before that, as may happen on a busy machine.
func spendAndMove(t *testing.T, s *stack.Stack, user string, window time.Duration) bool {
	t.Helper()
	const most = 100
	if window < time.Minute {
		pause(t.Context(), window-time.Duration(time.Now().UnixNano())%window)
	}
	var spent *weirv1.LimitResponse
	for i := range most {
		r := limit(t, s.Nodes[i%2], limitRequest(user, 1, most, window))
		if spent != nil && spent.ResetAtMs != r.ResetAtMs {
			return false
		}
		if spent = r; !r.Allowed {
			t.Fatalf("eu, request %d: %v", i, r)
		}
	}
	pause(t.Context(), 2*time.Second)
	for i := range most {
		r := limit(t, s.Nodes[2+i%2], limitRequest(user, 1, most, window))
		if r.ResetAtMs != spent.ResetAtMs {
			return false
		}
		if r.Allowed && r.Source != weirv1.Source_SOURCE_DEGRADED { // a busy machine may miss the read timeout
			t.Errorf("us, request %d of a window of %v: %v", i, window, r)
		}
	}
	return true
}

// A caller who uses 6 of 10 in eu and 4 in us is denied in both after convergence.
func TestACallerOfTwoRegionsIsDeniedInBoth(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testACallerOfTwoRegionsIsDeniedInBoth)
}

func testACallerOfTwoRegionsIsDeniedInBoth(t *testing.T) {
	s := startShared(t)
	eu, us, window := s.Nodes[:2], s.Nodes[2:], roomyWindow()
	for i := range 6 {
		if r := limit(t, eu[i%2], limitRequest("user_42", 1, 10, window)); !r.Allowed {
			t.Fatalf("eu, request %d: %v", i, r)
		}
	}
	for i := range 4 {
		if r := limit(t, us[i%2], limitRequest("user_42", 1, 10, window)); !r.Allowed {
			t.Fatalf("us, request %d: %v", i, r)
		}
	}
	for _, n := range s.Nodes {
		took := await.True(t, n.ID+" has heard of all ten", func() bool {
			return limit(t, n, limitRequest("user_42", 0, 10, window)).Current >= 10
		})
		if r := limit(t, n, limitRequest("user_42", 1, 10, window)); r.Allowed || r.Remaining != 0 || r.RetryAfterMs <= 0 {
			t.Errorf("%s: %v", n.ID, r)
		}
		t.Logf("%s knew after another %v", n.ID, took.Round(time.Millisecond))
	}
}

// B accepts 1 of 100. 0.6 s later A accepts 99. 250 ms later a request of 99 at B is denied. B has nothing to send
// meanwhile, so it receives no reply. It has to read from its origin, and does so from its first second on.
func TestAnIdleNodeAsksBeforeItGrantsMuch(t *testing.T) {
	servers.TurnSQL(t, testAnIdleNodeAsksBeforeItGrantsMuch)
}

func testAnIdleNodeAsksBeforeItGrantsMuch(t *testing.T) {
	s := startShared(t)
	a, b, window := s.Nodes[0], s.Nodes[1], roomyWindow()
	for round := range 5 {
		user := fmt.Sprint("idle_", round)
		if d := limit(t, b, limitRequest(user, 1, 100, window)); !d.Allowed {
			t.Fatalf("1 on B: %+v", d)
		}
		pause(t.Context(), 600*time.Millisecond)
		if d := limit(t, a, limitRequest(user, 99, 100, window)); !d.Allowed {
			t.Fatalf("99 on A: %+v", d)
		}
		pause(t.Context(), 250*time.Millisecond)
		if d := limit(t, b, limitRequest(user, 99, 100, window)); d.Allowed && d.Source != weirv1.Source_SOURCE_DEGRADED {
			t.Errorf("99 more on B are allowed: %+v", d)
		}
	}
}
