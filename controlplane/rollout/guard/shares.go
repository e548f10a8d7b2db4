package guard

import (
	"slices"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/shared/tuning"
)

// WatchedShare selects the nodes of a region that a stage takes in: nodes whose tuning.TrialShare is at least From,
// because earlier stages have reached the nodes below From, and less than Below.
type WatchedShare struct {
	From  int64 `json:"from,omitempty"`
	Below int64 `json:"below"`
}

// has reports whether the watch includes a node.
func (w *RegionWatch) has(id string) bool {
	return w.Share == nil || w.Share.has(id)
}

func (s WatchedShare) has(id string) bool {
	share := tuning.TrialShare(id)
	return s.From <= share && share < s.Below
}

// Aim returns the bound that the stage sets for a region, by the nodes that it had when its baseline began.
func (j *Judge) Aim(region string) int64 {
	if part := j.Watch.part(region, j.Stage); part != nil {
		return part.Below
	}
	return j.aim(region, nil)
}

// aim returns the bound that the stage sets for a region with these nodes. Regions that have come since the rollout
// began follow the fleet's row, so their nodes do not matter.
func (j *Judge) aim(region string, nodes []fleet.NodeFigures) int64 {
	bound := j.stage().Below(nil)
	if slices.Contains(j.stage().Scope.Regions, region) {
		bound = j.stage().Below(nodes)
	}
	return max(bound, j.Reached(region, j.stage().Shadow))
}

// watchParts begins to watch a region whose nodes get the tuning in several stages. It adds one watch of the whole
// region, for the region's own figures, and one watch for the nodes of each stage, because they have a baseline of
// their own.
func (j *Judge) watchParts(region string, nodes []fleet.NodeFigures, shadow bool) {
	from := j.Reached(region, shadow)
	last := j.stageOf(region)
	if !slices.ContainsFunc(j.Watch, func(w RegionWatch) bool { return w.Region == region }) {
		first := j.Stages.First(region, shadow)
		j.Watch = append(j.Watch, RegionWatch{Region: region, Stage: first, BucketMs: j.NowMs, Whole: true})
		if from > 0 {
			if j.Step == Measuring && last == j.Stage {
				last = j.Stages.Before(j.Stage, region)
			}
			j.Watch = append(j.Watch, RegionWatch{Region: region, Stage: last, BucketMs: j.NowMs,
				Share: &WatchedShare{Below: from}})
		}
	}
	if j.Step == Measuring && j.stage().Scope.Has(region) && j.Watch.part(region, j.Stage) == nil {
		j.Watch = append(j.Watch, RegionWatch{Region: region, Stage: j.Stage, BucketMs: j.NowMs,
			Share: &WatchedShare{From: from, Below: j.aim(region, nodes)}})
	}
}

// stageOf returns the last stage that has begun and includes a region.
func (j *Judge) stageOf(region string) int {
	if j.Step != Waiting && j.stage().Scope.Has(region) {
		return j.Stage
	}
	return j.Stages.Before(j.Stage, region)
}
