package guard

import (
	"cmp"
	"slices"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// Figures are the figures of nodes that a rollout's document has. Documents outlive builds: see rollout.Rollout.
type Figures struct {
	Clocks fleet.Clocks `json:"clocks,omitzero"`

	// Watch has the figures of nodes: of every region that the rollout touched, and of the regions whose baseline is being
	// taken. It is empty once a rollout is over or rolls back.
	Watch Watches `json:"watch,omitempty"`

	// Compared has the figures of all regions, with and without the tuning. It is empty once a rollout is over or rolls
	// back.
	Compared Compared `json:"compared,omitzero"`

	// Figures of the stage's regions, for people: the worst figure of any region. Guardrails judge each region and node by
	// itself.
	Baseline fleet.HealthRates `json:"baseline"`
	Now      fleet.HealthRates `json:"now"` // in the newest window

	// Results of the plan's queries: before the stage of each region, and the newest.
	QueriesBefore []queries.Value `json:"queries_before,omitempty"`
	QueriesNow    []queries.Value `json:"queries_now,omitempty"`
}

// Step is how far a stage has come.
type Step int

// The steps, in order.
const (
	Waiting   Step = iota // the stage has not begun
	Measuring             // its baseline is taken
	Applying              // nodes get its trials, or may have them
	Baking                // all of its nodes have the tuning
)

// Judge takes looks at nodes into the figures of a rollout, and judges them. It must not outlive the transition that it
// is made for, because the rollout's stage and regions can change then.
type Judge struct {
	*Figures
	Effect *Effect

	Plan   plan.Plan
	Stages plan.StagePlans
	Stage  int // index into Stages
	Step   Step

	With   fleet.Scope    // regions that have, or may have, the tuning
	Tried  fleet.Scope    // these, and the regions with a trial of an earlier mode
	Trials map[int64]bool // numbers of the trials of limits that are under way

	// Reached returns the bound of the trial that a region has in a mode, or 0 if it has none.
	Reached func(region string, shadow bool) int64

	NowMs int64
	Look  fleet.Look // at watched regions; Observe sets it
}

// Breach is a broken guardrail: the stage of the region at fault, and the reason.
type Breach struct {
	Stage int
	Why   string
}

// Observe takes in a look at all regions.
func (j *Judge) Observe(all fleet.Look) {
	j.Clocks.See(all, j.NowMs)
	j.compare(all)
	j.Look = all.Within(j.watchedScope())
	j.observe()
	j.Effect.observe(all, j.Trials)
	j.Now = j.Watch.ratesOf(j.Stage, (*RegionWatch).now)
}

// Broken returns the first guardrail that a region with the tuning breaks, except queries, whatever the step; nil:
// there is none. It must be called once for each look, because it also records for how long figures have been beyond
// their bounds.
func (j *Judge) Broken() *Breach {
	return cmp.Or(j.breachOfLimits(), j.breachOfNodes(), worstOf(j.Comparisons()))
}

// ObserveQueries takes in the values of the plan's queries, and returns the query that is broken; nil: there is none.
func (j *Judge) ObserveQueries(now []queries.Value) *Breach {
	g, borne := j.bounds(), j.Stages[j.lastApplied()].Borne()
	g.noteQueries(j.QueriesBefore, j.QueriesNow, now, j.Clocks.GapMs, borne)
	j.QueriesNow = now
	if why := g.breachOfQueries(j.QueriesBefore, now, borne); why != "" {
		return &Breach{Stage: j.lastApplied(), Why: why}
	}
	return nil
}

// EndBaseline ends the baseline of the stage. before are the values of the plan's queries.
func (j *Judge) EndBaseline(before []queries.Value) {
	j.QueriesBefore = queries.AddBaselines(j.QueriesBefore, before)
	j.Baseline = j.Watch.ratesOf(j.Stage, (*RegionWatch).before)
	j.beginComparing()
}

// RestartBaseline forgets what has been measured of the stage's baseline.
func (j *Judge) RestartBaseline() {
	j.Watch = slices.DeleteFunc(j.Watch, func(w RegionWatch) bool { return w.Stage == j.Stage })
	for i := range j.Compared.Regions {
		j.Compared.Regions[i].Slots, j.Compared.Regions[i].Beside = nil, nil
	}
	j.Compared.beginSlot(j.NowMs)
}

func (j *Judge) bounds() bounds { return bounds{j.Plan.Guardrails} }

func (j *Judge) stage() plan.StagePlan { return j.Stages[j.Stage] }

// applied reports whether the stage has been applied, or may have been.
func (j *Judge) applied() bool { return j.Step >= Applying }

// lastApplied returns the index of the last applied stage; less than 0: none.
func (j *Judge) lastApplied() int {
	if j.applied() {
		return j.Stage
	}
	return j.Stage - 1
}
