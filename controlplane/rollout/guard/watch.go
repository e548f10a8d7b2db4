package guard

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/queries"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/sequential"
)

const (
	// A window is the newest watchBuckets buckets of a region. Together they are as long as plan.StagePlan.WindowMs.
	watchBuckets = 5

	// restartsWithin is how long a restart of a node counts, and restartsKept how many restarts of a node are stored.
	restartsWithin = time.Hour
	restartsKept   = plan.RestartsPerHourMax + 1
)

// RegionWatch is a region whose nodes are compared with their past before its stage. It takes some 300 bytes of state a
// node: at 1,000 nodes a third of a megabyte, at fleet.NodesMax three.
type RegionWatch struct {
	Region   string        `json:"region"`
	Stage    int           `json:"stage"`     // index of the stage that it belongs to
	BucketMs int64         `json:"bucket_ms"` // when the newest bucket of the window began
	Nodes    []WatchedNode `json:"nodes"`

	// The slowest node's figures during the baseline; nil: not reported.
	ConvergenceMs *float64 `json:"convergence_ms,omitempty"`
	LatencyUs     *float64 `json:"latency_us,omitempty"`

	// How long no node has relayed some shard of the region's origin, and how long no node has measured the convergence
	// delay although it was measured during the baseline.
	Unrelayed  queries.Lasting `json:"unrelayed_for_ms,omitempty"`
	Unmeasured queries.Lasting `json:"unmeasured_for_ms,omitempty"`

	// Parts are the figures of its nodes together, in parts of the window that are half as long as a node's, because a
	// harm shows in a region sooner than in a node. Begun is how many parts have begun since the watch began, and Past the
	// spread of the parts that the window has dropped.
	Parts []WatchedPart             `json:"parts,omitempty"`
	Begun int                       `json:"begun,omitempty"`
	Past  [counts]sequential.Spread `json:"past,omitzero"`

	// How long its origin, or a part of it, has answered none of the region's nodes.
	Down queries.Lasting `json:"down_for_ms,omitempty"`

	// A region whose nodes get the tuning in several stages has several watches: a Whole watch for the figures that belong
	// to the region and not to a node, and a watch for the nodes of each stage.
	Whole    bool          `json:"whole,omitempty"`
	Share    *WatchedShare `json:"share,omitempty"`
	Measured bool          `json:"measured,omitempty"` // of a Share: its baseline has been taken
}

// WatchedNode is a node of a region. A node from the time of the baseline stays in the list when it is gone. A node
// that came later does not.
type WatchedNode struct {
	ID   string `json:"id"`
	Came bool   `json:"came,omitempty"` // joined after the baseline
	Gone bool   `json:"gone,omitempty"` // no longer live
	Left bool   `json:"left,omitempty"` // gone after an orderly shutdown; no guardrail counts it as lost

	StartedMs int64        `json:"started_ms"`
	SentMs    int64        `json:"sent_ms"`
	SeenMs    int64        `json:"seen_ms"`
	Totals    fleet.Tally  `json:"totals"`
	Trial     int64        `json:"trial,omitempty"`    // of Totals
	Before    fleet.Span   `json:"before"`             // figures during the baseline
	Window    []fleet.Span `json:"window,omitempty"`   // figures since, oldest first, at most watchBuckets
	Restarts  []int64      `json:"restarts,omitempty"` // times of restarts since the baseline, Unix ms

	Held   []int `json:"held,omitempty"`   // shards that it relays, by its newest heartbeat
	Shards int   `json:"shards,omitempty"` // shards of its origin, by the same heartbeat
	Down   bool  `json:"down,omitempty"`   // its origin does not answer it, by the same heartbeat

	ConvergenceMs *float64 `json:"convergence_ms,omitempty"` // by its newest heartbeat
	LatencyUs     *float64 `json:"latency_us,omitempty"`
	Over          Overdue  `json:"over,omitzero"`
}

// watchedScope returns the touched regions and, while a baseline is taken, the regions of its stage.
func (j *Judge) watchedScope() fleet.Scope {
	if j.Step != Measuring {
		return j.Tried
	}
	own := j.stage().Scope
	return fleet.Scope{Rest: j.Tried.Rest || own.Rest, Regions: slices.Concat(j.Tried.Regions, own.Regions)}
}

