package rollout

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/shared/heartbeat"
)

// tide is a fleet with realistic traffic: it rises and falls in all regions together, varies in each region, and varies
// from second to second.
type tide struct {
	*land
	random  *rand.Rand
	regions map[string]float64 // distance of each region from the average: noise that lasts for some seconds
	slow    map[string]float64 // the same for its share of denials; lasts for a minute
	at      time.Time
}

// does is a node's behavior in a second, with or without the new tuning.
type does func(t *tide, h *heartbeat.Health, n *fleet.Row, hasNew bool)

// newTide returns a fleet whose nodes have behaved as each does for a minute.
func newTide(seed uint64, nodes int, each does, regions ...string) *tide {
	t := &tide{newLand(), rand.New(rand.NewPCG(seed, 1)), map[string]float64{}, map[string]float64{}, time.Time{}}
	for _, region := range regions {
		for i := range nodes {
			t.nodes = append(t.nodes, fleet.Row{Heartbeat: heartbeat.Heartbeat{NodeID: fmt.Sprint(region, i), Region: region, StartedAtMs: 1}})
		}
	}
	var now *fleet.Row
	t.fate = func(n *fleet.Row, _ string) { now = n }
	t.sick = func(h *heartbeat.Health, hasNew bool) { each(t, h, now, hasNew) }
	t.pass(time.Minute)
	return t
}

// harmless behaves the same with any tuning.
func harmless(t *tide, h *heartbeat.Health, n *fleet.Row, _ bool) { t.second(h, n, 0.1, 1) }

// second adds a second of a node. A share of its decisions is denied, and its relay has times as many rows as others.
func (t *tide) second(h *heartbeat.Health, n *fleet.Row, denied, times float64) {
	if !t.at.Equal(t.now) {
		for region, noise := range t.regions {
			t.regions[region] = 0.8*noise + 0.05*t.random.NormFloat64()
			t.slow[region] = 0.98*t.slow[region] + 0.01*t.random.NormFloat64()
		}
		t.at = t.now
	}
	region := n.Heartbeat.Region
	if _, ok := t.regions[region]; !ok {
		t.regions[region] = 0
	}
	day := 1 + 0.5*math.Sin(t.now.Sub(controltest.Day).Hours()*10)
	rate := 200 * day * math.Exp(t.regions[region]+0.1*t.random.NormFloat64())
	deniedNow := int64(rate * denied * math.Exp(t.slow[region]+0.2*t.random.NormFloat64()))
	h.AllowedTotal, h.DeniedTotal = h.AllowedTotal+int64(rate)-deniedNow, h.DeniedTotal+deniedNow
	if strings.HasSuffix(n.Heartbeat.NodeID, "0") {
		relayRows(h, int64(2*rate*times))
	}
}

// A deploy that replaces nodes everywhere while a stage bakes is not a breach; a deploy in the stage's region only is a
// breach.
func TestNodesThatGoEverywhereAreNoBreach(t *testing.T) {
	for where, want := range map[string]Phase{"eu us ap": Done, "eu": RolledBack} {
		l := newLand("eu", "us", "ap")
		r, steps := begin(t, l, spec(plan.Stage{Regions: []string{"eu"}, BakeMs: 120_000}))
		play(t, r, steps, func() bool { return r.Phase == Baking })
		for _, region := range strings.Fields(where) {
			l.dead[region+"2"] = true
			l.nodes = append(l.nodes, fleet.Row{SeenAt: l.now,
				Heartbeat: heartbeat.Heartbeat{NodeID: region + "3", Region: region, StartedAtMs: l.now.UnixMilli()}})
		}
		play(t, r, steps, nil)
		if r.Phase != want {
			t.Errorf("in %s: %s %q", where, r.Phase, r.Why)
		}
	}
}

