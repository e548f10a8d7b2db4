package plan

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/shared/tuning"
)

// A bound must be finite, because an infinite bound allows everything.
func TestABoundIsANumber(t *testing.T) {
	for _, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
		g := DefaultGuardrails()
		g.LatencyUs.Least = v
		controltest.WantInvalid(t, g.Validate(), "guardrail latency_us: least is")
		g = DefaultGuardrails()
		g.LatencyUs.Factor = v
		controltest.WantInvalid(t, g.Validate(), "guardrail latency_us: factor is")
		for _, q := range []queries.Rail{{Above: &v}, {Below: &v}, {TimesBaseline: &v}} {
			q.Name, q.Query = "errors", "x"
			controltest.WantInvalid(t, q.Validate(), "the bound of errors is")
		}
	}
}

// A canary region → a share of regions → all: a region is covered once, and a share includes the regions that have been
// covered.
func TestStagesCoverRegionsOnce(t *testing.T) {
	p := DefaultPlan()
	p.Stages = []Stage{{Regions: []string{"d"}, BakeMs: 100}, {SharePercent: 10, BakeMs: 100}, {SharePercent: 50, BakeMs: 100}, {All: true, BakeMs: 100}}
	stages, err := p.Resolve([]string{"e", "d", "c", "b", "a", "a"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range stages {
		got = append(got, fmt.Sprint(s.Scope.Regions, s.Scope.Rows()))
	}
	if want := []string{"[d] [d]", "[a b] [a b]", "[c e] [c e ]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	last := stages[2].Scope
	for region, want := range map[string]bool{"a": false, "c": true, "d": false, "to come": true} {
		if last.Has(region) != want {
			t.Errorf("the last stage has %s: %v", region, !want)
		}
	}
}

// "At most one of the fields can be set", each within its bounds.
func TestTheBoundsOfANodeShare(t *testing.T) {
	of := func(share StageNodes) Plan {
		p := DefaultPlan()
		p.Stages = []Stage{{Regions: []string{"eu"}, StageNodes: share, BakeMs: 60_000}, {All: true, BakeMs: 60_000}}
		return p
	}
	for want, share := range map[string]StageNodes{
		"nodes_percent is 5 and nodes is 1: at most one of them may be set": {NodesPercent: 5, Nodes: 1},
		"nodes_percent is -1 (1 to 100)":                                    {NodesPercent: -1},
		"nodes_percent is 101 (1 to 100)":                                   {NodesPercent: 101},
		"nodes is -1 (1 to 10000)":                                          {Nodes: -1},
		"nodes is 10001 (1 to 10000)":                                       {Nodes: 10_001},
	} {
		err := of(share).Validate()
		if !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "stage 1: ") {
			t.Errorf("%+v: %v, want %q", share, err, want)
		}
	}
	for _, share := range []StageNodes{{}, {NodesPercent: 1}, {NodesPercent: 100}, {Nodes: 1}, {Nodes: fleet.NodesMax}} {
		if err := of(share).Validate(); err != nil {
			t.Errorf("%+v: %v", share, err)
		}
	}
}

// "The lowest bound below which enough of the live nodes are."
func TestTheLeastShare(t *testing.T) {
	var nodes []fleet.NodeFigures
	for i := range 20 {
		nodes = append(nodes, fleet.NodeFigures{ID: fmt.Sprint("node-", i)})
	}
	for _, c := range []struct {
		share StageNodes
		want  int
	}{{StageNodes{Nodes: 1}, 1}, {StageNodes{Nodes: 7}, 7}, {StageNodes{Nodes: 20}, 20}, {StageNodes{NodesPercent: 1}, 1}, {StageNodes{NodesPercent: 10}, 2},
		{StageNodes{NodesPercent: 11}, 3}, {StageNodes{NodesPercent: 99}, 20}} {
		below := c.share.Below(nodes)
		in, greatest := 0, int64(0)
		for _, n := range nodes {
			if share := tuning.TrialShare(n.ID); share < below {
				in, greatest = in+1, max(greatest, share)
			}
		}
		if in != c.want || below != greatest+1 {
			t.Errorf("%s: %d nodes below %d, the greatest %d", c.share, in, below, greatest)
		}
	}
	for _, share := range []StageNodes{{Nodes: 21}, {}, {NodesPercent: 100}} {
		if got := share.Below(nodes); got != tuning.TrialShares {
			t.Errorf("%s: %d", share, got)
		}
	}
	if got := (StageNodes{NodesPercent: 50}).Below(nil); got < tuning.TrialShares*49/100 || got > tuning.TrialShares/2 {
		t.Errorf("50%% of no nodes: %d", got)
	}
	if got := (StageNodes{Nodes: 5}).Below(nil); got != 1 {
		t.Errorf("5 of no nodes: %d", got)
	}
}
