package api

import (
	"github.com/weirhq/weir/controlplane/rollout/guard"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/heartbeat"
	settingsdoc "github.com/weirhq/weir/shared/settings"
)

// planLimits reads the guardrails of limits. Fields that are absent stay nil: see defaultLimits.
func planLimits(g *controlv1.RolloutGuardrails) (rails plan.LimitsGuardrails) {
	rails.NewlyDeniedShare, rails.NewlyDeniedCallers = g.NewlyDeniedShare, g.NewlyDeniedCallers
	for _, p := range g.GetProtected() {
		rails.Protected = append(rails.Protected, settingsdoc.Protected{Workspace: p.GetWorkspace(),
			Namespace: p.GetNamespace(), Pattern: p.GetPattern()})
	}
	return rails
}

// defaultLimits sets the bounds that a plan of a rollout of limits lacks.
func defaultLimits(rails *plan.LimitsGuardrails) {
	standard := plan.DefaultLimitsGuardrails()
	if rails.NewlyDeniedShare == nil {
		rails.NewlyDeniedShare = standard.NewlyDeniedShare
	}
	if rails.NewlyDeniedCallers == nil {
		rails.NewlyDeniedCallers = standard.NewlyDeniedCallers
	}
}

func limitsGuardrails(to *controlv1.RolloutGuardrails, from plan.LimitsGuardrails) {
	to.NewlyDeniedShare, to.NewlyDeniedCallers = from.NewlyDeniedShare, from.NewlyDeniedCallers
	to.Protected = each(from.Protected, func(p settingsdoc.Protected) *controlv1.ProtectedCaller {
		return &controlv1.ProtectedCaller{Workspace: valid(p.Workspace), Namespace: valid(p.Namespace),
			Pattern: valid(p.Pattern)}
	})
}

func evidenceAnswer(e guard.LimitsEvidence) *controlv1.LimitsEvidence {
	answer := &controlv1.LimitsEvidence{Judged: e.Judged, DeniedBefore: e.DeniedBefore, DeniedAfter: e.DeniedAfter,
		NewlyDenied: e.NewlyDenied, Callers: e.Callers, Protected: e.Protected, Nodes: int32(e.Nodes)}
	answer.Namespaces = each(e.Namespaces, func(n heartbeat.LimitsNamespace) *controlv1.LimitsEvidenceNamespace {
		return &controlv1.LimitsEvidenceNamespace{Workspace: valid(string(n.Workspace)),
			Namespace: valid(string(n.Namespace)), Judged: n.Judged, DeniedBefore: n.DeniedBefore, DeniedAfter: n.DeniedAfter,
			NewlyDenied: n.NewlyDenied}
	})
	answer.Top = each(e.Top, func(c guard.AffectedCaller) *controlv1.LimitsEvidenceCaller {
		return &controlv1.LimitsEvidenceCaller{Workspace: valid(string(c.Workspace)), Namespace: valid(string(c.Namespace)),
			Identifier: valid(string(c.Identifier)), DurationMs: c.DurationMs, Limit: c.Limit, NewlyDenied: c.Count,
			Protected: c.Protected}
	})
	return answer
}
