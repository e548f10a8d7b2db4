package plan

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/sequential"
	"github.com/weirhq/weir/controlplane/tunings"
)

const (
	// StagesMax bounds the stages of a plan.
	StagesMax = 20
	// RegionsMax bounds the regions of a fleet that can have rollouts.
	RegionsMax = 500

	leaseDefault = 5 * time.Minute
	leaseMax     = fleet.UnheardKept // looks list a silent node for this long
	leaseLooks   = 3                 // a lease outlasts this many looks
)

// Plan has the stages in which a tuning reaches the fleet, and the guardrails that stop it. Times are whole
// milliseconds, because the plan is part of a durable document.
type Plan struct {
	Stages []Stage `json:"stages"` // 1 to StagesMax

	// BaselineMs is how long the health of a stage's regions is measured before they get the tuning, 0 to 1 h; default 2
	// min. With 0 there is no baseline, so only the fixed bounds of the guardrails apply.
	BaselineMs int64 `json:"baseline_ms"`

	// ApplyTimeoutMs is how long the nodes of a stage may take to report the tuning applied, 1 s to 24 h; default 2 min.
	// After that the rollout is rolled back. It is also rolled back if a region has no live node, or a required query no
	// value, for this long. A rollback that nodes do not follow within this time is reported as trouble.
	ApplyTimeoutMs int64 `json:"apply_timeout_ms"`

	// LeaseMs is how long nodes run the tuning of a trial that the rollout does not renew, 1 s to 1 h; default 5 min.
	// After that they return to the stored tuning by themselves, even if the control plane, Restate or MySQL is down. It
	// must be at least three times the time between two looks, for example 45 s if looks are 15 s apart. It must also be
	// at least three times the time that a change takes to reach nodes.
	LeaseMs int64 `json:"lease_ms"`

	Guardrails Guardrails `json:"guardrails"`

	controlplane.Quorum // for each stage that waits for an approval
}

// Stage is one step of a plan: which regions, how many of their nodes, and how long they are watched. Exactly one of
// Regions, SharePercent and All must be set. Regions that an earlier stage has covered with as many nodes are not
// covered again. The last stage of each region must take in all of its nodes.
//
// For example, Regions: ["eu"] with NodesPercent: 10 tries the tuning on a tenth of the nodes of eu.
type Stage struct {
	Regions      []string `json:"regions,omitempty"`
	SharePercent int      `json:"share_percent,omitempty"` // of all regions, earlier stages included, 1 to 100
	All          bool     `json:"all,omitempty"`           // all other regions, and regions that appear later

	StageNodes

	BakeMs   int64 `json:"bake_ms"`            // how long health is watched, 100 ms to 7 days
	Approval bool  `json:"approval,omitempty"` // people must approve before the stage begins

	// Shadow is for a rollout of limits: nodes decide as before, and count what the new limits would decide. Stages with
	// Shadow come first. The stages without it cover all regions and nodes again.
	Shadow bool `json:"shadow,omitempty"`
}

// DefaultPlan returns a plan without stages and with the defaults named at the fields.
func DefaultPlan() Plan {
	return Plan{
		BaselineMs:     (2 * time.Minute).Milliseconds(),
		ApplyTimeoutMs: (2 * time.Minute).Milliseconds(),
		LeaseMs:        leaseDefault.Milliseconds(),
		Guardrails:     DefaultGuardrails(),
		Quorum:         controlplane.Quorum{Approvers: 1, ApprovalTTLMs: controlplane.ApprovalTTLDefault.Milliseconds()},
	}
}

// Validate reports the first field outside its bounds.
func (p Plan) Validate() error {
	if n := len(p.Stages); n < 1 || n > StagesMax {
		return fmt.Errorf("%w: the plan has %d stages (1 to %d)", controlplane.ErrInvalid, n, StagesMax)
	}
	for i, s := range p.Stages {
		if err := s.validate(); err != nil {
			return fmt.Errorf("stage %d: %w", i+1, err)
		}
		if s.All && s.StageNodes.All() && i < len(p.Stages)-1 && s.Shadow == p.Stages[i+1].Shadow {
			return fmt.Errorf("%w: stage %d covers all regions and is not the last", controlplane.ErrInvalid, i+1)
		}
	}
	if err := controlplane.ValidateMs("baseline_ms", p.BaselineMs, 0, time.Hour); err != nil {
		return err
	}
	if err := controlplane.ValidateMs("apply_timeout_ms", p.ApplyTimeoutMs, time.Second, 24*time.Hour); err != nil {
		return err
	}
	if err := p.validateLease(); err != nil {
		return err
	}
	if err := p.Quorum.Validate(); err != nil {
		return err
	}
	return p.Guardrails.Validate()
}