// observe updates every watch. It begins to watch regions that are new to a stage, with their present nodes.
func (j *Judge) observe() {
	nodes := map[string][]fleet.NodeFigures{}
	for _, n := range j.Look.Nodes {
		nodes[n.Region] = append(nodes[n.Region], n)
	}
	for _, n := range j.Look.Nodes {
		j.watchRegion(n.Region, nodes[n.Region])
	}
	convergence := map[string]*float64{} // of whole regions, whose watches come first
	for i := range j.Watch {
		w := &j.Watch[i]
		measuring := j.Step == Measuring && w.Stage == j.Stage
		windowMs := j.Stages[w.Stage].WindowMs()
		if old := j.NowMs - w.BucketMs; !measuring && w.heard() && (old < 0 || old >= windowMs/watchBuckets) {
			w.rotate(j.NowMs)
		}
		if !measuring && w.partEnded(j.NowMs, windowMs/partsMax) {
			w.beginPart(j.NowMs)
		}
		unsure := j.Clocks.Unsure(j.Look, j.NowMs)
		of := slices.DeleteFunc(slices.Clone(nodes[w.Region]), func(n fleet.NodeFigures) bool { return !w.has(n.ID) })
		w.observe(of, measuring, unsure)
		w.leave(j.Look.Left)
		if w.Share == nil {
			w.observeRelays(j.Clocks.GapMs, measuring, unsure)
			convergence[w.Region] = w.ConvergenceMs
			continue
		}
		w.ConvergenceMs = convergence[w.Region] // of any node of the region, because any node can be the relay
	}
}

func (j *Judge) watchRegion(region string, nodes []fleet.NodeFigures) {
	stage := j.stageOf(region)
	shadow := j.stage().Shadow
	if stage >= 0 {
		shadow = j.Stages[stage].Shadow
	}
	if j.Stages.InParts(region, shadow) {
		j.watchParts(region, nodes, shadow)
		return
	}
	if slices.ContainsFunc(j.Watch, func(w RegionWatch) bool { return w.Region == region }) {
		return
	}
	if stage >= 0 {
		j.Watch = append(j.Watch, RegionWatch{Region: region, Stage: stage, BucketMs: j.NowMs})
	}
}

// BeginWindows clears the figures of the stage's regions, except their baselines.
func (j *Judge) BeginWindows() {
	j.Compared.beginSlot(j.NowMs)
	for i := range j.Watch {
		w := &j.Watch[i]
		if w.Stage == j.Stage {
			for n := range w.Nodes {
				w.Nodes[n].Window = nil
			}
			w.rotate(j.NowMs)
			w.Parts = nil
		}
		w.beginPart(j.NowMs)
	}
}

// heard reports whether each live node has sent a heartbeat in the newest part of the window. If a bake is shorter than
// the time between heartbeats, parts last until the next heartbeat.
func (w *RegionWatch) heard() bool {
	if len(w.Nodes) == 0 || w.BucketMs == 0 {
		return true
	}
	return !slices.ContainsFunc(w.Nodes, func(n WatchedNode) bool {
		return !n.Gone && len(n.Window) > 0 && n.Window[len(n.Window)-1][0] == 0
	})
}

func (w *RegionWatch) rotate(nowMs int64) {
	w.BucketMs = nowMs
	for i := range w.Nodes {
		n := &w.Nodes[i]
		n.Window = append(n.Window, fleet.Span{})
		n.Window = n.Window[max(0, len(n.Window)-watchBuckets):]
	}
}

// live returns the live nodes.
func (w *RegionWatch) live() iter.Seq[*WatchedNode] {
	return func(yield func(*WatchedNode) bool) {
		for i := range w.Nodes {
			if n := &w.Nodes[i]; !n.Gone && !yield(n) {
				return
			}
		}
	}
}

// judged returns the live nodes that are judged by themselves: none for the watch of a whole region.
func (w *RegionWatch) judged() iter.Seq[*WatchedNode] {
	if w.Whole {
		return func(func(*WatchedNode) bool) {}
	}
	return w.live()
}

// leave marks the nodes that were shut down in order, so that they do not count as lost.
func (w *RegionWatch) leave(left []string) {
	for i := range w.Nodes {
		n := &w.Nodes[i]
		n.Left = n.Gone && (n.Left || slices.Contains(left, n.ID))
	}
}

// observe updates the watch from a look at the region. While the baseline is measured, every node with a heartbeat
// counts as a node from before the stage. While it is unsure which nodes are live, no node becomes gone.
func (w *RegionWatch) observe(nodes []fleet.NodeFigures, measuring, unsure bool) {
	found := make(map[string]fleet.NodeFigures, len(nodes))
	for _, n := range nodes {
		found[n.ID] = n
	}
	first := len(w.Nodes) == 0 && !w.Measured
	for i := range w.Nodes {
		n := &w.Nodes[i]
		is, live := found[n.ID]
		delete(found, n.ID)
		if live {
			did := n.did()
			if n.observe(is, measuring); !measuring {
				w.add(did, n.did(), len(nodes))
			}
		}
		n.Gone = !live && (n.Gone || !unsure)
	}
	w.Nodes = slices.DeleteFunc(w.Nodes, func(n WatchedNode) bool { return n.Gone && n.Came })
	for _, n := range nodes {
		if _, isNew := found[n.ID]; isNew {
			w.Nodes = append(w.Nodes, WatchedNode{
				ID: n.ID, Came: !measuring && !first, StartedMs: n.StartedMs, SentMs: n.SentMs, SeenMs: n.SeenMs,
				Totals: n.Totals, Trial: n.Trial, Held: n.Held, Shards: n.Shards, Down: n.Down,
				ConvergenceMs: n.ConvergenceMs, LatencyUs: n.LatencyUs,
			})
		}
	}
	if measuring {
		w.Measured = w.Share != nil
		for _, n := range nodes {
			w.ConvergenceMs, w.LatencyUs = fleet.Larger(w.ConvergenceMs, n.ConvergenceMs),
				fleet.Larger(w.LatencyUs, n.LatencyUs)
		}
	}
}

