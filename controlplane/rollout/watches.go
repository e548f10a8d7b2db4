package rollout

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
)

// Watches are what a rollout knows of nodes: of every region that it touched, and of those whose baseline it takes.
type Watches []RegionWatch

// enough is the logarithm of the e-value from which on a figure is worse than before: half of the error rate of the
// rollout, shared by all figures of all regions and nodes that are watched.
func (ws Watches) enough(errorRate float64) float64 {
	tests := 0
	for i := range ws {
		tests += counts * (1 + len(ws[i].Nodes))
	}
	return math.Log(float64(max(1, tests)) / (errorRate / 2))
}

// RatesOf returns the rates of a region before its stage and in the newest window, if it is watched.
func (ws Watches) RatesOf(region string) (before, now fleet.HealthRates, ok bool) {
	for i := range ws {
		if w := &ws[i]; w.Region == region {
			return w.before(), w.now(), true
		}
	}
	return before, now, false
}

// ratesOf puts the figures of a stage's regions together, for people.
func (ws Watches) ratesOf(stage int, of func(*RegionWatch) fleet.HealthRates) (all fleet.HealthRates) {
	var parts []fleet.HealthRates
	for i := range ws {
		if w := &ws[i]; w.Stage == stage {
			parts = append(parts, w.own(of(w)))
		}
	}
	return fleet.WorstOf(parts)
}

// unheard names the live nodes that have not spoken, of those that were there during the
// baselines of their stages.
func (ws Watches) unheard(heard func(*RegionWatch, *WatchedNode) bool) string {
	var silent []string
	for i := range ws {
		w := &ws[i]
		for j := range w.Nodes {
			if n := &w.Nodes[j]; !w.Whole && !n.Gone && !n.Came && !heard(w, n) {
				silent = append(silent, n.ID+" in "+w.Region)
			}
		}
	}
	return controlplane.Several(silent)
}

// regionsOf are those of a stage that nodes were seen in.
func (ws Watches) regionsOf(stage int) (regions []string) {
	for _, w := range ws {
		if w.Stage == stage && !slices.Contains(regions, w.Region) {
			regions = append(regions, w.Region)
		}
	}
	return regions
}

// part is the watch of the nodes of a region that a stage takes in; nil: there is none.
func (ws Watches) part(region string, stage int) *WatchedShare {
	for _, w := range ws {
		if w.Region == region && w.Stage == stage && w.Share != nil {
			return w.Share
		}
	}
	return nil
}

// dark names a region of the stage without a live node, that should have one: the plan
// names it, or nodes of it were heard of not long ago.
func (ws Watches) dark(stage StagePlan, look fleet.Look) string {
	for _, region := range stage.Scope.Regions {
		live := slices.ContainsFunc(look.Nodes, func(n fleet.NodeFigures) bool { return n.Region == region })
		if !live && (stage.Named || look.Silent[region] > 0) {
			return fmt.Sprintf("region %s is dark: it has no live node, and %d silent ones", region, look.Silent[region])
		}
	}
	for _, region := range slices.Sorted(maps.Keys(look.Silent)) {
		watched := slices.ContainsFunc(ws, func(w RegionWatch) bool { return w.Region == region })
		if !watched && stage.Scope.Has(region) {
			return fmt.Sprintf("region %s is dark: it has no live node, and %d silent ones", region, look.Silent[region])
		}
	}
	return ""
}
