package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/sequential"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
)

const (
	// IDBytesMax bounds the ID of a rollout.
	IDBytesMax = 64
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

// validateLease rejects a lease so short that a failed or late look would end it.
func (p Plan) validateLease() error {
	least := max(time.Second, leaseLooks*p.pollEvery())
	for _, s := range p.Stages {
		least = max(least, leaseLooks*lookEvery(s.BakeMs))
	}
	return controlplane.ValidateMs("lease_ms", p.LeaseMs, least, leaseMax)
}

// pollEvery returns the time between two looks while the rollout waits for nodes.
func (p Plan) pollEvery() time.Duration {
	timeout := time.Duration(p.ApplyTimeoutMs) * time.Millisecond
	return min(max(timeout/60, 100*time.Millisecond), 5*time.Second)
}

// waitMax bounds the time between two looks while the rollout waits for a person.
const waitMax = 15 * time.Second

// waitEvery returns the time between two looks while a stage waits for a person. However short the bake is, it is short
// enough to renew leases.
func (p Plan) waitEvery(s StagePlan) time.Duration {
	return max(s.watchEvery(), min(msOf(p.LeaseMs)/leaseLooks, waitMax))
}

// sampleEvery returns the time between two looks while a baseline is taken. It gives twice as many looks as a
// comparison needs.
func (p Plan) sampleEvery() time.Duration {
	return min(max(msOf(p.BaselineMs)/(2*sequential.Least), 50*time.Millisecond), 10*time.Second)
}

// bakeMaxMs returns how long the bake of a stage can take before it is paused: three times the plan's bake, plus
// apply_timeout_ms.
func (p Plan) bakeMaxMs(s StagePlan) int64 { return 3*s.BakeMs + p.ApplyTimeoutMs }

// lookEvery returns the time between two looks at watched regions: twenty looks per bake, and at least four per minute.
func lookEvery(bakeMs int64) time.Duration {
	return min(max(time.Duration(bakeMs)*time.Millisecond/20, 50*time.Millisecond), 15*time.Second)
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

// ValidateID rejects IDs that are empty, too long, or have other characters than letters, digits, '-', '_' and '.'. A
// valid ID is, for example, "flush-50ms".
func ValidateID(id string) error {
	if err := controlplane.ValidateText("id", id, IDBytesMax); err != nil {
		return err
	}
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	}
	if i := strings.IndexFunc(id, odd); i >= 0 {
		return fmt.Errorf("%w: id %q may have letters, digits, '-', '_' and '.' only", controlplane.ErrInvalid, id)
	}
	return nil
}

// Spec is the subject and the plan that an operator starts a rollout with. The subject is either a tuning or a change
// of limits.
type Spec struct {
	Tuning string           `json:"tuning"`           // a document of package tuning; empty with Limits
	Limits *settings.Change `json:"limits,omitempty"` // nil: the rollout has a tuning
	Plan   Plan             `json:"plan"`
}

// Validate reports an error in the subject or the plan, or the first setting of the tuning that does not fit the plan's
// times.
func (s Spec) Validate() error {
	if s.Limits != nil {
		return s.validateLimits()
	}
	set, err := tuning.Parse([]byte(s.Tuning))
	if err != nil {
		return fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	if err := s.Plan.Validate(); err != nil {
		return err
	}
	if err := s.Plan.withoutLimits(); err != nil {
		return err
	}
	return checkTimes(set, tuning.Times{Lease: time.Duration(s.Plan.LeaseMs) * time.Millisecond,
		ApplyTimeout: time.Duration(s.Plan.ApplyTimeoutMs) * time.Millisecond})
}

// checkTimes is tuning.CheckTimes with an error that wraps controlplane.ErrInvalid.
func checkTimes(set tuning.Tuning, of tuning.Times) error {
	if err := set.CheckTimes(of); err != nil {
		return fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	return nil
}

// WholeTuning returns the tuning with every field present, so that a later change of defaults does not change the
// tuning of this rollout.
func (s Spec) WholeTuning() (string, error) {
	t, err := tuning.Parse([]byte(s.Tuning))
	if err != nil {
		return "", fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	b, err := t.Document()
	return string(b), err
}

// resolve returns the regions that each stage covers in a fleet of these regions. It leaves out a stage whose share of
// regions was already reached by earlier stages.
func (p Plan) resolve(known []string) ([]StagePlan, error) {
	known = slices.Compact(slices.Sorted(slices.Values(known)))
	if len(known) > RegionsMax {
		return nil, fmt.Errorf("%w: the fleet has %d regions (at most %d)", controlplane.ErrInvalid, len(known),
			RegionsMax)
	}
	var stages []StagePlan
	reached := coverage{of: map[string]StageNodes{}}
	for i, s := range p.Stages {
		if i > 0 && s.Shadow != p.Stages[i-1].Shadow {
			reached = coverage{of: map[string]StageNodes{}}
		}
		want, err := s.regions(i+1, known, reached.order)
		if err != nil {
			return nil, err
		}
		take := reached.new(want, s.StageNodes)
		rest := s.All && (reached.rest == nil || s.more(*reached.rest))
		if len(take) == 0 && !rest {
			if !s.StageNodes.All() {
				return nil, fmt.Errorf("%w: stage %d takes in nothing new: earlier stages take in as many nodes of %s, or more",
					controlplane.ErrInvalid, i+1, strings.Join(want, ", "))
			}
			continue
		}
		stages = append(stages, StagePlan{
			Scope: fleet.Scope{Regions: take, Rest: rest, Not: reached.but(take)}, StageNodes: s.StageNodes,
			BakeMs: s.BakeMs, Approval: s.Approval, Named: len(s.Regions) > 0, Shadow: s.Shadow,
		})
		reached.add(take, rest, s.StageNodes)
	}
	if len(stages) == 0 {
		return nil, fmt.Errorf("%w: no stage of the plan covers a region", controlplane.ErrInvalid)
	}
	return stages, reached.ends()
}

// regions returns the regions of a stage in a fleet. A share of them begins with the regions that earlier stages have
// reached.
func (s Stage) regions(stage int, known, reached []string) (names []string, err error) {
	switch {
	case s.All:
		return known, nil
	case s.SharePercent > 0:
		left := slices.DeleteFunc(slices.Clone(known), func(r string) bool { return slices.Contains(reached, r) })
		return slices.Concat(reached, left)[:(len(known)*s.SharePercent+99)/100], nil
	}
	for _, r := range s.Regions {
		if !slices.Contains(known, r) {
			return nil, fmt.Errorf("%w: stage %d: region %q has no live node and no tuning of its own (known: %s)",
				controlplane.ErrInvalid,
				stage, r, strings.Join(known, ", "))
		}
		if !slices.Contains(names, r) {
			names = append(names, r)
		}
	}
	return names, nil
}

// coverage is the regions and nodes that stages have reached.
type coverage struct {
	order []string              // regions, in the order in which they were reached
	of    map[string]StageNodes // the share of nodes of each region
	rest  *StageNodes           // of all other regions, present or future; nil: not reached
}

// new returns the regions in which a share takes in nodes that have not been reached.
func (c *coverage) new(regions []string, share StageNodes) (take []string) {
	for _, r := range regions {
		if was, reached := c.of[r]; !reached || share.more(was) {
			take = append(take, r)
		}
	}
	return take
}

// but returns the regions that have been reached, except some.
func (c *coverage) but(some []string) []string {
	return slices.DeleteFunc(slices.Clone(c.order), func(r string) bool { return slices.Contains(some, r) })
}

func (c *coverage) add(regions []string, rest bool, share StageNodes) {
	c.order = append(c.but(regions), regions...)
	for _, r := range regions {
		c.of[r] = share
	}
	if rest {
		c.rest = &share
	}
}

// ends rejects a plan that leaves nodes of a region without the tuning. The tuning is stored for all nodes at the end,
// so these nodes would get it unwatched.
func (c *coverage) ends() error {
	refuse := func(share StageNodes, name string) error {
		return fmt.Errorf("%w: the plan ends with %s of %s: the last stage of a region takes in all of its nodes",
			controlplane.ErrInvalid,
			share, name)
	}
	for _, r := range c.order {
		if share := c.of[r]; !share.All() {
			return refuse(share, "region "+r)
		}
	}
	if c.rest != nil && !c.rest.All() {
		return refuse(*c.rest, "all other regions")
	}
	return nil
}

// StagePlan is a stage with the names of its regions in a fleet.
type StagePlan struct {
	Scope fleet.Scope `json:"scope"`
	StageNodes
	BakeMs   int64 `json:"bake_ms"`
	Approval bool  `json:"approval,omitempty"`
	Named    bool  `json:"named,omitempty"`  // the plan names each region
	Shadow   bool  `json:"shadow,omitempty"` // see Stage.Shadow
}

// String names the regions, and how many of their nodes unless all.
func (s StagePlan) String() string {
	switch {
	case s.All():
		return s.Scope.String()
	case s.Scope.Rest || len(s.Scope.Regions) > 1:
		return fmt.Sprintf("%s each of %s", s.StageNodes, s.Scope)
	}
	return fmt.Sprintf("%s of %s", s.StageNodes, s.Scope)
}

// watchEvery returns the time between two looks at watched regions.
func (s StagePlan) watchEvery() time.Duration { return lookEvery(s.BakeMs) }

// windowMs returns the length of the window by which the stage is judged.
func (s StagePlan) windowMs() int64 { return min(s.BakeMs, windowMax.Milliseconds()) }

// borne returns how long a measured figure (not a count) can be beyond its bound without breaking it.
func (s StagePlan) borne() time.Duration { return min(msOf(s.windowMs())/2, gaugeLasts) }

// StagePlans are the stages of a rollout, in order.
type StagePlans []StagePlan

// inParts reports whether the nodes of a region get the tuning in several stages of a mode.
func (s StagePlans) inParts(region string, shadow bool) bool {
	first := s.first(region, shadow)
	return first >= 0 && !s[first].All()
}

// first returns the first stage of a mode that covers a region, or a negative number if there is none.
func (s StagePlans) first(region string, shadow bool) int {
	return slices.IndexFunc(s, func(s StagePlan) bool { return s.Shadow == shadow && s.Scope.Has(region) })
}

// before returns the last stage before the given stage that takes in a region; less than 0: none.
func (s StagePlans) before(stage int, region string) int {
	for stage--; stage >= 0 && !s[stage].Scope.Has(region); stage-- {
	}
	return stage
}
