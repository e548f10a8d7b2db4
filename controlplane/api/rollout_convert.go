package api

import (
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/rollout"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// bakeDefault is how long a stage bakes that does not say.
const bakeDefault = 5 * time.Minute

// rolloutPlan reads a plan; what it leaves out has its default.
func rolloutPlan(p *controlv1.RolloutPlan) rollout.Plan {
	plan := rollout.DefaultPlan()
	set(&plan.BaselineMs, p.GetBaselineMs(), p != nil && p.BaselineMs != nil)
	set(&plan.ApplyTimeoutMs, p.GetApplyTimeoutMs(), p != nil && p.ApplyTimeoutMs != nil)
	set(&plan.LeaseMs, p.GetLeaseMs(), p != nil && p.LeaseMs != nil)
	set(&plan.Approvers, int(p.GetApprovers()), p != nil && p.Approvers != nil)
	set(&plan.ApprovalTTLMs, p.GetApprovalTtlMs(), p != nil && p.ApprovalTtlMs != nil)
	for _, s := range p.GetStages() {
		stage := rollout.Stage{
			Regions: s.GetRegions(), SharePercent: int(s.GetSharePercent()), All: s.GetAll(),
			BakeMs: bakeDefault.Milliseconds(), Approval: s.GetApproval(),
			StageNodes: rollout.StageNodes{NodesPercent: int(s.GetNodesPercent()), Nodes: int(s.GetNodes())},
		}
		set(&stage.BakeMs, s.GetBakeMs(), s.BakeMs != nil)
		plan.Stages = append(plan.Stages, stage)
	}
	g := p.GetGuardrails()
	if g == nil {
		return plan
	}
	rails := &plan.Guardrails
	for to, from := range map[*rollout.Ceiling]*controlv1.RolloutCeiling{
		&rails.ErrorsPerMinute: g.GetErrorsPerMinute(),
		&rails.RowsPerSecond:   g.GetRowsPerSecond(),
		&rails.DegradedShare:   g.GetDegradedShare(),
		&rails.ConvergenceMs:   g.GetConvergenceMs(),
		&rails.LatencyUs:       g.GetLatencyUs(),
	} {
		if from != nil {
			to.Off = from.GetOff()
			set(&to.Factor, from.GetFactor(), from.Factor != nil)
			set(&to.Least, from.GetLeast(), from.Least != nil)
		}
	}
	set(&rails.DeniedShareShift, g.GetDeniedShareShift(), g.DeniedShareShift != nil)
	set(&rails.NodesLostShare, g.GetNodesLostShare(), g.NodesLostShare != nil)
	set(&rails.RestartsPerHour, int(g.GetRestartsPerHour()), g.RestartsPerHour != nil)
	planComparison(&rails.Comparison, g.GetComparison())
	rails.Queries = planQueries(g.GetQueries())
	return plan
}

func planComparison(to *rollout.Comparison, from *controlv1.RolloutComparison) {
	if from == nil {
		return
	}
	to.Off = from.GetOff()
	set(&to.ErrorRate, from.GetErrorRate(), from.ErrorRate != nil)
	set(&to.RowsTimes, from.GetRowsTimes(), from.RowsTimes != nil)
	set(&to.DeniedShift, from.GetDeniedShift(), from.DeniedShift != nil)
	set(&to.DegradedShift, from.GetDegradedShift(), from.DegradedShift != nil)
	set(&to.ErrorsPerMinute, from.GetErrorsPerMinute(), from.ErrorsPerMinute != nil)
}

// set is *to = value where it was given.
func set[T any](to *T, value T, given bool) {
	if given {
		*to = value
	}
}

func rolloutAnswer(r rollout.Rollout) *controlv1.Rollout {
	answer := &controlv1.Rollout{
		Id: r.ID, Actor: r.By.Actor, Reason: r.By.Reason, StartedAtMs: r.StartedMs, EndedAtMs: r.EndedMs,
		Phase: string(r.Phase), Stage: int32(r.Stage + 1), DueAtMs: r.DueMs,
		Why: valid(r.Why), Trouble: valid(r.Trouble), Waiting: valid(r.Waiting), Unknown: valid(r.Unknown),
		Tuning: r.Document, Baseline: rolloutRates(r.Baseline), Now: rolloutRates(r.Now),
		Guardrails: rolloutGuardrails(r.Spec.Plan.Guardrails), Queries: queryValues(r), Asked: r.Asked,
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
			NodesPercent: int32(s.NodesPercent), Nodes: int32(s.Nodes),
		})
	}
	for _, t := range r.Touched {
		answer.Regions = append(answer.Regions, rolloutRegion(&r, t))
	}
	for _, rail := range r.Rails() {
		answer.Rails = append(answer.Rails, &controlv1.RolloutRail{Field: rail.Field, Region: valid(rail.Region),
			Node: valid(rail.Node), Before: rail.Before, Now: rail.Now, Most: rail.Most, Least: rail.Least, Margin: rail.Margin,
			Confidence: rail.Confidence, Low: rail.Low, High: rail.High})
	}
	for _, e := range r.Events {
		answer.Events = append(answer.Events, &controlv1.RolloutEvent{AtMs: e.AtMs, Actor: e.Actor, What: e.What,
			Text: valid(e.Text)})
	}
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

func rolloutGuardrails(g rollout.Guardrails) *controlv1.RolloutGuardrails {
	restarts := int32(g.RestartsPerHour)
	return &controlv1.RolloutGuardrails{
		ErrorsPerMinute: rolloutCeiling(g.ErrorsPerMinute), RowsPerSecond: rolloutCeiling(g.RowsPerSecond),
		DegradedShare: rolloutCeiling(g.DegradedShare),
		ConvergenceMs: rolloutCeiling(g.ConvergenceMs), LatencyUs: rolloutCeiling(g.LatencyUs),
		DeniedShareShift: &g.DeniedShareShift, NodesLostShare: &g.NodesLostShare, Queries: queryRails(g.Queries),
		RestartsPerHour: &restarts,
		Comparison: &controlv1.RolloutComparison{ErrorRate: &g.Comparison.ErrorRate, RowsTimes: &g.Comparison.RowsTimes,
			DeniedShift: &g.Comparison.DeniedShift, DegradedShift: &g.Comparison.DegradedShift,
			ErrorsPerMinute: &g.Comparison.ErrorsPerMinute, Off: g.Comparison.Off},
	}
}

func rolloutCeiling(c rollout.Ceiling) *controlv1.RolloutCeiling {
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
