package rollout

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
)

// breach is a guardrail that is broken: the stage of the region at fault, what broke it, and
// by how many times its bound.
type breach struct {
	stage int
	why   string
	by    float64
}

// breachOfNodes holds every region that has the tuning, and each of its nodes, against what
// they were before: nothing else is averaged in.
func (r *transition) breachOfNodes() *breach {
	g, elsewhere := r.Spec.Plan.Guardrails, r.Compared.lostElsewhere(r.Touched.scope())
	enough := r.Watch.enough(g.errorRate())
	for i := range r.Watch {
		w := &r.Watch[i]
		if w.Stage == r.Stage && !r.applied() {
			continue
		}
		if why := g.breachOf(w, r.look.AtMs, r.Clocks.GapMs, r.Stages[w.Stage].borne(), elsewhere, enough); why != "" {
			return &breach{stage: w.Stage, why: why}
		}
	}
	return nil
}

// breachOf returns the guardrail that a region breaks, with the node that breaks it most, or "".
//
//   - nowMs is the time of the look by the clock of the database, and gapMs the time since the last look.
//   - borne is how long a measured figure may be beyond its bound.
//   - elsewhere is the share of nodes that regions without the tuning have lost.
//   - enough is the evidence at which a counted figure breaks its bound.
func (g Guardrails) breachOf(w *RegionWatch, nowMs, gapMs int64, borne time.Duration, elsewhere,
	enough float64) string {
	if why := cmp.Or(g.nodesLost(w, elsewhere), g.relaysLost(w, fleet.UnrelayedMax),
		g.originLost(w, fleet.UnrelayedMax)); why != "" {
		return why
	}
	var worst breach
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.Gone || w.Whole {
			continue
		}
		if many := n.restartsSince(nowMs - restartsWithin.Milliseconds()); g.RestartsPerHour < RestartsPerHourMax &&
			many > g.RestartsPerHour {
			return fmt.Sprintf("restarts of a node within an hour: %d, more than %d, of node %s in region %s", many,
				g.RestartsPerHour, n.ID, w.Region)
		}
		j := g.ofNode(w, n, borne, enough)
		j.note(gapMs)
		if why, by := j.worst(); why != "" && by > worst.by {
			worst = breach{why: fmt.Sprintf("%s, of node %s in region %s", why, n.ID, w.Region), by: by}
		}
	}
	if worst.why != "" {
		return worst.why
	}
	if why, _ := g.ofRegion(w, enough).worst(); why != "" {
		return why + ", of " + w.name()
	}
	return ""
}

// ofNode is how a node stands.
func (g Guardrails) ofNode(w *RegionWatch, n *WatchedNode, borne time.Duration, enough float64) *judgement {
	now := n.rates(0)
	return &judgement{Guardrails: g, evidence: n.evidence(w, enough), baseline: n.baseline(w.own(w.before()), now),
		now: now, over: &n.Over, borne: borne, others: true}
}

// ofRegion is how the region's nodes stand together.
func (g Guardrails) ofRegion(w *RegionWatch, enough float64) *judgement {
	return &judgement{Guardrails: g, evidence: w.evidence(enough), baseline: w.own(w.before()), now: w.own(w.rates(0)),
		over: &Overdue{}, rows: w.Share == nil, others: !w.Whole}
}

// evidence is what the region shows, of its nodes together.
func (w *RegionWatch) evidence(enough float64) evidence {
	e := evidence{watch: w, first: w.Begun - len(w.Parts) + 1, since: w.Parts, enough: enough}
	if before := w.baselinePart(); before.Nodes > 0 {
		e.before = []WatchedPart{before}
	}
	return e
}

// baselinePart is what the nodes of the region did together during the baseline.
func (w *RegionWatch) baselinePart() (before WatchedPart) {
	for _, n := range w.Nodes {
		if n.Before[0] > 0 {
			before.Nodes++
			before.Did.Add(n.Before[0], fleet.Tally(n.Before[1:]))
		}
	}
	return before
}

// evidence is what the node shows beside what it did before and what its region did, by which of them it stands
// better.
func (n *WatchedNode) evidence(w *RegionWatch, enough float64) evidence {
	e := evidence{watch: w, first: w.Begun/2 - len(n.Window) + 1, enough: enough} // its parts are twice as long
	for _, s := range n.Window {
		e.since = append(e.since, WatchedPart{Did: s, Nodes: 1})
	}
	if n.Before[0] > 0 {
		e.before = append(e.before, WatchedPart{Did: n.Before, Nodes: 1})
	}
	if before := w.baselinePart(); before.Nodes > 0 {
		e.before = append(e.before, before)
	}
	return e
}

// shareSlack keeps a product that floating point rounds down from a share that is met exactly: 0.58 of 50 nodes is
// 28.999999999999996. It is less than a node's part of any share that is written with four decimals.
const shareSlack = 1e-6

