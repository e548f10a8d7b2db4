package limitwords

import (
	"strconv"
	"testing"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// A sentence names its basis, and claims nothing about keys outside of it.
func TestSay(t *testing.T) {
	key := func(id string) *controlv1.LimitKey {
		return &controlv1.LimitKey{Workspace: "acme", Namespace: "api", Identifier: id, Cost: 131, Limit: 100}
	}
	for want, e := range map[string]*controlv1.EstimateLimitsResponse{
		"the effect of this change is unknown: no live node has reported its busiest keys": {},
		"the effect of this change is unknown: 4 live nodes reported no busy key":          {Nodes: 4},
		"of the 37 busiest keys that 1 node reported, 0 under this override":               {KeysReported: 37, Nodes: 1},
		"of the 1 busiest key that 4 nodes reported, 2 under this override " +
			"(2 of them unknown: another window, or the caller's limit)": {KeysReported: 1, Nodes: 4, KeysMatched: 2, KeysUnknown: 2},
		"of a part of the 37 busiest keys that 4 nodes reported, 2 under this override; " +
			"in the window under way it would have denied 0.0 % of their cost, of 0 keys": {KeysReported: 37, Nodes: 4, Truncated: true,
			KeysMatched: 2, Cost: 5},
		"of the 37 busiest keys that 4 nodes reported, 12 under this override " +
			"(1 of them unknown: another window, or the caller's limit); " +
			"in the window under way it would have denied 3.1 % of their cost, of 4 keys: " +
			"acme/api/a has 131 of 100, acme/api/b has 131 of 100, acme/api/c has 131 of 100": {KeysReported: 37, Nodes: 4, KeysMatched: 12,
			KeysUnknown: 1, Cost: 1000, CostDenied: 31, KeysDenied: 4,
			Worst: []*controlv1.LimitKey{key("a"), key("b"), key("c"), key("d")}},
	} {
		if got := Say(e, 1, func(n int64) string { return strconv.FormatInt(n, 10) }); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
	many := Say(&controlv1.EstimateLimitsResponse{KeysReported: 3, Nodes: 1, KeysMatched: 1}, 2, func(int64) string { return "9" })
	if many != "of the 9 busiest keys that 1 node reported, 9 under these overrides; "+
		"in the window under way these would have denied 0.0 % of their cost, of 9 keys" {
		t.Error(many)
	}
}
