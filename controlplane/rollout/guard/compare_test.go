package guard

import (
	"fmt"
	"testing"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// A stage is compared for an hour; after that its baseline is from another time of day.
func TestAStageIsComparedForAnHour(t *testing.T) {
	sample := func(rows float64) map[string]Sample { return map[string]Sample{"a": {rows}, "b": {}} }
	s := ComparedStage{Before: sample(0), Regions: []ComparedSeries{{Region: "a"}}}
	for slot := range 2 * comparedMax {
		s.each(sample(float64(slot)), map[string]bool{"b": true}, addSince)
	}
	last := s.Regions[0].Series[sampleRows]
	if n := last.Dropped + len(last.Since); n != comparedMax || last.Since[len(last.Since)-1] != comparedMax-1 {
		t.Errorf("%d slots are compared, want %d, the last %v", n, comparedMax, last.Since[len(last.Since)-1])
	}
}

// judgeOf returns the judge of a rollout in the bake of a stage.
func judgeOf(stage plan.StagePlan) *Judge {
	return &Judge{Figures: &Figures{}, Effect: &Effect{}, Plan: plan.DefaultPlan(), Stages: plan.StagePlans{stage}, Step: Baking,
		With: stage.Scope, Tried: stage.Scope, Reached: func(string, bool) int64 { return 0 }}
}

// atBake returns the judge of two regions of three nodes, in the bake of a stage of the first region.
func atBake(share plan.StageNodes) *Judge {
	j := judgeOf(plan.StagePlan{Scope: fleet.Scope{Regions: []string{"a"}}, StageNodes: share, BakeMs: 300_000})
	j.Step, j.With, j.Tried = Measuring, fleet.Scope{}, fleet.Scope{}
	look := fleet.Look{LiveMs: 30_000}
	for _, region := range []string{"a", "b"} {
		for n := range 3 {
			look.Nodes = append(look.Nodes, fleet.NodeFigures{ID: fmt.Sprint(region, n), Region: region, StartedMs: 1})
		}
	}
	for range 20 {
		j.NowMs += 10_000
		look.AtMs = j.NowMs
		for i := range look.Nodes {
			n := &look.Nodes[i]
			n.SeenMs, n.SentMs = j.NowMs, j.NowMs
			n.Totals[fleet.TallyDecisions], n.Totals[fleet.TallyRows] = n.Totals[fleet.TallyDecisions]+1000, n.Totals[fleet.TallyRows]+10
		}
		j.Observe(look)
	}
	j.EndBaseline(nil)
	j.Step, j.With, j.Tried = Baking, j.stage().Scope, j.stage().Scope
	return j
}

// slot ends a slot in which every node has decided, and returns how many samples a series has gained.
func (j *Judge) slot(series *ComparedSeries) int {
	for i := range j.Compared.Regions {
		for n := range j.Compared.Regions[i].Nodes {
			j.Compared.Regions[i].Nodes[n].Slot = fleet.Span{10_000, 1 + fleet.TallyDecisions: 1000, 1 + fleet.TallyRows: 10}
		}
	}
	before := len(series.Series[sampleDenied].Since)
	j.closeSlot()
	return len(series.Series[sampleDenied].Since) - before
}

// A stage is compared from when all of its nodes run the tuning until the rollout is over.
func TestWhileAStageIsCompared(t *testing.T) {
	j := atBake(plan.StageNodes{})
	for step, want := range map[Step]int{Applying: 0, Baking: 1} {
		j.Step = step
		if got := j.slot(&j.Compared.Stages[0].Regions[0]); got != want {
			t.Errorf("step %d: %d samples, want %d", step, got, want)
		}
	}
}

// The comparison of nodes uses the nodes of the baseline only. It leaves out nodes that came later, and pauses while a
// node is gone.
func TestWhileNodesAreCompared(t *testing.T) {
	j := atBake(plan.StageNodes{Nodes: 1})
	nodes := &j.Compared.Stages[0].Nodes[0]
	if got := j.slot(nodes); got != 1 || nodes.Against != 2 {
		t.Errorf("%d samples against %d nodes, want 1 against 2", got, nodes.Against)
	}
	if rows := nodes.Series[sampleRows]; rows.Before.M2 != 0 || rows.Before.Mean != 0 {
		t.Errorf("rows are compared: %+v", rows)
	}
	j.Compared.region("a").Nodes[0].Came = true
	if got := j.slot(nodes); got != 1 || nodes.Against != 1 {
		t.Errorf("one came: %d samples against %d nodes, want 1 against 1", got, nodes.Against)
	}
	j.Compared.region("a").Nodes[1].Gone = true
	if got := j.slot(nodes); got != 0 || nodes.Against != 0 {
		t.Errorf("one is gone: %d samples against %d nodes", got, nodes.Against)
	}
}
