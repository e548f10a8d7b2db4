package guard

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// spans returns a node with these figures a minute, before and in each part of the window.
func spans(id string, before, since fleet.Tally) WatchedNode {
	n := WatchedNode{ID: id, Window: make([]fleet.Span, watchBuckets)}
	n.Before.Add(60_000, before)
	for i := range n.Window {
		n.Window[i].Add(60_000, since)
	}
	return n
}

// breachIn judges a region whose nodes have full windows, at an error rate of 1 in a million per figure.
func breachIn(g plan.Guardrails, w *RegionWatch, nowMs int64, borne time.Duration) string {
	w.Begun, w.Parts = watchBuckets, make([]WatchedPart, watchBuckets)
	for i := range w.Nodes {
		for part, s := range w.Nodes[i].Window {
			if w.Nodes[i].Gone {
				continue
			}
			at := &w.Parts[watchBuckets-len(w.Nodes[i].Window)+part]
			at.Did.Add(s[0], fleet.Tally(s[1:]))
			at.Nodes++
		}
	}
	return bounds{g}.breachOf(w, nowMs, 0, borne, 0, math.Log(1e6))
}

// each adds to a figure in every part of the window.
func (n *WatchedNode) each(figure int, more int64) {
	for i := range n.Window {
		n.Window[i][1+figure] += more
	}
}

// A node may do as badly as its region did before, in any figure, and beyond that as much as a guardrail allows.
func TestANodeIsHeldAgainstItsRegion(t *testing.T) {
	busy := tally(40, 10_000, 0, 60*9000, 0)
	busy[fleet.TallyDegraded] = 8000
	w := RegionWatch{Region: "eu", Nodes: []WatchedNode{spans("busy", busy, fleet.Tally{}), spans("idle", tally(0, 10_000, 0, 0, 0), busy)}}
	slow, quick := 90_000.0, 10.0
	w.ConvergenceMs, w.LatencyUs = &slow, &slow
	w.Nodes[1].ConvergenceMs, w.Nodes[1].LatencyUs = &slow, &slow
	g := plan.DefaultGuardrails()
	if why := breachIn(g, &w, 0, 0); why != "" {
		t.Errorf("as its region did: %s", why)
	}
	for says, spoil := range map[string]func(*RegionWatch, *WatchedNode){
		"of relays and se": func(_ *RegionWatch, n *WatchedNode) { n.each(fleet.TallyErrors, 80) },
		"without the orig": func(_ *RegionWatch, n *WatchedNode) { n.each(fleet.TallyDegraded, 1900) },
		"convergence":      func(w *RegionWatch, _ *WatchedNode) { w.ConvergenceMs = &quick },
		"latency":          func(w *RegionWatch, _ *WatchedNode) { w.LatencyUs = &quick },
	} {
		bad := w
		bad.Nodes = []WatchedNode{spans("busy", busy, fleet.Tally{}), spans("idle", tally(0, 10_000, 0, 0, 0), busy)}
		bad.Nodes[1].ConvergenceMs, bad.Nodes[1].LatencyUs = &slow, &slow
		spoil(&bad, &bad.Nodes[1])
		if why := breachIn(g, &bad, 1, 0); !strings.Contains(why, says) || !strings.Contains(why, "of node idle in region eu") {
			t.Errorf("%s: %q", says, why)
		}
	}
	w.Nodes[1].each(fleet.TallyRows, 60*(27_900-9000))
	if why := breachIn(g, &w, 0, 0); !strings.Contains(why, "MySQL rows of a region's relays a second: 27900, more than 27000") {
		t.Errorf("rows: %q", why)
	}
}

