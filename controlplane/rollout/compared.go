package rollout

import (
	"slices"

	"github.com/weirhq/weir/controlplane/fleet"
)

// beginSlot forgets what a slot has so far: it began before what is to be measured.
func (c *Compared) beginSlot(nowMs int64) {
	c.SlotMs = nowMs
	for i := range c.Regions {
		for n := range c.Regions[i].Nodes {
			c.Regions[i].Nodes[n].Slot = fleet.Span{}
		}
	}
}

// control are the regions that go without the tuning. A region that is new is no part of it.
func (c *Compared) control(touched fleet.Scope) map[string]bool {
	without := map[string]bool{}
	for _, of := range c.Regions {
		without[of.Region] = !touched.Has(of.Region)
	}
	return without
}

// lostElsewhere is the share of their nodes that regions without the tuning have lost since the stage was applied.
func (c *Compared) lostElsewhere(touched fleet.Scope) float64 {
	were, gone := 0, 0
	for region, without := range c.control(touched) {
		if !without {
			continue
		}
		for _, n := range c.region(region).Nodes {
			if n.Came || n.Left {
				continue
			}
			were++
			if n.Gone {
				gone++
			}
		}
	}
	return float64(gone) / float64(max(1, were))
}

// addBeside takes in how far the nodes of a stage are from those of their regions that go without the tuning. They are
// the nodes that the baseline was of: those that have come since are in neither group, and as long as one is gone
// nothing is taken in. Nodes differ, so that a group of others would be another one for no fault of the tuning.
func (c *Compared) addBeside(nodes []ComparedSeries) {
	for i := range nodes {
		s := &nodes[i]
		s.Against = 0
		var difference *Sample
		if of := c.region(s.Region).stayed(); of != nil {
			difference, s.Against = of.beside(*s.Share)
		}
		if difference == nil {
			continue
		}
		for f, v := range difference {
			addSince(&s.Series[f], v)
		}
	}
}

// series is how many series there may be at most, which share the error rate.
func (c *Compared) series(stages StagePlans) (n int) {
	each := 1
	if slices.ContainsFunc(stages, func(s StagePlan) bool { return !s.All() }) {
		each = 2 // a region, and the nodes of it
	}
	named := fleet.Scope{}
	for _, s := range stages {
		n += each*len(s.Scope.Regions) + 1
		named.Regions = append(named.Regions, s.Scope.Regions...)
	}
	for _, of := range c.Regions {
		if !named.Has(of.Region) { // it has come since, and any stage may take it in
			n += each * len(stages)
		}
	}
	return n
}
