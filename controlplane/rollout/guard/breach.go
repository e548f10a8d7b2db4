package guard

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/sequential"
)

// breachOfNodes compares every region that has the tuning, and each of its nodes, with its past. It never averages over
// regions, because that could hide a region that is worse.
func (j *Judge) breachOfNodes() *Breach {
	g, elsewhere := j.bounds(), j.Compared.lostElsewhere(j.With)
	enough := j.Watch.enough(g)
	for i := range j.Watch {
		w := &j.Watch[i]
		if w.Stage == j.Stage && !j.applied() {
			continue
		}
		if why := g.breachOf(w, j.Look.AtMs, j.Clocks.GapMs, j.Stages[w.Stage].Borne(), elsewhere, enough); why != "" {
			return &Breach{Stage: w.Stage, Why: why}
		}
	}
	return nil
}

// breachOf returns the guardrail that a region breaks, with the node that breaks it most, or "".
//
//   - nowMs is the time of the look by the clock of the database, and gapMs the time since the last look.
//   - borne is how long a measured figure can be beyond its bound.
//   - elsewhere is the share of nodes that regions without the tuning have lost.
//   - enough is the evidence at which a counted figure breaks its bound.
func (g bounds) breachOf(w *RegionWatch, nowMs, gapMs int64, borne time.Duration, elsewhere,
	enough float64) string {
	if why := cmp.Or(g.nodesLost(w, elsewhere), g.relaysLost(w, fleet.UnrelayedMax),
		g.originLost(w, fleet.UnrelayedMax)); why != "" {
		return why
	}
	var worst struct {
		why string
		by  float64 // the factor by which it exceeds its bound
	}
	for n := range w.judged() {
		if many := n.restartsSince(nowMs - restartsWithin.Milliseconds()); g.RestartsPerHour < plan.RestartsPerHourMax &&
			many > g.RestartsPerHour {
			return fmt.Sprintf("restarts of a node within an hour: %d, more than %d, of node %s in region %s", many,
				g.RestartsPerHour, n.ID, w.Region)
		}
		j := g.ofNode(w, n, borne, enough)
		j.note(gapMs)
		if why, by := j.worst(); why != "" && by > worst.by {
			worst.why, worst.by = fmt.Sprintf("%s, of node %s in region %s", why, n.ID, w.Region), by
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

// ofNode returns the judgement of a node.
func (g bounds) ofNode(w *RegionWatch, n *WatchedNode, borne time.Duration, enough float64) *judgement {
	now := n.rates(0)
	return &judgement{bounds: g, evidence: n.evidence(w, enough), baseline: n.baseline(w.own(w.before()), now),
		now: now, over: &n.Over, borne: borne, others: true}
}

// ofRegion returns the judgement of the region's nodes together.
func (g bounds) ofRegion(w *RegionWatch, enough float64) *judgement {
	return &judgement{bounds: g, evidence: w.evidence(enough), baseline: w.own(w.before()), now: w.own(w.rates(0)),
		over: &Overdue{}, rows: w.Share == nil, others: !w.Whole}
}

// evidence returns the evidence of the region's nodes together.
func (w *RegionWatch) evidence(enough float64) evidence {
	e := evidence{watch: w, first: w.Begun - len(w.Parts) + 1, since: w.Parts, enough: enough}
	if before := w.baselinePart(); before.Nodes > 0 {
		e.before = []WatchedPart{before}
	}
	return e
}

// baselinePart returns the sum of the figures of the region's nodes during the baseline.
func (w *RegionWatch) baselinePart() (before WatchedPart) {
	for _, n := range w.Nodes {
		if n.Before[0] > 0 {
			before.Nodes++
			before.Did.Add(n.Before[0], fleet.Tally(n.Before[1:]))
		}
	}
	return before
}

// evidence returns the node's evidence. Its baselines are its own and its region's; the baseline with the higher rate
// counts.
func (n *WatchedNode) evidence(w *RegionWatch, enough float64) evidence {
	e := evidence{watch: w, first: w.Begun/2 - len(n.Window) + 1, enough: enough} // a node's parts are twice as long
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

// shareSlack prevents that rounding breaks a share that is met exactly: in floating point, 0.58 of 50 nodes is
// 28.999999999999996. It is less than a node's part of any share that is written with four decimals.
const shareSlack = 1e-6

// nodesLost describes a region that has lost all of its nodes from before its stage, or a larger share of them than
// both the plan and the loss elsewhere allow; empty: there is none.
func (g bounds) nodesLost(w *RegionWatch, elsewhere float64) string {
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
	case len(gone) == 0 || w.Whole: // the watches of its parts count nodes with the tuning only
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

// nodeDecisionsMin is how many decisions of a node a share of decisions needs at least. It is higher than for a region,
// because among a thousand nodes some node always has an unusual hundred decisions.
const nodeDecisionsMin = 10 * decisionsMin

// rates returns the figures of the node. Figures per time are computed over at least least, so that a single error in a
// second does not count as sixty a minute.
func (n *WatchedNode) rates(least time.Duration) fleet.HealthRates {
	rates := fleet.RatesOf(n.did(), 1, least, nodeDecisionsMin)
	rates.ConvergenceMs, rates.LatencyUs = n.ConvergenceMs, n.LatencyUs
	rates.RowsPerSecond = nil // a figure of the region, because its relays move between nodes
	return rates
}

// baseline returns the figures that the node is compared with: its own or its region's before the stage, whichever is
// more lenient. Balancers move callers between nodes, so the node's own past alone is not enough.
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

// rates returns the figures of the region's nodes together.
func (w *RegionWatch) rates(least time.Duration) fleet.HealthRates {
	var sum fleet.Span
	heard := 0
	for n := range w.live() {
		if did := n.did(); did[0] > 0 {
			heard++
			sum.Add(did[0], fleet.Tally(did[1:]))
		}
	}
	rates := fleet.RatesOf(sum, heard, least, decisionsMin)
	rates.NodesLost = w.NodesLost()
	return rates
}

// now returns rates with the figures of the slowest node.
func (w *RegionWatch) now() fleet.HealthRates {
	rates := w.rates(0)
	for n := range w.live() {
		rates.ConvergenceMs, rates.LatencyUs = fleet.Larger(rates.ConvergenceMs, n.ConvergenceMs),
			fleet.Larger(rates.LatencyUs, n.LatencyUs)
	}
	return rates
}

// before returns the figures of the region during its baseline.
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

// name names the nodes of the watch, for example "region eu".
func (w *RegionWatch) name() string {
	if w.Share != nil {
		return "the nodes of region " + w.Region + " that the stage takes in"
	}
	return "region " + w.Region
}

// own returns the figures that this watch is judged by, for a region with several watches. Rows belong to the watch of
// the whole region, because its relays move between all of its nodes. All other figures belong to the watches of nodes,
// so that only nodes with the tuning are judged.
func (w *RegionWatch) own(rates fleet.HealthRates) fleet.HealthRates {
	switch {
	case w.Whole:
		return fleet.HealthRates{RowsPerSecond: rates.RowsPerSecond}
	case w.Share != nil:
		rates.RowsPerSecond = nil
	}
	return rates
}

// Undecided names a guardrail that cannot be judged yet and the data that is missing; empty: there is none.
func (j *Judge) Undecided() string {
	var few []string
	for i := range j.Watch {
		w := &j.Watch[i]
		if beyond := w.beyond(j.Stages[w.Stage].Borne()); beyond != "" {
			return beyond
		}
		few = append(few, w.few()...)
	}
	g := j.bounds()
	if len(few) > 0 && g.counts() {
		return fmt.Sprintf("heartbeats in fewer than %d parts of the bake: %s", sequential.Least, controlplane.Several(few))
	}
	return cmp.Or(j.Watch.baselineTooShort(g, j.Stages), g.queryBeyond(j.QueriesNow, j.Stages[j.lastApplied()].Borne()))
}

// counts reports whether any guardrail on counts of heartbeats is on.
func (g bounds) counts() bool {
	return !g.ErrorsPerMinute.Off || !g.RowsPerSecond.Off || !g.DegradedShare.Off || g.DeniedShareShift < 1 ||
		g.NewlyDeniedShare != nil && *g.NewlyDeniedShare < 1
}

// worstIfExact returns the guardrail that would be broken if the baseline were exact.
func (j *judgement) worstIfExact() string {
	j.exact = true
	why, _ := j.worst()
	if why == "" {
		return ""
	}
	return "the baseline is too short to judge " + why
}

// few names the live nodes from before the stage whose heartbeats cover too few parts of the window, or the region if
// its parts are too few. The heartbeats' contents do not matter: nodes without traffic are judged.
func (w *RegionWatch) few() (few []string) {
	live := false
	for n := range w.live() {
		live = true
		parts := 0
		for _, s := range n.Window {
			if s[0] > 0 {
				parts++
			}
		}
		if !w.Whole && !n.Came && parts < sequential.Least {
			few = append(few, fmt.Sprintf("%s in %s (%d)", n.ID, w.Region, parts))
		}
	}
	parts := 0
	for _, p := range w.Parts {
		if p.Did[0] > 0 {
			parts++
		}
	}
	if live && len(few) == 0 && parts < sequential.Least {
		few = append(few, fmt.Sprintf("region %s (%d)", w.Region, parts))
	}
	return few
}

// beyond names a measured figure that exceeds its bound, but not yet for long enough to break it; empty: there is none.
func (w *RegionWatch) beyond(borne time.Duration) string {
	for n := range w.judged() {
		for _, f := range []struct {
			words string
			over  queries.Lasting
		}{{"convergence delay in ms", n.Over.Convergence}, {"decision latency in µs", n.Over.Latency}} {
			if f.over > 0 {
				return fmt.Sprintf("%s is beyond its bound for %s, and breaks it after %s, of node %s in %s", f.words,
					controlplane.Seconds(f.over.Time()), borne, n.ID, w.Region)
			}
		}
	}
	return ""
}