// Shares of a node need a thousand decisions, and a few errors are not a rate.
func TestWhatANodeIsJudgedFrom(t *testing.T) {
	g := plan.DefaultGuardrails()
	before := tally(0, 10_000, 0, 0, 0)
	w := RegionWatch{Region: "eu", Nodes: []WatchedNode{spans("a", before, tally(0, 199, 199, 0, 0)), spans("b", before, tally(0, 90_000, 0, 0, 0))}}
	if why := breachIn(g, &w, 0, 0); why != "" {
		t.Errorf("of 995 decisions: %s", why)
	}
	w.Nodes[0] = spans("a", before, tally(0, 200, 200, 0, 0))
	if why := breachIn(g, &w, 0, 0); !strings.Contains(why, "of node a") {
		t.Errorf("of 1,000 decisions: %q", why)
	}
	for errors, want := range map[int64]bool{7: false, 30: true} { // a minute; the guardrail allows 6
		j := judgeOf(plan.StagePlan{BakeMs: 3_600_000})
		j.Watch = []RegionWatch{
			{Region: "eu", Begun: 5, Nodes: []WatchedNode{spans("a", fleet.Tally{}, tally(errors, 0, 0, 0, 0))}},
		}
		if b := j.Broken(); (b != nil) != want || want && !strings.Contains(b.Why, "a node and minute: 30, more than 6") {
			t.Errorf("%d errors a minute: %+v", errors, b)
		}
	}
}

// A node that is gone counts as lost, and its figures do not count in its region.
func TestANodeThatIsGoneAddsNothing(t *testing.T) {
	gone := spans("gone", fleet.Tally{}, tally(400, 10_000, 0, 0, 0))
	gone.Gone = true
	w := RegionWatch{Region: "eu", Nodes: []WatchedNode{spans("here", fleet.Tally{}, tally(4, 1000, 500, 0, 0)), gone}}
	if r := w.rates(0); r.Nodes != 1 || r.NodesLost != 1 || *r.ErrorsPerMinute != 4 || *r.DeniedShare != 0.5 {
		t.Errorf("%+v, %v errors a minute, %v denied", r, *r.ErrorsPerMinute, *r.DeniedShare)
	}
}

// Restarts count for an hour and for live nodes, unless the guardrail is off.
func TestRestartsThatCount(t *testing.T) {
	hour := restartsWithin.Milliseconds()
	many := make([]int64, restartsKept)
	for i := range many {
		many[i] = 2 * hour
	}
	for _, c := range []struct {
		node WatchedNode
		most int
		want bool
	}{
		{WatchedNode{Restarts: []int64{2 * hour, 2 * hour}}, 1, true},
		{WatchedNode{Restarts: []int64{hour - 1, 2 * hour}}, 1, false},
		{WatchedNode{Restarts: []int64{2 * hour, 2 * hour}, Gone: true}, 1, false},
		{WatchedNode{Restarts: many}, plan.RestartsPerHourMax - 1, true},
		{WatchedNode{Restarts: many}, plan.RestartsPerHourMax, false},
	} {
		g := plan.DefaultGuardrails()
		g.NodesLostShare, g.RestartsPerHour = 1, c.most
		w := RegionWatch{Region: "eu", Nodes: []WatchedNode{c.node, {ID: "other"}}}
		if why := breachIn(g, &w, 2*hour, 0); (why != "") != c.want {
			t.Errorf("%+v, at most %d: %q", c.node, c.most, why)
		}
	}
}

// The share of lost nodes is an exact share of the nodes from before the stage.
func TestNodesThatCameDoNotMakeUpForThoseLost(t *testing.T) {
	g := plan.DefaultGuardrails()
	g.NodesLostShare = 0.1
	for were, want := range map[int]bool{9: true, 10: false} {
		w := RegionWatch{Region: "eu", Nodes: []WatchedNode{{ID: "lost", Gone: true}}}
		for i := range were - 1 {
			w.Nodes = append(w.Nodes, WatchedNode{ID: fmt.Sprint(i)}, WatchedNode{ID: fmt.Sprint("new", i), Came: true})
		}
		if why := (bounds{g}).nodesLost(&w, 0); (why != "") != want {
			t.Errorf("1 of %d: %q", were, why)
		}
	}
}

