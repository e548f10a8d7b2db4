package rollout

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/tuning"
)

// byShare returns the nodes of a region in the order in which shares take them in.
func byShare(l *land, region string) (ids []string) {
	for _, n := range l.nodes {
		if n.Heartbeat.Region == region {
			ids = append(ids, n.Heartbeat.NodeID)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return int(tuning.TrialShare(a) - tuning.TrialShare(b)) })
	return ids
}

// landOf returns a fleet with this many nodes in each region.
func landOf(nodes int, regions ...string) *land {
	l := newLand()
	for _, region := range regions {
		for i := range nodes {
			l.join(fmt.Sprintf("%s%d", region, i+1), region)
		}
	}
	l.pass(time.Second)
	return l
}

func (l *land) join(id, region string) {
	l.nodes = append(l.nodes, fleet.Row{Heartbeat: heartbeat.Heartbeat{NodeID: id, Region: region, StartedAtMs: l.now.UnixMilli()}})
}

// grown returns a heartbeat's health after a change.
func grown(health string, change func(*heartbeat.Health)) string {
	var h heartbeat.Health
	_ = json.Unmarshal([]byte(health), &h)
	change(&h)
	text, _ := json.Marshal(h)
	return string(text)
}

// wantTried checks which nodes run a trial of the rollout, in any order.
func wantTried(t *testing.T, l *land, want ...string) {
	t.Helper()
	var tried []string
	for _, n := range l.nodes {
		if document, trial := l.run(n.Heartbeat.NodeID); trial != 0 && document == document30 {
			tried = append(tried, n.Heartbeat.NodeID)
		}
	}
	slices.Sort(tried)
	slices.Sort(want)
	if !slices.Equal(tried, want) {
		t.Errorf("%v run the trial, want %v", tried, want)
	}
}

func part(share plan.StageNodes, regions ...string) plan.Stage {
	return plan.Stage{Regions: regions, All: len(regions) == 0, StageNodes: share, BakeMs: 60_000}
}

