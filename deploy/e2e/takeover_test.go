package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
)

// The node that relays eu is killed with SIGKILL under load. The other node of eu with MySQL takes over, no request
// fails, and us receives the cost that eu accepts afterwards. TestSoakRelayIsKilled of deploy/faults measures how soon.
func TestAnotherNodeTakesTheRelayOver(t *testing.T) {
	servers.TurnSQL(t, testAnotherNodeTakesTheRelayOver)
}

func testAnotherNodeTakesTheRelayOver(t *testing.T) {
	s := start(t)
	var killed *stack.Node
	await.True(t, "a node relays eu", func() bool {
		killed = s.Relay(t.Context(), "eu")
		return killed != nil
	})
	l := startLoad(t, s, "takeover_")
	pause(t.Context(), 700*time.Millisecond)
	if err := killed.Kill(); err != nil {
		t.Fatal(err)
	}
	var next *stack.Node
	took := await.True(t, "another node relays eu", func() bool {
		next = s.Relay(t.Context(), "eu")
		return next != nil
	})
	t.Logf("%s took over from %s after %v", next.ID, killed.ID, took.Round(time.Millisecond))
	sharesCounts(t, next, s.Nodes[3])
	sharesCounts(t, s.Nodes[3], next)
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := killed.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	l.check(t)
	originsHold(t, s, l, "takeover_", fault{lost: regionTick("eu"), doubled: retried})
}