// observe adds a heartbeat. If the totals fall, or the start time changes, the process has restarted, so its totals
// count from that start.
func (n *WatchedNode) observe(is fleet.NodeFigures, measuring bool) {
	ms := n.since(is)
	if ms <= 0 { // the same heartbeat
		return
	}
	was := n.Totals
	if n.restarted(is) {
		was = fleet.Tally{}
		if up := is.SentMs - is.StartedMs; up > 0 {
			ms = min(ms, up)
		}
		if !measuring {
			n.Restarts = append(n.Restarts, is.SeenMs)
			n.Restarts = n.Restarts[max(0, len(n.Restarts)-restartsKept):]
		}
	}
	if is.Trial != n.Trial || slices.ContainsFunc(ofTrials, func(i int) bool { return is.Totals[i] < was[i] }) {
		for _, i := range ofTrials {
			was[i] = 0
		}
	}
	var grown fleet.Tally
	for i := range grown {
		grown[i] = is.Totals[i] - was[i]
	}
	n.StartedMs, n.SentMs, n.SeenMs, n.Totals, n.Trial = is.StartedMs, is.SentMs, is.SeenMs, is.Totals, is.Trial
	n.Held, n.Shards, n.Down, n.ConvergenceMs, n.LatencyUs = is.Held, is.Shards, is.Down, is.ConvergenceMs, is.LatencyUs
	if measuring {
		n.Before.Add(ms, grown)
		return
	}
	if len(n.Window) == 0 {
		n.Window = []fleet.Span{{}}
	}
	n.Window[len(n.Window)-1].Add(ms, grown)
}

// since returns the time between the last heartbeat and a newer one, in ms; 0 or less: it is not newer. The clocks of
// the database and of the node can each step. It returns the shorter of the two times that went forward, so that a
// clock that jumps ahead does not dilute rates.
func (n *WatchedNode) since(is fleet.NodeFigures) int64 {
	seen, sent := is.SeenMs-n.SeenMs, is.SentMs-n.SentMs
	switch {
	case sent <= 0:
		return seen
	case seen < 0:
		return sent
	}
	return min(seen, sent)
}

// ofTrials are the figures that begin at 0 with each trial.
var ofTrials = []int{fleet.TallyJudged, fleet.TallyNewlyDenied}

func (n *WatchedNode) restarted(is fleet.NodeFigures) bool {
	for i, total := range is.Totals {
		if total < n.Totals[i] && !slices.Contains(ofTrials, i) {
			return true
		}
	}
	return is.StartedMs != n.StartedMs
}

// did returns the node's figures in the window.
func (n *WatchedNode) did() (sum fleet.Span) {
	for _, s := range n.Window {
		sum.Add(s[0], fleet.Tally(s[1:]))
	}
	return sum
}

// Unready returns the reason why the baseline of the stage cannot end, for example a region without a live node, or a
// node that sends no heartbeats: its figures could not be compared later. A plan with a NodesLostShare of 1 takes
// regions as they are.
func (j *Judge) Unready() string {
	if j.Look.Truncated {
		return fmt.Sprintf("the fleet has more than %d nodes, and the rest cannot be watched", fleet.NodesMax)
	}
	g := j.bounds()
	if g.NodesLostShare >= 1 {
		return ""
	}
	if dark := j.Watch.dark(j.stage(), j.Look); dark != "" {
		return dark
	}
	if len(j.Look.Nodes) == 0 {
		return "no node is live: there is nothing to take a baseline from"
	}
	for i := range j.Watch {
		if w := &j.Watch[i]; w.Stage == j.Stage {
			if why := cmp.Or(g.nodesLost(w, 0),
				g.relaysLost(w, 0),
				g.originLost(w, 0)); why != "" {
				return "before the stage: " + why
			}
		}
	}
	if j.Plan.BaselineMs == 0 {
		return ""
	}
	if silent := j.Watch.unheard(func(w *RegionWatch, n *WatchedNode) bool {
		return w.Stage != j.Stage || n.Before[0] > 0
	}); silent != "" {
		return "no heartbeat since the baseline is taken: " + silent
	}
	return ""
}