// The stages of plans with shares in a fleet, or the plan's error.
func TestStagesOfShares(t *testing.T) {
	one, three, tenth, half := plan.StageNodes{Nodes: 1}, plan.StageNodes{Nodes: 3}, plan.StageNodes{NodesPercent: 10}, plan.StageNodes{NodesPercent: 50}
	for name, c := range map[string]struct {
		stages []plan.Stage
		want   string // the stages, or the error
	}{
		"one node, then all": {[]plan.Stage{part(one, "eu"), all}, "1 node of eu; all regions"},
		"wider and wider": {[]plan.Stage{part(one, "eu"), part(tenth, "eu"), part(half, "eu"), part(plan.StageNodes{NodesPercent: 100}, "eu"), all},
			"1 node of eu; 10% of the nodes of eu; 50% of the nodes of eu; eu; all other regions"},
		"of all regions":   {[]plan.Stage{part(tenth), part(half), all}, "10% of the nodes each of all regions; 50% of the nodes each of all regions; all regions"},
		"of some and all":  {[]plan.Stage{canary, part(three, "us", "ap"), part(half), all}, "eu; 3 nodes each of us, ap; 50% of the nodes each of all other regions; all other regions"},
		"a share of both":  {[]plan.Stage{{SharePercent: 50, StageNodes: one, BakeMs: 100}, {SharePercent: 50, BakeMs: 100}, all}, "1 node each of ap, eu; ap, eu; all other regions"},
		"not of the rest":  {[]plan.Stage{part(one, "eu"), canary}, "1 node of eu; eu"},
		"the same again":   {[]plan.Stage{part(tenth, "eu"), part(tenth, "eu"), all}, "invalid: stage 2 takes in nothing new: earlier stages take in as many nodes of eu, or more"},
		"narrower":         {[]plan.Stage{part(three, "eu"), part(one, "eu"), all}, "invalid: stage 2 takes in nothing new"},
		"of what has it":   {[]plan.Stage{canary, part(half, "eu"), all}, "invalid: stage 2 takes in nothing new"},
		"ends in one node": {[]plan.Stage{canary, part(one, "us")}, "invalid: the plan ends with 1 node of region us: the last stage of a region takes in all of its nodes"},
		"ends in a part":   {[]plan.Stage{part(half)}, "invalid: the plan ends with 50% of the nodes of region ap"},
		"rest in a part":   {[]plan.Stage{part(half), part(plan.StageNodes{}, "ap", "eu", "us", "za")}, "invalid: the plan ends with 50% of the nodes of all other regions"},
		"all is not last":  {[]plan.Stage{all, canary}, "invalid: stage 1 covers all regions and is not the last"},
	} {
		s := spec(c.stages...)
		r, err := New("r1", s, controltest.Ann, []string{"eu", "us", "ap", "za"}, 0)
		var got []string
		if err == nil {
			for _, stage := range r.Stages {
				got = append(got, stage.String())
			}
		} else {
			got = []string{err.Error()}
		}
		if text := strings.Join(got, "; "); text != c.want && (err == nil || !strings.HasPrefix(text, c.want)) {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

// One node, then a few, then all of the region, then all regions: each stage ends when its nodes run the trial. A
// region has a single trial, which is widened.
func TestARolloutOfShares(t *testing.T) {
	l := landOf(10, "eu", "us")
	r, steps := begin(t, l, spec(part(plan.StageNodes{Nodes: 1}, "eu"), part(plan.StageNodes{NodesPercent: 30}, "eu"), canary, all))
	ids := byShare(l, "eu")
	for stage, want := range [][]string{ids[:1], ids[:3], ids} {
		play(t, r, steps, func() bool { return r.Phase == Baking && r.Stage == stage })
		wantTried(t, l, want...)
		if expected, live, ok := r.TriedBy("eu"); expected != len(want) || live != 10 || !ok {
			t.Errorf("stage %d: %d of %d, %v", stage+1, expected, live, ok)
		}
		if len(l.trials) != 1 || len(r.Touched) != 1 {
			t.Errorf("stage %d: trials %+v, touched %+v", stage+1, l.trials, r.Touched)
		}
		if want := fmt.Sprintf("stage %d: applied by %d live nodes", stage+1, len(want)); r.Events[len(r.Events)-1].Text != want {
			t.Errorf("%q, want %q", r.Events[len(r.Events)-1].Text, want)
		}
	}
	play(t, r, steps, nil)
	if r.Phase != Done {
		t.Fatalf("%s %q", r.Phase, r.Why)
	}
	wantFleet(t, l, document30, "eu", "us")
}

// A share of all regions also holds for regions that come later, and is widened.
func TestAShareOfAllRegions(t *testing.T) {
	l := landOf(4, "eu", "us")
	r, steps := begin(t, l, spec(part(plan.StageNodes{NodesPercent: 50}), all))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	want := slices.Concat(byShare(l, "eu")[:2], byShare(l, "us")[:2])
	wantTried(t, l, want...)
	for i := range 8 {
		l.join(fmt.Sprint("ap", i), "ap")
	}
	l.pass(2 * time.Second)
	for _, id := range byShare(l, "ap") {
		if tuning.TrialShare(id) < r.Touched[2].Below {
			want = append(want, id)
		}
	}
	wantTried(t, l, want...)
	play(t, r, steps, nil)
	if r.Phase != Done {
		t.Fatalf("%s %q", r.Phase, r.Why)
	}
	wantFleet(t, l, document30, "eu", "us", "ap")
}

// "A node that joins later runs the tuning if its hash is below the bound": the stage cannot end without it. It does
// not wait for a node above the bound.
func TestANodeJoinsAShare(t *testing.T) {
	for _, falls := range []bool{true, false} {
		l := landOf(6, "eu", "us")
		r, steps := begin(t, l, spec(part(plan.StageNodes{NodesPercent: 50}, "eu"), all))
		play(t, r, steps, func() bool { return r.Phase == Baking })
		id := ""
		for i := 0; id == ""; i++ {
			if one := fmt.Sprint("late", i); (tuning.TrialShare(one) < r.Touched[0].Below) == falls {
				id = one
			}
		}
		l.join(id, "eu")
		l.fate = func(n *fleet.Row, _ string) { // it sends heartbeats, but reads nothing
			if n.Heartbeat.NodeID == id {
				n.Health, n.SeenAt, n.Heartbeat.SentAtMs = `{"tuning_hash":"`+hashed(defaultDocument)+`"}`, l.now, l.now.UnixMilli()
				l.dead[id] = true
			}
			for i := range l.nodes {
				if l.dead[l.nodes[i].Heartbeat.NodeID] {
					l.nodes[i].SeenAt, l.nodes[i].Heartbeat.SentAtMs = l.now, l.now.UnixMilli()
				}
			}
		}
		play(t, r, steps, func() bool { return r.Phase != Baking || strings.HasPrefix(r.Waiting, "not all nodes run it") })
		want := "not all nodes run it when the bake is over: 3 of 4 live nodes have applied it; " + id + " in eu runs version 0, not trial 1"
		if falls && r.Waiting != want {
			t.Errorf("%s %q, want %q", r.Phase, r.Waiting, want)
		}
		if !falls && (r.Phase == Baking || r.Stage != 1) {
			t.Errorf("%s %q %q, stage %d", r.Phase, r.Waiting, r.Why, r.Stage+1)
		}
	}
}

// A rollback waits for the nodes that may run the trial, and names the nodes that still do.
func TestARollbackOfAShare(t *testing.T) {
	l := landOf(10, "eu", "us")
	r, steps := begin(t, l, spec(part(plan.StageNodes{Nodes: 2}, "eu"), all))
	play(t, r, steps, func() bool { return r.Phase == Baking })
	l.stubborn = true
	operate(t, r, steps, Abort)
	playFor(t, r, steps, 10*time.Second)
	if want := "2 of 2 live nodes still run the withdrawn tuning: "; !strings.HasPrefix(r.Waiting, want) {
		t.Errorf("%s, waiting for %q, want %q", r.Phase, r.Waiting, want)
	}
	l.stubborn = false
	play(t, r, steps, nil)
	if r.Phase != Aborted {
		t.Errorf("%s %q", r.Phase, r.Waiting)
	}
	wantFleet(t, l, defaultDocument, "eu", "us")
}

// Only nodes with the tuning are judged, each by its figures from before its own stage.
func TestTheRailsOfAShare(t *testing.T) {
	for name, c := range map[string]struct {
		stage int
		who   func(ids []string) string // returns the nodes that deny half
		why   string                    // empty: the stage ends well
		of    string                    // the node or region at fault
	}{
		"the one that has it": {0, func(ids []string) string { return ids[0] }, "stage 1 (1 node of eu): share of denied decisions",
			"of the nodes of region eu that the stage takes in"},
		"one that does not have it": {0, func(ids []string) string { return ids[5] }, "", ""},
		"one that got it later":     {1, func(ids []string) string { return ids[2] }, "stage 2 (3 nodes of eu): share of denied decisions", "region eu that the stage takes in"},
	} {
		t.Run(name, func(t *testing.T) {
			l := landOf(8, "eu", "us")
			s := spec(part(plan.StageNodes{Nodes: 1}, "eu"), part(plan.StageNodes{Nodes: 3}, "eu"), all)
			s.Plan.Guardrails.Comparison.Off = true
			r, steps := begin(t, l, s)
			who := c.who(byShare(l, "eu"))
			ill := false
			l.fate = func(n *fleet.Row, _ string) {
				if ill && n.Heartbeat.NodeID == who {
					n.Health = grown(n.Health, func(h *heartbeat.Health) { h.DeniedTotal += 90 })
				}
			}
			play(t, r, steps, func() bool { return r.Phase == Baking && r.Stage == c.stage })
			ill = true
			play(t, r, steps, func() bool { return r.Phase.Over() || r.Stage > c.stage })
			if c.why == "" && (r.Phase.Over() || r.Why != "") || !strings.HasPrefix(r.Why, c.why) {
				t.Errorf("%s %q, want %q", r.Phase, r.Why, c.why)
			}
			if !strings.HasSuffix(r.Why, strings.ReplaceAll(c.of, "WHO", who)) {
				t.Errorf("%q, want %q", r.Why, c.of)
			}
		})
	}
}

// Losing a node of the share rolls back; losing another node does not.
func TestANodeOfAShareIsLost(t *testing.T) {
	for at, want := range map[int]string{0: "stage 1 (2 nodes of eu): nodes without heartbeats: 1 of 2", 7: ""} {
		l := landOf(8, "eu", "us")
		r, steps := begin(t, l, spec(part(plan.StageNodes{Nodes: 2}, "eu"), all))
		play(t, r, steps, func() bool { return r.Phase == Baking })
		l.dead[byShare(l, "eu")[at]] = true
		play(t, r, steps, func() bool { return r.Phase.Over() || r.Stage > 0 })
		if !strings.HasPrefix(r.Why, want) || want == "" && r.Phase.Over() {
			t.Errorf("%d: %s %q, want %q", at, r.Phase, r.Why, want)
		}
	}
}

// The state of a build without shares counts as all nodes.
func TestADocumentWithoutShares(t *testing.T) {
	if b := (Touched{}).below(); b != tuning.TrialShares || (Touched{}).Part() {
		t.Errorf("below %d", b)
	}
}

// The audit log names the share of a region's nodes that tries a tuning, unless it is all of them.
func TestTheAuditLogNamesShares(t *testing.T) {
	writes := []tunings.TrialWrite{
		{ID: "r/try/eu", Region: "eu", Document: document30, Below: tuning.TrialShares / 10},
		{ID: "r/try/us", Region: "us", Document: document30, Below: tuning.TrialShares},
	}
	e, err := tunings.TrialEntry(writes, controltest.Ann)
	if err != nil {
		t.Fatal(err)
	}
	var after struct {
		Regions []string
		Shares  map[string]float64
	}
	if err := json.Unmarshal([]byte(e.After), &after); err != nil {
		t.Fatal(err)
	}
	if e.Action != "rollout.try" || e.Subject != "trial r/try/eu" || !slices.Equal(after.Regions, []string{"eu", "us"}) ||
		len(after.Shares) != 1 || math.Abs(after.Shares["eu"]-0.1) > 1e-6 {
		t.Errorf("%+v", e)
	}
}
