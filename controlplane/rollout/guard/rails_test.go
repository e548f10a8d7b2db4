package guard

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

func railOf(t *testing.T, j *Judge, field string) Rail {
	t.Helper()
	for _, rail := range j.Rails() {
		if rail.Field == field {
			return rail
		}
	}
	t.Fatalf("no rail %s", field)
	return Rail{}
}

// Each rail has the region or node that is nearest to its bound, with the bound and the margin.
func TestRails(t *testing.T) {
	j := judgeOf(plan.StagePlan{BakeMs: 300_000})
	j.Now, j.Baseline = fleet.HealthRates{LatencyUs: new(500.0)}, fleet.HealthRates{}
	if rail := railOf(t, j, "latency_us"); rail.Region != "" || *rail.Now != 500 || *rail.Most != 1000 || *rail.Margin != 0.5 {
		t.Errorf("before a region is watched: %+v", rail)
	}
	busy := tally(0, 90_000, 10_000, 0, 0)
	slow := spans("slow", busy, busy)
	slow.LatencyUs = new(750.0)
	quick := spans("quick", busy, busy)
	quick.LatencyUs = new(250.0)
	gone := spans("gone", busy, busy)
	gone.Gone = true
	j.Watch = []RegionWatch{{Region: "eu", Nodes: []WatchedNode{quick}}, {Region: "us", Nodes: []WatchedNode{slow, quick, gone}}}
	for field, want := range map[string]struct {
		region, node string
		most, margin float64
	}{
		"latency_us":         {"us", "slow", 1000, 0.25},
		"denied_share_shift": {"eu", "quick", 1.0/9 + 0.2, 1},
		"nodes_lost_share":   {"us", "", 0, -math.MaxFloat32},
		"restarts_per_hour":  {"eu", "quick", 1, 1},
	} {
		rail := railOf(t, j, field)
		if rail.Region != want.region || rail.Node != want.node || math.Abs(*rail.Most-want.most) > 1e-9 || math.Abs(*rail.Margin-want.margin) > 1e-9 {
			t.Errorf("%s: %s %s, most %v, margin %v; want %+v", field, rail.Region, rail.Node, *rail.Most, *rail.Margin, want)
		}
	}
	j.Plan.Guardrails.LatencyUs.Off = true
	if rail := railOf(t, j, "latency_us"); rail.Most != nil || rail.Margin != nil || rail.Now == nil {
		t.Errorf("one that is off: %+v", rail)
	}
	j.Step = Measuring
	if rail := railOf(t, j, "nodes_lost_share"); rail.Region != "" || rail.Now != nil {
		t.Errorf("while it measures: %+v", rail)
	}
}

// The judge rolls a region back exactly when a rail has a negative margin.
func TestRailsAgreeWithTheJudge(t *testing.T) {
	const borne = time.Minute
	enough := math.Log(1e6)
	rapid.Check(t, func(t *rapid.T) {
		g := plan.DefaultGuardrails()
		g.NodesLostShare = rapid.SampledFrom([]float64{0, 0.1, 0.58, 1}).Draw(t, "lost share")
		g.RestartsPerHour = rapid.IntRange(0, plan.RestartsPerHourMax).Draw(t, "restarts borne")
		figures := func(label string) fleet.Tally {
			many := func(what string) int64 { return rapid.Int64Range(0, 60_000).Draw(t, label+what) }
			return tally(rapid.Int64Range(0, 40).Draw(t, label+" errors"), many(" allowed"), many(" denied"), many(" degraded"), many(" rows"))
		}
		w := RegionWatch{Region: "eu"}
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			id := string(rune('a' + i))
			n := spans(id, figures(id+" before"), figures(id+" now"))
			n.Restarts = make([]int64, rapid.IntRange(0, 3).Draw(t, id+" restarts"))
			n.Gone = i > 0 && rapid.Bool().Draw(t, id+" gone")
			w.Nodes = append(w.Nodes, n)
		}
		why := breachIn(g, &w, 0, borne)
		broken := false
		for _, rails := range (bounds{g}).railsIn(&w, 0, borne, enough) {
			for _, rail := range rails {
				broken = broken || rail.Margin != nil && *rail.Margin < 0
			}
		}
		if (why != "") != broken && !strings.Contains(why, "none is left") {
			t.Errorf("the judge: %q; a rail is broken: %v", why, broken)
		}
	})
}