// TouchedRegions returns the regions of all applied stages.
func (j *Judge) TouchedRegions() (regions []string) {
	for stage := 0; stage <= j.lastApplied(); stage++ {
		for _, region := range j.Watch.RegionsOf(stage) {
			if !slices.Contains(regions, region) {
				regions = append(regions, region)
			}
		}
	}
	return regions
}

// Watches are the watches of every region that a rollout touched, and of the regions whose baseline is being taken.
type Watches []RegionWatch

// enough returns the logarithm of the e-value at which a figure is worse than before. All figures of all watched
// regions and nodes share half of the rollout's error rate.
func (ws Watches) enough(g bounds) float64 {
	tests, figures, errorRate := 0, counts, g.ErrorRate()
	if g.NewlyDeniedShare == nil {
		figures-- // only rollouts of limits have countNewlyDenied
	}
	for i := range ws {
		tests += figures * (1 + len(ws[i].Nodes))
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

// ratesOf returns the worst figures of a stage's regions, for people.
func (ws Watches) ratesOf(stage int, of func(*RegionWatch) fleet.HealthRates) (all fleet.HealthRates) {
	var parts []fleet.HealthRates
	for i := range ws {
		if w := &ws[i]; w.Stage == stage {
			parts = append(parts, w.own(of(w)))
		}
	}
	return fleet.WorstOf(parts)
}

// Silent names the live nodes from the baselines of their stages that have sent no heartbeat since a time of the
// database.
func (ws Watches) Silent(sinceMs int64) string {
	return ws.unheard(func(_ *RegionWatch, n *WatchedNode) bool { return n.SeenMs > sinceMs })
}

// unheard names the live nodes from the baselines of their stages for which heard returns false.
func (ws Watches) unheard(heard func(*RegionWatch, *WatchedNode) bool) string {
	var silent []string
	for i := range ws {
		w := &ws[i]
		for n := range w.judged() {
			if !n.Came && !heard(w, n) {
				silent = append(silent, n.ID+" in "+w.Region)
			}
		}
	}
	return controlplane.Several(silent)
}

// RegionsOf returns the regions of a stage in which nodes were seen.
func (ws Watches) RegionsOf(stage int) (regions []string) {
	for _, w := range ws {
		if w.Stage == stage && !slices.Contains(regions, w.Region) {
			regions = append(regions, w.Region)
		}
	}
	return regions
}

// part returns the nodes of a region that a stage takes in, or nil if it takes in the whole region.
func (ws Watches) part(region string, stage int) *WatchedShare {
	for _, w := range ws {
		if w.Region == region && w.Stage == stage && w.Share != nil {
			return w.Share
		}
	}
	return nil
}

// dark names a region of the stage that has no live node but should have: the plan names it, or its nodes sent
// heartbeats not long ago.
func (ws Watches) dark(stage plan.StagePlan, look fleet.Look) string {
	for _, region := range stage.Scope.Regions {
		live := slices.ContainsFunc(look.Nodes, func(n fleet.NodeFigures) bool { return n.Region == region })
		if !live && (stage.Named || look.Silent[region] > 0) {
			return fmt.Sprintf("region %s is dark: it has no live node, and %d silent nodes", region, look.Silent[region])
		}
	}
	for _, region := range slices.Sorted(maps.Keys(look.Silent)) {
		watched := slices.ContainsFunc(ws, func(w RegionWatch) bool { return w.Region == region })
		if !watched && stage.Scope.Has(region) {
			return fmt.Sprintf("region %s is dark: it has no live node, and %d silent nodes", region, look.Silent[region])
		}
	}
	return ""
}

// baselineTooShort names a counted figure that breaks its guardrail if the baseline is exact, but keeps it because the
// baseline was short; empty: there is none.
func (ws Watches) baselineTooShort(g bounds, stages plan.StagePlans) string {
	enough := ws.enough(g)
	for i := range ws {
		w := &ws[i]
		if why := g.ofRegion(w, enough).worstIfExact(); why != "" {
			return why + ", of " + w.name()
		}
		for n := range w.judged() {
			if why := g.ofNode(w, n, stages[w.Stage].Borne(), enough).worstIfExact(); why != "" {
				return fmt.Sprintf("%s, of node %s in region %s", why, n.ID, w.Region)
			}
		}
	}
	return ""
}

// NodesLost returns how many nodes are gone without an orderly shutdown.
func (w *RegionWatch) NodesLost() (gone int) {
	for _, n := range w.Nodes {
		if n.Gone && !n.Left {
			gone++
		}
	}
	return gone
}
