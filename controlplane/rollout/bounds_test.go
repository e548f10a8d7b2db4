package rollout

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/heartbeat"
)

// Each total of a heartbeat counts in its figure.
func TestEveryTotalCounts(t *testing.T) {
	h := heartbeat.Health{
		AllowedTotal: 1, DeniedTotal: 10, ShadowedTotal: 100, DegradedTotal: 7, DroppedCost: 8,
		SettingsErrors: 100, Relay: &heartbeat.Relay{Errors: 11, Rows: 12, Shards: 2, Held: []int{1}},
	}
	want := fleet.Tally{fleet.TallyDecisions: 111, fleet.TallyDenied: 110, fleet.TallyDegraded: 7, fleet.TallyDropped: 8, fleet.TallyErrors: 111, fleet.TallyRows: 12}
	got := fleet.FiguresOf(fleet.Node{Heartbeat: heartbeat.Heartbeat{Health: h}})
	if got.Totals != want || got.Shards != 2 || !slices.Equal(got.Held, []int{1}) {
		t.Errorf("%+v, want %v", got, want)
	}
}

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
func breachIn(g Guardrails, w *RegionWatch, nowMs int64, borne time.Duration) string {
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
	return g.breachOf(w, nowMs, 0, borne, 0, math.Log(1e6))
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
	g := DefaultGuardrails()
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
	g := DefaultGuardrails()
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
		r := Rollout{Phase: Baking, Spec: spec(all), Stages: []StagePlan{{BakeMs: 3_600_000}}, Watch: []RegionWatch{
			{Region: "eu", Begun: 5, Nodes: []WatchedNode{spans("a", fleet.Tally{}, tally(errors, 0, 0, 0, 0))}},
		}}
		if b := of(&r, 0, fleet.Look{}).breachOfNodes(); (b != nil) != want || want && !strings.Contains(b.why, "a node and minute: 30, more than 6") {
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
		{WatchedNode{Restarts: many}, RestartsPerHourMax - 1, true},
		{WatchedNode{Restarts: many}, RestartsPerHourMax, false},
	} {
		g := DefaultGuardrails()
		g.NodesLostShare, g.RestartsPerHour = 1, c.most
		w := RegionWatch{Region: "eu", Nodes: []WatchedNode{c.node, {ID: "other"}}}
		if why := breachIn(g, &w, 2*hour, 0); (why != "") != c.want {
			t.Errorf("%+v, at most %d: %q", c.node, c.most, why)
		}
	}
}

// The share of lost nodes is an exact share of the nodes from before the stage.
func TestNodesThatCameDoNotMakeUpForThoseLost(t *testing.T) {
	g := DefaultGuardrails()
	g.NodesLostShare = 0.1
	for were, want := range map[int]bool{9: true, 10: false} {
		w := RegionWatch{Region: "eu", Nodes: []WatchedNode{{ID: "lost", Gone: true}}}
		for i := range were - 1 {
			w.Nodes = append(w.Nodes, WatchedNode{ID: fmt.Sprint(i)}, WatchedNode{ID: fmt.Sprint("new", i), Came: true})
		}
		if why := g.nodesLost(&w, 0); (why != "") != want {
			t.Errorf("1 of %d: %q", were, why)
		}
	}
}

// If the answer of an apply is lost, the trial may exist all the same. The rollback finds it when it ends the trial,
// and waits for the nodes that run it.
func TestALostApplyIsWaitedFor(t *testing.T) {
	l := newLand("eu", "us")
	r, steps := begin(t, l, spec(canary, all))
	play(t, r, steps, func() bool { return r.Phase == Applying })
	if _, err := copyOf(r).Advance(steps.on); err != nil { // made, but the answer is lost
		t.Fatal(err)
	}
	if _, err := r.Operate(order(r, Pause, controltest.Ann), l.now.UnixMilli()); err != nil {
		t.Fatal(err)
	}
	l.pass(time.Second)
	l.stubborn = true
	if _, err := r.Operate(order(r, Abort, controltest.Ann), l.now.UnixMilli()); err != nil || r.Paused != nil {
		t.Fatalf("%v, paused %+v", err, r.Paused)
	}
	from := l.now
	play(t, r, steps, func() bool { return r.Phase.Over() || l.now.Sub(from) > time.Minute })
	if got := r.Touched[0]; r.Phase != RollingBack || got.Trial != 1 || got.Applied != 0 || !strings.Contains(r.Waiting, "eu1 in eu runs trial 1") {
		t.Errorf("%s, waiting for %q, %+v", r.Phase, r.Waiting, got)
	}
	l.stubborn = false
	play(t, r, steps, nil)
	if r.Phase != Aborted {
		t.Errorf("%s", r.Phase)
	}
}

func copyOf(r *Rollout) *Rollout {
	c := *r
	c.Touched, c.Watch = append([]Touched(nil), r.Touched...), nil
	return &c
}

// Documents of an older build keep their meaning: a rollback keeps its outcome, and an approval its request. A baseline
// begins again, with the present nodes.
func TestPhasesOfAnOlderBuild(t *testing.T) {
	stages := []StagePlan{{BakeMs: 1000}}
	back := Rollout{Version: 1, Stages: stages, Phase: RollingBack, Wanted: Aborted, Why: "aborted by ann", Touched: []Touched{{Region: "eu", Applied: 1}}}
	back.Upgrade()
	if back.Wanted != Aborted || back.Why != "aborted by ann" {
		t.Errorf("%+v", back)
	}
	asked := Rollout{Version: 1, Stages: stages, Phase: Awaiting, Transitions: controlplane.Transitions{Epoch: 7}}
	asked.Upgrade()
	if o := (Order{Action: Approve, By: controltest.Ann, Stage: 1, Asked: 7}); asked.Asked != 7 || asked.Phase != Awaiting {
		t.Errorf("%+v does not approve %+v", o, asked)
	}
	measuring := Rollout{Version: 1, Stages: stages, Phase: Measuring, DueMs: 99}
	measuring.Upgrade()
	if measuring.DueMs != 0 || measuring.Phase != Measuring {
		t.Errorf("%+v", measuring)
	}
}

// Only a timer of the current epoch is taken, the history is bounded, a region with a newer version prevents a
// rollback, and a rollback clears the end.
func TestADocumentIsOfOneMoment(t *testing.T) {
	if !Lost.Over() {
		t.Error("a lost rollout is under way")
	}
	l := newLand("eu")
	r, steps := begin(t, l, spec(all))
	r.Settle(0)
	if r.Takes(r.Epoch-1) || r.Takes(r.Epoch+1) || !r.Takes(r.Epoch) {
		t.Error("a stale timer is taken")
	}
	for range 2 * controlplane.EventsMax {
		r.AddEvent(1, "ann", "resume", "x")
	}
	play(t, r, steps, nil)
	if len(r.Events) != controlplane.EventsMax || r.Events[len(r.Events)-1].What != string(Done) {
		t.Errorf("%d events", len(r.Events))
	}
	inForce := []tunings.RegionTuning{{Region: "eu", Version: r.Touched[0].Applied}, {Version: r.Touched[1].Applied + 1}}
	if err := r.Overtaken(inForce); err == nil || !strings.Contains(err.Error(), "of the fleet, which has version 3 since") {
		t.Errorf("%v", err)
	}
	if _, err := r.Operate(order(r, RollBack, controltest.Ann), l.now.UnixMilli()); err != nil || r.EndedMs != 0 {
		t.Errorf("%v: it is being rolled back, and ended at %d", err, r.EndedMs)
	}
}