// The control group is exactly the regions without the tuning. If most regions get a harmful tuning at once, the few
// regions without it are enough to show the harm.
func TestTheControlHasNoRegionWithTheTuning(t *testing.T) {
	l := newTide(1, 1, func(t *tide, h *heartbeat.Health, n *fleet.Row, hasNew bool) {
		t.second(h, n, 0.1, map[bool]float64{false: 1, true: 2}[hasNew])
	}, "a", "b", "c", "d", "e", "f", "g")
	p := plan.DefaultPlan()
	p.Stages = []plan.Stage{{Regions: []string{"a", "b", "c", "d", "e"}, BakeMs: 300_000}}
	r, steps := begin(t, l.land, Spec{Tuning: document30, Plan: p})
	play(t, r, steps, nil)
	wantRolledBack(t, r, "MySQL rows of relays a decision of ", "the 2 regions without the tuning")
}

// Nothing is compared if a stage leaves no region without the tuning, or if its baseline is too short.
func TestWithoutAControlNothingIsCompared(t *testing.T) {
	for name, stage := range map[string]plan.Stage{"of all": {All: true, BakeMs: 120_000}, "of one": {Regions: []string{"eu"}, BakeMs: 120_000}} {
		l := newLand("eu", "us")
		s := spec(stage)
		if name == "of one" {
			s.Plan.BaselineMs = 0
		}
		r, steps := begin(t, l, s)
		play(t, r, steps, func() bool { return r.Phase == Baking && r.DueMs-l.now.UnixMilli() < 10_000 })
		for _, v := range r.judge(0).Comparisons() {
			if v.Samples != 0 || v.Worse {
				t.Errorf("%s: %+v", name, v)
			}
		}
		if rails := r.Rails(); rails[len(rails)-1].Field != "restarts_per_hour" {
			t.Errorf("%s: rails of nothing: %+v", name, rails[len(rails)-1])
		}
	}
}

// The state of comparisons is bounded, and deleted when the rollout is over.
func TestWhatIsComparedIsBounded(t *testing.T) {
	l := newTide(1, 3, harmless, "a", "b", "c")
	p := plan.DefaultPlan()
	p.BaselineMs, p.Stages = 600_000, []plan.Stage{{Regions: []string{"a"}, BakeMs: 1_200_000}}
	r, steps := begin(t, l.land, Spec{Tuning: document30, Plan: p})
	largest := 0
	play(t, r, steps, func() bool {
		b, err := json.Marshal(r.Compared)
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, len(b))
		return r.Phase.Over()
	})
	if r.Phase != Done || largest > 40_000 {
		t.Errorf("%s %q, %d bytes at most", r.Phase, r.Why, largest)
	}
	if b, _ := json.Marshal(r); strings.Contains(string(b), `"compared"`) {
		t.Error("it is kept when the rollout is over")
	}
}

// runs returns how often a history is played: 20 times in a soak.
func runs() uint64 {
	if os.Getenv("WEIR_SOAK") != "" {
		return 20
	}
	return 1
}

