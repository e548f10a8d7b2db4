package e2e

import (
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/shared/await"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/control/v1/controlv1connect"
	"github.com/weirhq/weir/shared/servers"
)

// "Let this customer back in": after a reset over the operators' API, a caller who is denied in both regions passes in
// both, and only as often as the limit allows.
func TestAResetLetsACallerBackIn(t *testing.T) {
	t.Parallel()
	servers.TurnSQL(t, testAResetLetsACallerBackIn)
}

func testAResetLetsACallerBackIn(t *testing.T) {
	s, window := start(t), roomyWindow()
	settings := controlv1connect.NewSettingsServiceClient(http.DefaultClient, s.API())
	fleet := controlv1connect.NewControlServiceClient(http.DefaultClient, s.API())
	spent := func(least float64) func() bool {
		return func() bool {
			for _, n := range s.Nodes {
				if limit(t, n, limitRequest("user_42", 0, 10, window)).Current < least {
					return false
				}
			}
			return true
		}
	}
	for _, n := range []int{0, 2} {
		if r := limit(t, s.Nodes[n], limitRequest("user_42", 5, 10, window)); !r.Allowed {
			t.Fatal(r)
		}
	}
	await.True(t, "all nodes know of all ten", spent(10))

	reset, err := settings.ResetKey(t.Context(), connect.NewRequest(&controlv1.ResetKeyRequest{
		Actor: "ann", Reason: "ticket 7", Workspace: "acme", Namespace: "api", Identifier: "user_42", LongestWindowMs: window.Milliseconds(),
	}))
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "all nodes say that they have the reset", func() bool {
		f, err := fleet.Fleet(t.Context(), connect.NewRequest(&controlv1.FleetRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		have := 0
		for _, n := range f.Msg.GetNodes() {
			if n.GetHealth().GetResetAtMs() >= reset.Msg.GetReset_().GetSetAtMs() {
				have++
			}
		}
		return have == len(s.Nodes)
	})
	for _, n := range s.Nodes {
		if r := limit(t, n, limitRequest("user_42", 0, 10, window)); r.Remaining != 10 {
			t.Errorf("%s has the reset, and says: %v", n.ID, r)
		}
	}
	for _, n := range []int{1, 3} {
		if r := limit(t, s.Nodes[n], limitRequest("user_42", 5, 10, window)); !r.Allowed {
			t.Errorf("%s: %v", s.Nodes[n].ID, r)
		}
	}
	await.True(t, "all nodes know of the ten since", spent(10))
	var audited int
	if err := database(t, s).QueryRowContext(t.Context(), "SELECT COUNT(*) FROM ratelimit_audit WHERE action = 'key.reset' AND actor = 'ann' AND reason = 'ticket 7'").Scan(&audited); err != nil || audited != 1 {
		t.Errorf("%d audit rows, %v", audited, err)
	}
}
