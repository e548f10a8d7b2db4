package api

import (
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/limitchange"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// bakeDefault is the bake time of a stage without a bake time.
const bakeDefault = 5 * time.Minute

// rolloutPlan reads a plan. Fields that it lacks have their default.
func rolloutPlan(from *controlv1.RolloutPlan) plan.Plan {
	p := plan.DefaultPlan()
	if from == nil {
		return p
	}
	set(&p.BaselineMs, from.BaselineMs)
	set(&p.ApplyTimeoutMs, from.ApplyTimeoutMs)
	set(&p.LeaseMs, from.LeaseMs)
	set(&p.Approvers, from.Approvers)
	set(&p.ApprovalTTLMs, from.ApprovalTtlMs)
	for _, s := range from.GetStages() {
		stage := plan.Stage{
			Regions: s.GetRegions(), SharePercent: int(s.GetSharePercent()), All: s.GetAll(),
			BakeMs: bakeDefault.Milliseconds(), Approval: s.GetApproval(), Shadow: s.GetShadow(),
			StageNodes: plan.StageNodes{NodesPercent: int(s.GetNodesPercent()), Nodes: int(s.GetNodes())},
		}
		set(&stage.BakeMs, s.BakeMs)
		p.Stages = append(p.Stages, stage)
	}
	g := from.GetGuardrails()
	if g == nil {
		return p
	}
	rails := &p.Guardrails
	for to, from := range map[*plan.Ceiling]*controlv1.RolloutCeiling{
		&rails.ErrorsPerMinute: g.GetErrorsPerMinute(),
		&rails.RowsPerSecond:   g.GetRowsPerSecond(),
		&rails.DegradedShare:   g.GetDegradedShare(),
		&rails.ConvergenceMs:   g.GetConvergenceMs(),
		&rails.LatencyUs:       g.GetLatencyUs(),
	} {
		if from != nil {
			to.Off = from.GetOff()
			set(&to.Factor, from.Factor)
			set(&to.Least, from.Least)
		}
	}
	set(&rails.DeniedShareShift, g.DeniedShareShift)
	set(&rails.NodesLostShare, g.NodesLostShare)
	set(&rails.RestartsPerHour, g.RestartsPerHour)
	planComparison(&rails.Comparison, g.GetComparison())
	rails.LimitsGuardrails = planLimits(g)
	for _, q := range g.GetQueries() {
		rails.Queries = append(rails.Queries, planQuery(q))
	}
	return p
}

func planComparison(to *plan.Comparison, from *controlv1.RolloutComparison) {
	if from == nil {
		return
	}
	to.Off = from.GetOff()
	set(&to.ErrorRate, from.ErrorRate)
	set(&to.RowsTimes, from.RowsTimes)
	set(&to.DeniedShift, from.DeniedShift)
	set(&to.DegradedShift, from.DegradedShift)
	set(&to.ErrorsPerMinute, from.ErrorsPerMinute)
}

// set assigns *value to *to, unless value is nil.
func set[T, V int | int32 | int64 | float64](to *T, value *V) {
	if value != nil {
		*to = T(*value)
	}
}

func rolloutAnswer(r rollout.Rollout) *controlv1.Rollout {
	answer := &controlv1.Rollout{
		Id: r.ID, Actor: r.By.Actor, Reason: r.By.Reason, StartedAtMs: r.StartedMs, EndedAtMs: r.EndedMs,
		Phase: string(r.Phase), Stage: int32(r.Stage + 1), DueAtMs: r.DueMs,
		Why: valid(r.Why), Trouble: valid(r.Trouble), Waiting: valid(r.Waiting), Unknown: valid(r.Unknown),
		Baseline: rolloutRates(r.Baseline), Now: rolloutRates(r.Now),
		Guardrails: rolloutGuardrails(r.Spec.Plan.Guardrails), Queries: queryValues(r), Asked: r.Asked,
	}
	if r.Spec.Limits == nil {
		answer.Tuning = r.Document
	} else {
		answer.Limits, answer.Evidence = limitchange.Message(*r.Spec.Limits), evidenceAnswer(r.LimitsEvidence())
	}
	if r.Phase == rollout.Awaiting {
		answer.Approvals = approvals(r.Spec.Plan.Quorum, r.Approvals, r.Evidence())
	}
	if p := r.Paused; p != nil {
		answer.PausedBy, answer.PausedReason, answer.PausedAtMs = p.Actor, p.Reason, p.AtMs
	}
	for i, s := range r.Stages {
		answer.Stages = append(answer.Stages, &controlv1.RolloutProgress{
			Regions: s.Scope.Regions, Rest: s.Scope.Rest, BakeMs: s.BakeMs, Approval: s.Approval, State: stageState(r, i),
			NodesPercent: int32(s.NodesPercent), Nodes: int32(s.Nodes), Shadow: s.Shadow,
		})
	}
	for _, t := range r.Trials() {
		answer.Regions = append(answer.Regions, rolloutRegion(&r, t))
	}
	for _, rail := range r.Rails() {
		answer.Rails = append(answer.Rails, &controlv1.RolloutRail{Field: rail.Field, Region: valid(rail.Region),
			Node: valid(rail.Node), Before: rail.Before, Now: rail.Now, Most: rail.Most, Least: rail.Least, Margin: rail.Margin,
			Confidence: rail.Confidence, Low: rail.Low, High: rail.High})
	}
	answer.Events = each(r.Events, func(e controlplane.Event) *controlv1.RolloutEvent {
		return &controlv1.RolloutEvent{AtMs: e.AtMs, Actor: e.Actor, What: e.What, Text: valid(e.Text)}
	})
	return answer
}

func rolloutRegion(r *rollout.Rollout, t rollout.Touched) *controlv1.RolloutRegion {
	region := &controlv1.RolloutRegion{Region: t.Region, AppliedVersion: t.Applied, RevertedVersion: t.Reverted,
		NewerVersion: t.Newer, Trial: t.Trial, TrialEnded: r.TrialsEnded && t.Trial > 0, Part: t.Part()}
	if expected, live, ok := r.TriedBy(t.Region); ok {
		region.NodesExpected, region.NodesLive = int32(expected), int32(live)
	}
	if before, now, ok := r.Watch.RatesOf(t.Region); ok {
		region.Baseline, region.Now = rolloutRates(before), rolloutRates(now)
	}
	return region
}

func rolloutGuardrails(g plan.Guardrails) *controlv1.RolloutGuardrails {
	rails := &controlv1.RolloutGuardrails{
		ErrorsPerMinute: rolloutCeiling(g.ErrorsPerMinute), RowsPerSecond: rolloutCeiling(g.RowsPerSecond),
		DegradedShare: rolloutCeiling(g.DegradedShare),
		ConvergenceMs: rolloutCeiling(g.ConvergenceMs), LatencyUs: rolloutCeiling(g.LatencyUs),
		DeniedShareShift: &g.DeniedShareShift, NodesLostShare: &g.NodesLostShare, Queries: each(g.Queries, queryRail),
		RestartsPerHour: new(int32(g.RestartsPerHour)),
		Comparison: &controlv1.RolloutComparison{ErrorRate: &g.Comparison.ErrorRate, RowsTimes: &g.Comparison.RowsTimes,
			DeniedShift: &g.Comparison.DeniedShift, DegradedShift: &g.Comparison.DegradedShift,
			ErrorsPerMinute: &g.Comparison.ErrorsPerMinute, Off: g.Comparison.Off},
	}
	limitsGuardrails(rails, g.LimitsGuardrails)
	return rails
}

func rolloutCeiling(c plan.Ceiling) *controlv1.RolloutCeiling {
	return &controlv1.RolloutCeiling{Factor: &c.Factor, Least: &c.Least, Off: c.Off}
}

func stageState(r rollout.Rollout, stage int) string {
	switch {
	case r.Phase == rollout.Done || stage < r.Stage:
		return "done"
	case stage > r.Stage:
		return "waiting"
	}
	return "active"
}

func rolloutRates(h fleet.HealthRates) *controlv1.RolloutRates {
	return &controlv1.RolloutRates{
		Nodes: int32(h.Nodes), NodesLost: int32(h.NodesLost),
		ErrorsPerMinute: h.ErrorsPerMinute, RowsPerSecond: h.RowsPerSecond, DegradedShare: h.DegradedShare,
		DeniedShare: h.DeniedShare, ConvergenceMs: h.ConvergenceMs, LatencyUs: h.LatencyUs,
	}
}
