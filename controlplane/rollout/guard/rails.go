package guard

import (
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/rollout/plan"
)

// Rail is the state of a guardrail: the figures of the region or node with the least margin.
type Rail struct {
	Field        string // as in Guardrails' JSON, or dropped_cost, whose bound is 0
	Region, Node string // empty Node: the region's; both empty: not measured
	Before, Now  *float64
	Most         *float64 // nil: off
	Least        *float64 // the lower bound of the share of denied decisions
	Margin       *float64 // unused part of the bound, 1: all of it; below 0: broken; nil: not measured, or off

	// For a comparison: the confidence that the tuning adds more than Most, and the interval of the amount that it adds;
	// nil: too little data.
	Confidence, Low, High *float64
}

// left sets the margin of a figure that has reached is.
func (r *Rail) left(is, most float64) {
	margin := 1 - is/max(most, math.SmallestNonzeroFloat64)
	margin = max(margin, -math.MaxFloat32) // for a bound of 0
	r.Margin = &margin
}

// railsOf compares figures with their ceilings and with the bounds on the share of denied decisions.
func (g bounds) rails(baseline, now fleet.HealthRates) (rails []Rail) {
	for _, h := range g.ceilings(baseline, now) {
		rail := Rail{Field: h.field, Before: h.baseline, Now: h.now}
		if !h.ceiling.Off {
			_, most := h.bound()
			rail.Most = &most
			if h.now != nil {
				rail.left(*h.now, most)
			}
		}
		rails = append(rails, rail)
	}
	denied := Rail{Field: "denied_share_shift", Before: baseline.DeniedShare, Now: now.DeniedShare}
	if g.DeniedShareShift < 1 && baseline.DeniedShare != nil {
		was := *baseline.DeniedShare
		least, most := max(0, was-g.DeniedShareShift), min(1, was+g.DeniedShareShift)
		denied.Least, denied.Most = &least, &most
		if now.DeniedShare != nil {
			denied.left(math.Abs(*now.DeniedShare-was), g.DeniedShareShift)
		}
	}
	return append(rails, denied, countRail("dropped_cost", float64(now.DroppedCost), 0, false))
}

// rails returns the state of each rail, with the judge's verdict.
func (j *judgement) rails() []Rail {
	rails := j.bounds.rails(j.baseline, j.now)
	for i, h := range j.ceilings(j.baseline, j.now) { // the first of rails
		_, broken := j.broken(h)
		rails[i].judged(broken)
	}
	for i := range rails {
		if rails[i].Field == "denied_share_shift" {
			rails[i].judged(j.deniedBroken())
		}
	}
	if is, broken, ok := j.newlyDenied(); ok {
		rail := j.shareRail()
		share := is.Since.Rate()
		rail.Now = &share
		if rail.Most != nil {
			rail.left(share, *rail.Most)
		}
		rail.judged(broken)
		rails = append(rails, rail)
	}
	return rails
}

// judged makes the margin agree with the verdict, which comes from the evidence of a window and not from the current
// figure.
func (r *Rail) judged(broken bool) {
	if r.Margin == nil {
		return
	}
	margin := max(0, *r.Margin)
	if broken {
		margin = min(-1, *r.Margin)
	}
	r.Margin = &margin
}

// countRail returns a rail without a baseline.
func countRail(field string, now, most float64, off bool) Rail {
	rail := Rail{Field: field, Now: &now}
	if !off {
		rail.Most = &most
		rail.left(now, most)
	}
	return rail
}

// Rails returns the guardrails of the plan, except its queries, in a fixed order. Each rail has the region or node that
// is nearest to its bound. The figures are the same as those that the judge compares with the bounds.
func (j *Judge) Rails() []Rail {
	g := j.bounds()
	lost, restarts := Rail{Field: "nodes_lost_share", Most: &g.NodesLostShare}, Rail{Field: "restarts_per_hour"}
	if most := float64(g.RestartsPerHour); g.RestartsPerHour < plan.RestartsPerHourMax {
		restarts.Most = &most
	}
	rails := append(g.rails(j.Baseline, j.Now), lost, restarts)
	rails = append(rails, g.limitsRails()...)
	for i := range rails { // these are the stage's figures, which are not judged
		if rails[i].Field != "dropped_cost" {
			rails[i].judged(false)
		}
	}
	enough := j.Watch.enough(g)
	for i := range j.Watch {
		w := &j.Watch[i]
		if w.Stage == j.Stage && !j.applied() {
			continue
		}
		for _, candidates := range g.railsIn(w, j.Clocks.DatabaseMs, j.Stages[w.Stage].Borne(), enough) {
			for _, rail := range candidates {
				narrow(rails, rail)
			}
		}
	}
	for _, rail := range j.effectRails() {
		narrow(rails, rail)
	}
	return append(rails, comparedRails(j.Comparisons(), j.Stages)...)
}

// railsIn returns the rails of a region and of each of its nodes.
func (g bounds) railsIn(w *RegionWatch, nowMs int64, borne time.Duration, enough float64) (all [][]Rail) {
	for n := range w.judged() {
		restarts := float64(n.restartsSince(nowMs - restartsWithin.Milliseconds()))
		all = append(all, placed(append(g.ofNode(w, n, borne, enough).rails(), countRail("restarts_per_hour", restarts,
			float64(g.RestartsPerHour), g.RestartsPerHour >= plan.RestartsPerHourMax)), w.Region, n.ID))
	}
	region := g.ofRegion(w, enough).rails()
	if !w.Whole {
		were := 0
		for i := range w.Nodes {
			if n := &w.Nodes[i]; !n.Came && !n.Left {
				were++
			}
		}
		lost := max(0, float64(w.NodesLost())-shareSlack) / float64(max(1, were))
		region = append(region, countRail("nodes_lost_share", lost, g.NodesLostShare, false))
	}
	return append(all, placed(region, w.Region, ""))
}

// placed sets the region and node of rails with measured figures.
func placed(rails []Rail, region, node string) []Rail {
	for i := range rails {
		if rails[i].Now != nil {
			rails[i].Region, rails[i].Node = region, node
		}
	}
	return rails
}

// narrow replaces the rail of the same field if the new rail has less margin, or the old rail has no region.
func narrow(rails []Rail, one Rail) {
	for i := range rails {
		there := &rails[i]
		if there.Field != one.Field {
			continue
		}
		if there.Region == "" || one.Margin != nil && (there.Margin == nil || *one.Margin < *there.Margin) {
			*there = one
		}
	}
}

// comparedRails returns the rails of the comparison: for each figure, the verdict with the highest confidence that it
// is worse.
func comparedRails(all []ComparedVerdict, stages plan.StagePlans) (rails []Rail) {
	for _, v := range all {
		if v.Samples == 0 {
			continue
		}
		rail := Rail{Field: v.Field, Region: v.Region, Now: &v.Estimate, Most: &v.Bound, Confidence: &v.Confidence}
		switch {
		case v.Nodes:
			rail.Region = "the nodes of " + v.Region + " that the stage takes in"
		case v.Region == "":
			rail.Region = stages[v.Stage].Scope.String()
		}
		if !math.IsInf(v.High, 0) {
			rail.Low, rail.High = &v.Low, &v.High
		}
		margin := 1 - v.Confidence/v.Enough
		if v.Worse {
			margin = -1
		}
		rail.Margin = &margin
		i := slices.IndexFunc(rails, func(other Rail) bool { return other.Field == v.Field })
		switch {
		case i < 0:
			rails = append(rails, rail)
		case *rails[i].Confidence < v.Confidence:
			rails[i] = rail
		}
	}
	return rails
}
