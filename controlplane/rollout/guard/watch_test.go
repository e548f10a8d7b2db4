package guard

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// The time between two heartbeats is the shorter by both clocks, so a step of either clock does not lengthen it.
func TestTheTimeBetweenHeartbeats(t *testing.T) {
	const at = int64(1_000_000)
	for says, c := range map[string]struct{ seen, sent, want int64 }{
		"both agree":                           {5000, 5000, 5000},
		"the same heartbeat":                   {0, 0, 0},
		"the database's clock jumps ahead":     {3_605_000, 5000, 5000},
		"the database's clock steps back":      {-595_000, 5000, 5000},
		"the node's clock jumps ahead":         {5000, 3_605_000, 5000},
		"the node's clock steps back":          {5000, -595_000, 5000},
		"the node's clock stands":              {5000, 0, 5000},
		"an older heartbeat, of a late answer": {-5000, -5000, 0},
	} {
		n := WatchedNode{SeenMs: at, SentMs: at, Totals: tally(10, 0, 0, 0, 0)}
		n.observe(fleet.NodeFigures{SeenMs: at + c.seen, SentMs: at + c.sent, Totals: tally(20, 0, 0, 0, 0)}, false)
		if did := n.did(); did[0] != c.want || (did.Of(fleet.TallyErrors) == 10) != (c.want > 0) {
			t.Errorf("%s: %v, want %d ms", says, did, c.want)
		}
	}
}

// Another weir-control continues the rollout, and its clock is behind: the window does not grow longer.
func TestTheProcessClockStepsBack(t *testing.T) {
	w := RegionWatch{Region: "eu", BucketMs: controltest.Day.UnixMilli(), Nodes: []WatchedNode{{ID: "a", Window: []fleet.Span{{}}}}}
	j := judgeOf(plan.StagePlan{BakeMs: 5000, Scope: fleet.Scope{Rest: true}})
	j.Watch = []RegionWatch{w}
	for s := range int64(20) {
		at := controltest.Day.UnixMilli() - 600_000 + s*1000
		j.NowMs = at
		j.Observe(fleet.Look{Nodes: []fleet.NodeFigures{{ID: "a", Region: "eu", SeenMs: at, SentMs: at, Totals: tally(s, 0, 0, 0, 0)}}})
	}
	if window := j.Watch[0].Nodes[0].Window; len(window) != watchBuckets {
		t.Errorf("%d buckets: %v", len(window), window)
	}
}

// A process that has restarted counts from 0, even if it has counted further than its predecessor. Restarts during the
// baseline do not count. Of later restarts only as many are stored as a guardrail can need.
func TestWhatIsARestart(t *testing.T) {
	n := WatchedNode{StartedMs: 1, SentMs: 1000, SeenMs: 1000, Totals: tally(1, 0, 0, 0, 0)}
	n.observe(fleet.NodeFigures{StartedMs: 1500, SentMs: 2000, SeenMs: 2000, Totals: tally(5, 0, 0, 0, 0)}, true)
	if n.Before.Of(fleet.TallyErrors) != 5 || n.Before[0] != 500 || len(n.Restarts) != 0 {
		t.Errorf("while measuring: %v, restarts %v", n.Before, n.Restarts)
	}
	last := int64(0)
	for i := range int64(3 * restartsKept) {
		last = 3000 + 1000*i
		n.observe(fleet.NodeFigures{StartedMs: last - 500, SentMs: last, SeenMs: last, Totals: tally(6+i, 0, 0, 0, 0)}, false)
		if i == 0 && (n.did().Of(fleet.TallyErrors) != 6 || n.did()[0] != 500) {
			t.Errorf("since: %v", n.did())
		}
	}
	if len(n.Restarts) != restartsKept || n.Restarts[restartsKept-1] != last {
		t.Errorf("%d restarts are kept, the last of %d: %v", len(n.Restarts), last, n.Restarts)
	}
}

// A baseline does not begin if a stage cannot be watched in full: the fleet has more nodes than a look returns, or the
// plan names a region without a node.
func TestWhatCannotBeWatchedIsNotBegun(t *testing.T) {
	j := judgeOf(plan.StagePlan{Scope: fleet.Scope{Regions: []string{"eu"}}, Named: true})
	for says, look := range map[string]fleet.Look{
		"the fleet has more than":                                    {Truncated: true, Nodes: []fleet.NodeFigures{{ID: "eu1", Region: "eu"}}},
		"region eu is dark: it has no live node, and 0 silent nodes": {Nodes: []fleet.NodeFigures{{ID: "us1", Region: "us"}}},
	} {
		j.Look = look
		if why := j.Unready(); !strings.Contains(why, says) {
			t.Errorf("%q, want %q", why, says)
		}
	}
	j.Plan.Guardrails.NodesLostShare = 1
	j.Look = fleet.Look{Truncated: true}
	if why := j.Unready(); !strings.Contains(why, "the fleet has more than") {
		t.Errorf("a plan that bears the loss of all nodes: %q", why)
	}
}