// The comparison always catches, in the first stage, a harm that fixed multiples of the baseline let pass. A harmless
// tuning always passes all stages.
func TestAStageIsComparedWithTheOtherRegions(t *testing.T) {
	ten := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	for name, c := range map[string]struct {
		nodes   int
		regions []string
		harm    does
		why     string
	}{
		"MySQL load doubles in one region of ten": {3, ten, func(t *tide, h *heartbeat.Health, n *fleet.Row, hasNew bool) {
			t.second(h, n, 0.1, map[bool]float64{false: 1, true: 2}[hasNew])
		}, "MySQL rows of relays a decision of region a: "},
		"one node of thirty dies": {30, []string{"a", "b", "c"}, func(t *tide, h *heartbeat.Health, n *fleet.Row, hasNew bool) {
			if t.second(h, n, 0.1, 1); hasNew && n.Heartbeat.NodeID == "a7" {
				t.dead["a7"] = true
			}
		}, "nodes without heartbeats: 1 of 30, more than a share of 0, of region a (a7)"},
		"5 of 100 more are denied": {3, ten, func(t *tide, h *heartbeat.Health, n *fleet.Row, hasNew bool) {
			t.second(h, n, map[bool]float64{false: 0.1, true: 0.15}[hasNew], 1)
		}, "share of denied decisions of region a: "},
		"nothing is denied": {3, ten, func(t *tide, h *heartbeat.Health, n *fleet.Row, hasNew bool) {
			t.second(h, n, map[bool]float64{false: 0.1, true: 0}[hasNew], 1)
		}, "share of allowed decisions of region a: "},
		"no harm, while another region has three times the rows": {3, ten, func(t *tide, h *heartbeat.Health, n *fleet.Row, _ bool) {
			t.second(h, n, 0.1, map[bool]float64{false: 1, true: 3}[n.Heartbeat.Region == "i" && t.now.Sub(controltest.Day) > 5*time.Minute])
		}, ""},
		"no harm": {3, ten, harmless, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range runs() {
				l := newTide(seed, c.nodes, c.harm, c.regions...)
				p := plan.DefaultPlan()
				p.Stages = []plan.Stage{{Regions: []string{"a"}, BakeMs: 300_000}, {SharePercent: 50, BakeMs: 300_000},
					{All: true, BakeMs: 60_000}}
				r, steps := begin(t, l.land, Spec{Tuning: document30, Plan: p})
				play(t, r, steps, nil)
				switch {
				case c.why == "" && r.Phase != Done:
					t.Errorf("seed %d: %s, %q", seed, r.Phase, r.Why)
				case c.why != "" && (r.Phase != RolledBack || !strings.HasPrefix(r.Why, "stage 1 (a): ") ||
					!strings.Contains(r.Why, c.why)):
					t.Errorf("seed %d: %s, %q", seed, r.Phase, r.Why)
				}
			}
		})
	}
}

// The nodes of a stage are compared with the other nodes of their region. Other regions are not needed, and changes
// that move all nodes of the region alike have no influence.
func TestNodesAreComparedWithThoseBesideThem(t *testing.T) {
	for name, c := range map[string]struct {
		harm does
		why  string
	}{
		"5 of 100 more are denied": {func(t *tide, h *heartbeat.Health, n *fleet.Row, hasNew bool) {
			t.second(h, n, map[bool]float64{false: 0.1, true: 0.15}[hasNew], 1)
		}, "share of denied decisions of the nodes of region a that the stage takes in: "},
		"one of 20 has errors": {func(t *tide, h *heartbeat.Health, n *fleet.Row, hasNew bool) {
			if t.second(h, n, 0.1, 1); hasNew {
				h.SettingsErrors++
			}
		}, "errors of relays and settings a node and minute of the nodes of region a that the stage takes in: "},
		"no harm, while all nodes deny more": {func(t *tide, h *heartbeat.Health, n *fleet.Row, _ bool) {
			t.second(h, n, map[bool]float64{false: 0.1, true: 0.16}[t.now.Sub(controltest.Day) > 4*time.Minute], 1)
		}, ""},
		"no harm": {harmless, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range runs() {
				l := newTide(seed, 20, c.harm, "a")
				p := plan.DefaultPlan()
				p.Guardrails.DeniedShareShift, p.Guardrails.ErrorsPerMinute.Off = 1, true
				stages := []plan.Stage{part(plan.StageNodes{Nodes: 1}), part(plan.StageNodes{NodesPercent: 50}), {All: true}}
				for i := range stages {
					stages[i].BakeMs = 300_000
				}
				p.Stages = stages
				r, steps := begin(t, l.land, Spec{Tuning: document30, Plan: p})
				play(t, r, steps, nil)
				switch {
				case c.why == "" && r.Phase != Done:
					t.Errorf("seed %d: %s, %q", seed, r.Phase, r.Why)
				case c.why != "" && (r.Phase != RolledBack || !strings.HasPrefix(r.Why, "stage 1 ") ||
					!strings.Contains(r.Why, c.why) || !strings.Contains(r.Why, " the 19 nodes of it without the tuning")):
					t.Errorf("seed %d: %s, %q", seed, r.Phase, r.Why)
				}
			}
		})
	}
}