// nodesLost tells that a region has lost all of the nodes that it had before its stage, or
// a larger share than is borne, and than goes elsewhere.
func (g Guardrails) nodesLost(w *RegionWatch, elsewhere float64) string {
	var gone []string
	were, left := 0, 0
	for _, n := range w.Nodes {
		if n.Left {
			continue
		}
		if !n.Came {
			were++
		}
		if n.Gone {
			gone = append(gone, n.ID)
		} else {
			left++
		}
	}
	switch {
	case len(gone) == 0 || w.Whole: // the watches of its nodes say which of them had the tuning
		return ""
	case float64(len(gone)) > max(g.NodesLostShare, elsewhere)*float64(were)+shareSlack:
		return fmt.Sprintf("nodes without heartbeats: %d of %d, more than a share of %s, of %s (%s)",
			len(gone), were, controlplane.Figure(max(g.NodesLostShare, elsewhere)), w.name(), controlplane.Several(gone))
	case left == 0:
		return fmt.Sprintf("nodes without heartbeats: %d of %d, and none is left (1 or more), of %s (%s)",
			len(gone), were, w.name(), controlplane.Several(gone))
	}
	return ""
}

func (n *WatchedNode) restartsSince(ms int64) (many int) {
	for _, at := range n.Restarts {
		if at >= ms {
			many++
		}
	}
	return many
}

// nodeDecisionsMin is how many decisions of one node a share of them is taken from: among a
// thousand nodes there is always one whose hundred decisions were out of the ordinary.
const nodeDecisionsMin = 10 * decisionsMin

// rates are what the node does. Figures for a time are held to be those of least, when it
// has been watched for less: a single error in a second is not sixty a minute.
func (n *WatchedNode) rates(least time.Duration) fleet.HealthRates {
	rates := fleet.RatesOf(n.did(), 1, least, nodeDecisionsMin)
	rates.ConvergenceMs, rates.LatencyUs = n.ConvergenceMs, n.LatencyUs
	rates.RowsPerSecond = nil // the region's: its relays move between nodes
	return rates
}

// baseline is what the node is held against: what it did before or what its region did, by
// which of them it stands better. Balancers shift callers between nodes.
func (n *WatchedNode) baseline(region, now fleet.HealthRates) fleet.HealthRates {
	own := fleet.RatesOf(n.Before, 1, 0, nodeDecisionsMin)
	own.ErrorsPerMinute = fleet.Larger(own.ErrorsPerMinute, region.ErrorsPerMinute)
	own.DegradedShare = fleet.Larger(own.DegradedShare, region.DegradedShare)
	own.ConvergenceMs, own.LatencyUs = region.ConvergenceMs, region.LatencyUs
	own.DeniedShare = nearer(own.DeniedShare, region.DeniedShare, now.DeniedShare)
	return own
}

func nearer(a, b, to *float64) *float64 {
	if a == nil || b != nil && to != nil && math.Abs(*b-*to) < math.Abs(*a-*to) {
		return b
	}
	return a
}

// rates are what the region does: the figures that its nodes have together.
func (w *RegionWatch) rates(least time.Duration) fleet.HealthRates {
	var sum fleet.Span
	heard, gone := 0, 0
	for i := range w.Nodes {
		n := &w.Nodes[i]
		if n.Gone {
			if !n.Left {
				gone++
			}
			continue
		}
		if did := n.did(); did[0] > 0 {
			heard++
			sum.Add(did[0], fleet.Tally(did[1:]))
		}
	}
	rates := fleet.RatesOf(sum, heard, least, decisionsMin)
	rates.NodesLost = gone
	return rates
}

// now is rates with the slowest node's figures.
func (w *RegionWatch) now() fleet.HealthRates {
	rates := w.rates(0)
	for _, n := range w.Nodes {
		if !n.Gone {
			rates.ConvergenceMs, rates.LatencyUs = fleet.Larger(rates.ConvergenceMs, n.ConvergenceMs),
				fleet.Larger(rates.LatencyUs, n.LatencyUs)
		}
	}
	return rates
}

// before is what the region did during its baseline.
func (w *RegionWatch) before() fleet.HealthRates {
	var sum fleet.Span
	heard := 0
	for _, n := range w.Nodes {
		if n.Before[0] > 0 {
			heard++
			sum.Add(n.Before[0], fleet.Tally(n.Before[1:]))
		}
	}
	rates := fleet.RatesOf(sum, heard, 0, decisionsMin)
	rates.ConvergenceMs, rates.LatencyUs = w.ConvergenceMs, w.LatencyUs
	return rates
}

// name says which nodes the watch is of.
func (w *RegionWatch) name() string {
	if w.Share != nil {
		return "the nodes of region " + w.Region + " that the stage takes in"
	}
	return "region " + w.Region
}

// own are the figures that the watch is judged by, where a region has several: rows are the region's, as its relays
// move between all its nodes, and all else is held against nodes that have the tuning alone.
func (w *RegionWatch) own(rates fleet.HealthRates) fleet.HealthRates {
	switch {
	case w.Whole:
		return fleet.HealthRates{RowsPerSecond: rates.RowsPerSecond}
	case w.Share != nil:
		rates.RowsPerSecond = nil
	}
	return rates
}
