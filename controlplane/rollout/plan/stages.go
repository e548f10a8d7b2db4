package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/shared/tuning"
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

// StageNodes is the number or the share of a region's nodes that run the tuning in a stage, including nodes of earlier
// stages. At most one of the fields can be set; the zero value means all nodes. For example, NodesPercent: 10 takes in
// 3 of 25 nodes.
//
// Nodes are chosen by tuning.TrialShare, a hash of their IDs: when the stage's baseline begins, the stage gets the
// lowest bound below which enough of the live nodes are. A node that joins later runs the tuning if its hash is below
// the bound.
type StageNodes struct {
	NodesPercent int `json:"nodes_percent,omitempty"` // 1 to 100, rounded up to whole nodes
	Nodes        int `json:"nodes,omitempty"`         // 1 to fleet.NodesMax; a region with fewer nodes takes in all
}

// Validate reports the first field outside its bounds.
func (s StageNodes) Validate() error {
	switch {
	case s.NodesPercent != 0 && s.Nodes != 0:
		return fmt.Errorf("%w: nodes_percent is %d and nodes is %d: at most one of them may be set", controlplane.ErrInvalid,
			s.NodesPercent,
			s.Nodes)
	case s.NodesPercent < 0 || s.NodesPercent > 100:
		return fmt.Errorf("%w: nodes_percent is %d (1 to 100)", controlplane.ErrInvalid, s.NodesPercent)
	case s.Nodes < 0 || s.Nodes > fleet.NodesMax:
		return fmt.Errorf("%w: nodes is %d (1 to %d)", controlplane.ErrInvalid, s.Nodes, fleet.NodesMax)
	}
	return nil
}

// All reports whether the stage takes in all nodes of a region.
func (s StageNodes) All() bool { return s.Nodes == 0 && (s.NodesPercent == 0 || s.NodesPercent == 100) }

func (s StageNodes) String() string {
	switch {
	case s.All():
		return "all nodes"
	case s.Nodes > 0:
		return controlplane.CountOf(s.Nodes, "node", "nodes")
	}
	return fmt.Sprintf("%d%% of the nodes", s.NodesPercent)
}

// more reports whether s may take in nodes that another share does not. A number and a percentage can only be compared
// once the nodes are counted, so for them it returns true.
func (s StageNodes) more(than StageNodes) bool {
	switch {
	case s.All() || than.All():
		return !than.All()
	case s.Nodes > 0 && than.Nodes > 0:
		return s.Nodes > than.Nodes
	case s.NodesPercent > 0 && than.NodesPercent > 0:
		return s.NodesPercent > than.NodesPercent
	}
	return true
}

// Below returns the least trial bound that takes in this share of the nodes. Without nodes it returns the percentage of
// all shares, or 1 for a number of nodes.
func (s StageNodes) Below(nodes []fleet.NodeFigures) int64 {
	want := s.Nodes
	if s.NodesPercent > 0 {
		want = (len(nodes)*s.NodesPercent + 99) / 100
	}
	switch {
	case s.All():
		return tuning.TrialShares
	case len(nodes) == 0 && s.Nodes > 0:
		return 1
	case len(nodes) == 0:
		return tuning.TrialShares / 100 * int64(s.NodesPercent)
	case want > len(nodes):
		return tuning.TrialShares
	}
	shares := make([]int64, len(nodes))
	for i, n := range nodes {
		shares[i] = tuning.TrialShare(n.ID)
	}
	slices.Sort(shares)
	return shares[want-1] + 1
}
