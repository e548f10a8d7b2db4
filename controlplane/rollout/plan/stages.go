package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
)

// gaugeLasts is how long a measured figure (not a count) must be beyond its bound to break a guardrail. It is longer
// than any single measurement stays in heartbeats: a minute for latency, heartbeat.LagKeptFor for the convergence
// delay.
const gaugeLasts = 2 * time.Minute

// windowMax bounds the window by which a stage is judged, so that older figures do not dilute newer ones.
const windowMax = 5 * time.Minute

// Resolve returns the regions that each stage covers in a fleet of these regions. It leaves out a stage whose share of
// regions was already reached by earlier stages.
func (p Plan) Resolve(known []string) (StagePlans, error) {
	known = slices.Compact(slices.Sorted(slices.Values(known)))
	if len(known) > RegionsMax {
		return nil, fmt.Errorf("%w: the fleet has %d regions (at most %d)", controlplane.ErrInvalid, len(known),
			RegionsMax)
	}
	var stages StagePlans
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

// WatchEvery returns the time between two looks at watched regions.
func (s StagePlan) WatchEvery() time.Duration { return lookEvery(s.BakeMs) }

// WindowMs returns the length of the window by which the stage is judged.
func (s StagePlan) WindowMs() int64 { return min(s.BakeMs, windowMax.Milliseconds()) }

// Borne returns how long a measured figure (not a count) can be beyond its bound without breaking it.
func (s StagePlan) Borne() time.Duration { return min(msOf(s.WindowMs())/2, gaugeLasts) }

// StagePlans are the stages of a rollout, in order.
type StagePlans []StagePlan

// InParts reports whether the nodes of a region get the tuning in several stages of a mode.
func (s StagePlans) InParts(region string, shadow bool) bool {
	first := s.First(region, shadow)
	return first >= 0 && !s[first].All()
}

// First returns the first stage of a mode that covers a region, or a negative number if there is none.
func (s StagePlans) First(region string, shadow bool) int {
	return slices.IndexFunc(s, func(s StagePlan) bool { return s.Shadow == shadow && s.Scope.Has(region) })
}

// Before returns the last stage before the given stage that takes in a region; less than 0: none.
func (s StagePlans) Before(stage int, region string) int {
	for stage--; stage >= 0 && !s[stage].Scope.Has(region); stage-- {
	}
	return stage
}
