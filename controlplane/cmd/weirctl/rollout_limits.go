package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/plan"
	"github.com/weirhq/weir/controlplane/internal/limitchange"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/settings"
)

// limitsFlags select the change of a rollout of limits, and its guardrails. Without Limits the other flags are errors.
type limitsFlags struct {
	Limits             string   `placeholder:"FILE" help:"Roll out limits instead of a tuning: a document of namespaces and overrides, or a directory of documents, as apply -f takes it. - is stdin. A tuning in it is left out."`
	Prune              bool     `help:"With --limits: delete overrides that the document lacks, and set namespaces that it lacks to their defaults. Otherwise they stay."`
	NewlyDeniedShare   *float64 `placeholder:"SHARE" help:"With --limits: roll back if only the new limits deny more than this share of the decisions that they change (0 to 1, default 0.01; 1 turns it off)."`
	NewlyDeniedCallers *int64   `placeholder:"N" help:"With --limits: roll back if more callers of a region have such decisions (0 to 1000000, default 10; 1000000 turns it off)."`
	Protect            []string `sep:"none" placeholder:"WORKSPACE/NAMESPACE/PATTERN" help:"With --limits: roll back if only the new limits deny one of these callers; repeat the flag for more. PATTERN is as in an override, and only it can contain a slash."`
}

// check rejects a flag that was given and does not fit --limits.
func (f limitsFlags) check(given string) error {
	switch {
	case f.Limits != "" && slices.Contains([]string{"tuning", "set", "from"}, given):
		return fmt.Errorf("--%s and --limits can't be used together: a rollout changes either the tuning or limits", given)
	case f.Limits == "" && slices.Contains([]string{"prune", "newly-denied-share", "newly-denied-callers", "protect"},
		given):
		return fmt.Errorf("--%s needs --limits: a rollout of a tuning does not have it", given)
	}
	return nil
}

// guard writes the guardrails of the flags into a plan.
func (f limitsFlags) guard(of *controlv1.RolloutPlan) error {
	if f.NewlyDeniedShare == nil && f.NewlyDeniedCallers == nil && len(f.Protect) == 0 {
		return nil
	}
	of.Guardrails = &controlv1.RolloutGuardrails{NewlyDeniedShare: f.NewlyDeniedShare,
		NewlyDeniedCallers: f.NewlyDeniedCallers}
	for _, text := range f.Protect {
		p, err := limitchange.Protected(text)
		if err != nil {
			return fmt.Errorf("--protect: %w", err)
		}
		of.Guardrails.Protected = append(of.Guardrails.Protected, p)
	}
	return nil
}

// checkPlan rejects a plan whose stages or guardrails are only for limits, because a weir-control of an earlier build
// would ignore them and change the fleet. With --limits it rejects a stage with shadow behind a stage without it.
func (f limitsFlags) checkPlan(of *controlv1.RolloutPlan) error {
	if g := of.GetGuardrails(); f.Limits == "" && g != nil &&
		(g.NewlyDeniedShare != nil || g.NewlyDeniedCallers != nil || len(g.GetProtected()) > 0) {
		return errors.New("the plan has guardrails about newly denied callers, which need --limits: a rollout of a tuning " +
			"does not have them")
	}
	enforced := 0
	for i, stage := range of.GetStages() {
		switch {
		case !stage.GetShadow():
			if enforced == 0 {
				enforced = i + 1
			}
		case f.Limits == "":
			return fmt.Errorf("stage %d has shadow, which needs --limits: a tuning cannot be tried without an effect", i+1)
		case enforced > 0:
			return fmt.Errorf("stage %d has shadow, and stage %d does not: stages with shadow come first", i+1, enforced)
		}
	}
	return nil
}

// beginLimits prints the change of limits to stderr, and starts a rollout of it.
func (r rolloutStart) beginLimits(c *call, stages *controlv1.RolloutPlan) error {
	document, err := plan.ReadDocument(r.Limits)
	if err != nil {
		return wrong(err)
	}
	stored, err := c.stored()
	if err != nil {
		return err
	}
	if err := c.knowsRegions(stages, stored.Tunings); err != nil {
		return err
	}
	c.leaveOut(document, stored.Visible)
	if document.Tuning != nil || len(document.RegionTuning) > 0 {
		format.Head(c.stderr, "the tuning in the document is left out: weirctl apply --dry-run compares it")
	}
	p := plan.Of(document, stored, r.Prune)
	writePlan(c.stderr, p, nil)
	if words := c.limitsOf(p); words != "" {
		format.Prose(c.stderr, "", words)
	}
	stored.Tunings = nil // a tuning of a newer build is no obstacle
	from, err := stored.Document()
	if err != nil {
		return err
	}
	change := settings.Difference(from, document, r.Prune)
	if change.Items() == 0 {
		return wrong(errors.New("nothing changes: the stored settings have the values of the document"))
	}
	if err := limitchange.Check(change, stages.GetGuardrails().GetProtected()); err != nil {
		return wrong(err)
	}
	return r.start(c, &controlv1.StartRolloutRequest{Limits: limitchange.Message(change), Plan: stages})
}