// quiet returns a fleet of two regions with two nodes each, with one decision a second and node. Shares of the
// decisions are denied and made without the origin, and errors come at a rate a minute, by chance and alike with any
// tuning.
func quiet(seed uint64, denied, degraded, errors float64) *land {
	random := rand.New(rand.NewPCG(seed, 7))
	l := newLand("eu", "us")
	l.sick = func(h *heartbeat.Health, _ bool) {
		if random.Float64() < denied {
			h.DeniedTotal++
		} else {
			h.AllowedTotal++
		}
		if random.Float64() < degraded {
			h.DegradedTotal++
		}
		if random.Float64() < errors/60 {
			h.SettingsErrors++
		}
	}
	l.pass(time.Minute)
	return l
}

// A harmless rollout of a quiet fleet passes, even if it waits for a person for a night. At most 1 in 100 rollouts is
// rolled back by chance, which is the error rate. So of 80 for each kind of noise, as in a soak, two may be.
//
//weir:unraced
func TestAQuietFleetIsNotRolledBackByChance(t *testing.T) {
	for name, c := range map[string]struct{ denied, degraded, errors float64 }{
		"4 in 1,000 decisions without the origin": {0, 0.004, 0},
		"4 in 100 decisions without the origin":   {0, 0.04, 0},
		"a third of the decisions denied":         {0.33, 0, 0},
		"5 errors a minute and node":              {0, 0, 5},
		"an error in ten minutes":                 {0, 0, 0.1},
		"all of it":                               {0.1, 0.01, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seeds := 2 * runs()
			back := 0
			for seed := range seeds {
				l := quiet(seed, c.denied, c.degraded, c.errors)
				p := plan.DefaultPlan()
				gated := plan.Stage{All: true, BakeMs: 300_000, Approval: true}
				p.Stages = []plan.Stage{{Regions: []string{"eu"}, BakeMs: 300_000}, gated}
				r, steps := begin(t, l, Spec{Tuning: document30, Plan: p})
				until := l.now.Add(8 * time.Hour)
				if play(t, r, steps, func() bool { return !l.now.Before(until) }); r.Phase != Awaiting {
					back++
					t.Logf("seed %d after %v: %s", seed, l.now.Sub(controltest.Day), r.Why)
				}
			}
			if back > int(seeds/40) {
				t.Errorf("%d of %d harmless rollouts were rolled back in a night", back, seeds)
			}
		})
	}
}

// Harm to a quiet fleet stops the first stage, as far as so few decisions can show it.
//
//weir:unraced
func TestHarmStopsTheFirstStageOfAQuietFleet(t *testing.T) {
	for name, harm := range map[string]func(h *heartbeat.Health){
		"most decisions are without the origin": func(h *heartbeat.Health) { h.DegradedTotal++ },
		"most decisions are denied":             func(h *heartbeat.Health) { h.DeniedTotal += 3 },
		"an error a second":                     func(h *heartbeat.Health) { h.SettingsErrors++ },
		"rows":                                  func(h *heartbeat.Health) { relayRows(h, 4000) },
	} {
		for seed := range runs() {
			l := quiet(seed, 0.1, 0.004, 1)
			noise := l.sick
			l.sick = func(h *heartbeat.Health, hasNew bool) {
				if noise(h, hasNew); hasNew {
					harm(h)
				}
			}
			p := plan.DefaultPlan()
			p.Stages = []plan.Stage{{Regions: []string{"eu"}, BakeMs: 600_000}, {All: true, BakeMs: 600_000}}
			r, steps := begin(t, l, Spec{Tuning: document30, Plan: p})
			if play(t, r, steps, nil); r.Phase != RolledBack || !strings.HasPrefix(r.Why, "stage 1 (eu): ") {
				t.Errorf("%s, seed %d: %s %q", name, seed, r.Phase, r.Why)
			}
		}
	}
}