// ValidateForTuning rejects fields that only rollouts of limits may set.
func (p Plan) ValidateForTuning() error {
	for i, s := range p.Stages {
		if s.Shadow {
			return fmt.Errorf("%w: stage %d has shadow, and the rollout is of a tuning: only limits have a shadow",
				controlplane.ErrInvalid, i+1)
		}
	}
	if field := p.Guardrails.LimitsGuardrails.named(); field != "" {
		return fmt.Errorf("%w: guardrail %s is set, and the rollout is of a tuning: it bounds changes of limits",
			controlplane.ErrInvalid, field)
	}
	return nil
}

// ValidateForLimits checks the order of stages with and without shadow.
func (p Plan) ValidateForLimits() error {
	for i := 1; i < len(p.Stages); i++ {
		if p.Stages[i].Shadow && !p.Stages[i-1].Shadow {
			return fmt.Errorf("%w: stage %d has shadow, and stage %d has not: stages with shadow come first",
				controlplane.ErrInvalid, i+1, i)
		}
	}
	if last := p.Stages[len(p.Stages)-1]; !last.All || !last.StageNodes.All() || last.Shadow {
		return fmt.Errorf("%w: stage %d is the last: with limits, the last stage must have all, all nodes, and no shadow, "+
			"because limits belong to the whole fleet", controlplane.ErrInvalid, len(p.Stages))
	}
	return nil
}

// validateLease rejects a lease so short that a failed or late look would end it.
func (p Plan) validateLease() error {
	least := max(time.Second, leaseLooks*p.PollEvery())
	for _, s := range p.Stages {
		least = max(least, leaseLooks*lookEvery(s.BakeMs))
	}
	return controlplane.ValidateMs("lease_ms", p.LeaseMs, least, leaseMax)
}

// PollEvery returns the time between two looks while the rollout waits for nodes.
func (p Plan) PollEvery() time.Duration {
	return min(max(msOf(p.ApplyTimeoutMs)/60, 100*time.Millisecond), 5*time.Second)
}

// waitMax bounds the time between two looks while the rollout waits for a person.
const waitMax = 15 * time.Second

// TroubleEvery returns the time between two looks while nodes do not follow a rollback in time.
func (p Plan) TroubleEvery() time.Duration {
	return max(p.PollEvery(), min(waitMax, msOf(p.ApplyTimeoutMs)))
}

// WaitEvery returns the time between two looks while a stage waits for a person. However short the bake is, it is short
// enough to renew leases.
func (p Plan) WaitEvery(s StagePlan) time.Duration {
	return max(s.WatchEvery(), min(msOf(p.LeaseMs)/leaseLooks, waitMax))
}

// SampleEvery returns the time between two looks while a baseline is taken. It gives twice as many looks as a
// comparison needs.
func (p Plan) SampleEvery() time.Duration {
	return min(max(msOf(p.BaselineMs)/(2*sequential.Least), 50*time.Millisecond), 10*time.Second)
}

// BakeMaxMs returns how long the bake of a stage can take before it is paused: three times the plan's bake, plus
// apply_timeout_ms.
func (p Plan) BakeMaxMs(s StagePlan) int64 { return 3*s.BakeMs + p.ApplyTimeoutMs }

// lookEvery returns the time between two looks at watched regions: twenty looks per bake, and at least four per minute.
func lookEvery(bakeMs int64) time.Duration {
	return min(max(msOf(bakeMs)/20, 50*time.Millisecond), 15*time.Second)
}

func (s Stage) validate() error {
	said := 0
	for _, b := range []bool{len(s.Regions) > 0, s.SharePercent != 0, s.All} {
		if b {
			said++
		}
	}
	if said != 1 {
		return fmt.Errorf("%w: want exactly one of regions, share_percent and all", controlplane.ErrInvalid)
	}
	if s.SharePercent < 0 || s.SharePercent > 100 {
		return fmt.Errorf("%w: share_percent is %d (1 to 100)", controlplane.ErrInvalid, s.SharePercent)
	}
	for _, r := range s.Regions {
		if err := controlplane.ValidateText("region", r, tunings.RegionBytesMax); err != nil {
			return err
		}
	}
	if err := s.StageNodes.Validate(); err != nil {
		return err
	}
	return controlplane.ValidateMs("bake_ms", s.BakeMs, 100*time.Millisecond, 7*24*time.Hour)
}

func msOf(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