// "More than a share": losing exactly the share is not a breach, despite floating-point rounding.
func TestTheShareOfLostNodesIsExact(t *testing.T) {
	for were := 1; were <= 200; were++ {
		for percent := range 101 {
			g := plan.Guardrails{NodesLostShare: float64(percent) / 100}
			most := percent * were / 100 // the whole nodes of the share
			for _, gone := range []int{most, most + 1} {
				if gone == 0 || gone >= were {
					continue
				}
				w := RegionWatch{Region: "eu", Nodes: make([]WatchedNode, were)}
				for i := range gone {
					w.Nodes[i].Gone = true
				}
				if broken := (bounds{g}).nodesLost(&w, 0) != ""; broken != (gone > most) {
					t.Fatalf("%d of %d with a share of %d %%: broken %t", gone, were, percent, broken)
				}
			}
		}
	}
}

// If several guardrails are broken, the reason names the guardrail that is exceeded by the largest factor, in any
// order.
func TestTheGuardrailThatIsBrokenMost(t *testing.T) {
	g := plan.DefaultGuardrails()
	figures := func(errors, denied, dropped int64) fleet.Tally {
		return tally(errors, 10_000, denied, 0, dropped)
	}
	for says, c := range map[string]struct {
		since     fleet.Tally
		latencyUs float64
	}{
		"errors of relay": {figures(60, 5000, 0), 2000},
		"latency":         {figures(24, 5000, 0), 9000},
		"denied":          {figures(24, 9999, 0), 2000},
		"dropped":         {figures(9999, 0, 1), 0},
	} {
		n := spans("a", figures(0, 0, 0), c.since)
		n.LatencyUs = &c.latencyUs
		w := RegionWatch{Region: "eu", Nodes: []WatchedNode{n}}
		if why := breachIn(g, &w, 1, 0); !strings.Contains(why, says) {
			t.Errorf("%q, want %q", why, says)
		}
	}
}

// "Up or down": if callers are no longer denied, they have lost their limits.
func TestAShareOfDenialsThatFallsIsABreach(t *testing.T) {
	g := plan.DefaultGuardrails()
	for now, broken := range map[int64]bool{0: true, 1500: true, 3750: false, 5000: false, 6250: false, 8500: true} {
		w := RegionWatch{Region: "eu", Nodes: []WatchedNode{
			spans("a", tally(0, 10_000, 5000, 0, 0), tally(0, 10_000, now, 0, 0))}}
		if why := breachIn(g, &w, 0, 0); (why != "") != broken {
			t.Errorf("%v of 10,000 after 5,000: %q", now, why)
		}
		off := g
		off.DeniedShareShift = 1
		if why := breachIn(off, &w, 0, 0); why != "" {
			t.Errorf("turned off: %q", why)
		}
	}
}

// Without a baseline a share is not judged, because there is nothing to compare it with.
func TestAShareWithoutABaselineIsNotJudged(t *testing.T) {
	w := RegionWatch{Region: "eu", Nodes: []WatchedNode{{ID: "a", Came: true}}}
	w.Nodes[0].Window = spans("a", fleet.Tally{}, tally(0, 10_000, 9000, 0, 0)).Window
	if why := breachIn(plan.DefaultGuardrails(), &w, 0, 0); why != "" {
		t.Error(why)
	}
}

// A share of newly denied decisions breaks a bound below it, except the largest bound.
func TestTheBoundsOfTheNewlyDeniedShare(t *testing.T) {
	for most, breaks := range map[float64]bool{0: true, 0.5: true, 1: false} {
		g := plan.DefaultGuardrails()
		g.LimitsGuardrails = plan.DefaultLimitsGuardrails()
		g.NewlyDeniedShare = &most
		w := RegionWatch{Region: "eu", Nodes: []WatchedNode{spans("a", fleet.Tally{},
			fleet.Tally{fleet.TallyDecisions: 1000, fleet.TallyJudged: 1000, fleet.TallyNewlyDenied: 900})}}
		if why := breachIn(g, &w, 0, 0); (why != "") != breaks {
			t.Errorf("a share of 0.9 with a bound of %v: %q", most, why)
		}
	}
}
