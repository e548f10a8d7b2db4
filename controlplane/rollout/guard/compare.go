package guard

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/sequential"
	"github.com/weirhq/weir/shared/tuning"
)

// Sample is the figures of a region in a slot of time, one for each rail of a comparison.
type Sample [4]float64

const (
	sampleRows     = iota // log of the rows of its relays per decision, so that growing traffic does no harm
	sampleDenied          // share
	sampleDegraded        // share
	sampleErrors          // per node and minute
)

// comparedRail is a compared figure, signed so that more is worse.
type comparedRail struct {
	field, words string
	figure       int
	sign         float64
	margin       float64                        // the most that it may add, in units of samples
	show         func(added float64) float64    // converts an added amount for people
	unit         func(added float64) (s string) // describes an added amount in words
}

func railsOf(c plan.Comparison) []comparedRail {
	as := func(added float64) float64 { return added }
	more := func(added float64) string { return controlplane.Figure(added) + " more than in" }
	return []comparedRail{
		{"rows_against_control", "MySQL rows of relays a decision", sampleRows, 1, math.Log(c.RowsTimes), math.Exp,
			func(times float64) string { return controlplane.Figure(times) + " times those of" }},
		{"denied_against_control", "share of denied decisions", sampleDenied, 1, c.DeniedShift, as, more},
		{"allowed_against_control", "share of allowed decisions", sampleDenied, -1, c.DeniedShift, as, more},
		{"degraded_against_control", "share of decisions without the origin", sampleDegraded, 1, c.DegradedShift, as, more},
		{"errors_against_control", "errors of relays and settings a node and minute", sampleErrors, 1, c.ErrorsPerMinute, as,
			more},
	}
}

// comparedMax is how many slots of a stage are compared: an hour's worth. Later the baseline is from another time of
// day, and regions are not all at the same time of day.
const comparedMax = 240

// Compared has the figures of all regions, to compare them. It takes some 200 bytes of state a node.
type Compared struct {
	SlotMs  int64            `json:"slot_ms,omitempty"` // when the current slot began
	Regions []ComparedRegion `json:"regions,omitempty"`
	Stages  []ComparedStage  `json:"stages,omitempty"` // applied stages
}

// ComparedRegion is a region, with or without the tuning.
type ComparedRegion struct {
	Region string         `json:"region"`
	Nodes  []ComparedNode `json:"nodes"`
	Slots  []*Sample      `json:"slots,omitempty"` // of the baseline being measured, oldest first; nil: not measured

	// Beside has the slots of the baseline of a stage that takes in a part of the nodes: how far these nodes are from the
	// other nodes.
	Beside []*Sample `json:"beside,omitempty"`
}

// ComparedNode is a node of a region, with its figures in the current slot.
type ComparedNode struct {
	ID        string      `json:"id"`
	StartedMs int64       `json:"started_ms"`
	SentMs    int64       `json:"sent_ms"`
	SeenMs    int64       `json:"seen_ms"`
	Totals    fleet.Tally `json:"totals"`
	Slot      fleet.Span  `json:"slot"`
	Came      bool        `json:"came,omitempty"` // joined since the stage was applied
	Gone      bool        `json:"gone,omitempty"` // no longer live
	Left      bool        `json:"left,omitempty"` // gone after an orderly shutdown
}

// ComparedStage is an applied stage: the figures of every region before it, and the differences between its own regions
// and the others, before and since.
type ComparedStage struct {
	Stage   int               `json:"stage"`
	Before  map[string]Sample `json:"before"`
	Regions []ComparedSeries  `json:"regions"`         // the last region, without a name, is all of them together
	Nodes   []ComparedSeries  `json:"nodes,omitempty"` // one for each region of which the stage takes in a part
}

// ComparedSeries has the differences of one region of a stage, of all its regions together if Region is empty, or of
// the nodes of a region that the stage takes in.
type ComparedSeries struct {
	Region  string                           `json:"region,omitempty"`
	Share   *WatchedShare                    `json:"share,omitempty"` // the nodes; nil: the region
	Series  [len(Sample{})]sequential.Series `json:"series"`
	Against int                              `json:"against,omitempty"` // regions, or nodes, without the tuning in the last slot
}

// compare adds a look at all regions. A slot is long enough to contain a heartbeat of every live node.
func (j *Judge) compare(all fleet.Look) {
	if j.Plan.Guardrails.Comparison.Off {
		return
	}
	c := &j.Compared
	nodes := map[string][]fleet.NodeFigures{}
	for _, n := range all.Nodes {
		nodes[n.Region] = append(nodes[n.Region], n)
	}
	for _, region := range slices.Sorted(maps.Keys(nodes)) {
		c.region(region)
	}
	for i := range c.Regions {
		c.Regions[i].observe(nodes[c.Regions[i].Region], all.Left, j.With.Rest || len(j.With.Regions) > 0)
	}
	if age := j.NowMs - c.SlotMs; age >= 0 && age < slotMs(all) {
		return
	}
	j.closeSlot()
	j.Compared.beginSlot(j.NowMs)
}

// slotMs returns the least length of a slot. It contains some heartbeats of each live node, because a node sends
// several before it is no longer live.
func slotMs(look fleet.Look) int64 { return look.LiveMs / 3 }

func (c *Compared) region(name string) *ComparedRegion {
	i := slices.IndexFunc(c.Regions, func(x ComparedRegion) bool { return x.Region == name })
	if i < 0 {
		i = len(c.Regions)
		c.Regions = append(c.Regions, ComparedRegion{Region: name})
	}
	return &c.Regions[i]
}

// observe updates the region from its live nodes.
func (c *ComparedRegion) observe(nodes []fleet.NodeFigures, left []string, applied bool) {
	at := make(map[string]int, len(c.Nodes))
	for i := range c.Nodes {
		c.Nodes[i].Gone, c.Nodes[i].Left = true, slices.Contains(left, c.Nodes[i].ID)
		at[c.Nodes[i].ID] = i
	}
	for _, is := range nodes {
		i, known := at[is.ID]
		if !known {
			i = len(c.Nodes)
			c.Nodes = append(c.Nodes, ComparedNode{ID: is.ID, StartedMs: is.StartedMs, SentMs: is.SentMs, SeenMs: is.SeenMs,
				Totals: is.Totals, Came: applied})
		}
		c.Nodes[i].Gone, c.Nodes[i].Left = false, false
		c.Nodes[i].observe(is)
	}
	c.Nodes = slices.DeleteFunc(c.Nodes, func(n ComparedNode) bool { return n.Gone && n.Came })
}

func (n *ComparedNode) observe(is fleet.NodeFigures) {
	w := WatchedNode{StartedMs: n.StartedMs, SentMs: n.SentMs, SeenMs: n.SeenMs, Totals: n.Totals,
		Window: []fleet.Span{n.Slot}}
	w.observe(is, false)
	n.StartedMs, n.SentMs, n.SeenMs, n.Totals, n.Slot = w.StartedMs, w.SentMs, w.SeenMs, w.Totals, w.Window[0]
}

// sample returns the figures of nodes of the region in the slot, and the number of these nodes. It returns nil if any
// of them sent no heartbeat, or too few decisions were made.
func (c *ComparedRegion) sample(has func(id string) bool) (_ *Sample, nodes int) {
	var s Sample
	var sum fleet.Span
	for _, n := range c.Nodes {
		if n.Gone || !has(n.ID) {
			continue
		}
		if n.Slot[0] <= 0 {
			return nil, 0
		}
		nodes++
		sum.Add(n.Slot[0], fleet.Tally(n.Slot[1:]))
	}
	decisions := float64(sum.Of(fleet.TallyDecisions))
	if decisions < decisionsMin {
		return nil, 0
	}
	s[sampleRows] = math.Log(float64(1+sum.Of(fleet.TallyRows)) / decisions)
	s[sampleDenied] = float64(sum.Of(fleet.TallyDenied)) / decisions
	s[sampleDegraded] = float64(sum.Of(fleet.TallyDegraded)) / decisions
	s[sampleErrors] = float64(sum.Of(fleet.TallyErrors)) / (float64(sum[0]) / 60_000)
	return &s, nodes
}

func anyNode(string) bool { return true }

// beside returns how far nodes of the region are, in the slot, from the nodes that no stage has taken in, and the
// number of the latter. It returns nil if a node was not measured, or either group is empty. Rows are left at 0: they
// are the region's figure, because its relays move between all of its nodes.
func (c *ComparedRegion) beside(share WatchedShare) (difference *Sample, against int) {
	with, _ := c.sample(share.has)
	without, against := c.sample(WatchedShare{From: share.Below, Below: tuning.TrialShares}.has)
	if with == nil || without == nil {
		return nil, 0
	}
	for i := range with {
		with[i] -= without[i]
	}
	with[sampleRows] = 0
	return with, against
}

// closeSlot makes samples of the slot that has ended, and adds them.
func (j *Judge) closeSlot() {
	samples := map[string]Sample{}
	for i := range j.Compared.Regions {
		c := &j.Compared.Regions[i]
		s, _ := c.sample(anyNode)
		if s != nil {
			samples[c.Region] = *s
		}
		if j.Step == Measuring {
			c.Slots = newest(c.Slots, s)
			if part := j.Watch.part(c.Region, j.Stage); part != nil {
				difference, _ := c.beside(*part)
				c.Beside = newest(c.Beside, difference)
			}
		}
	}
	for i := range j.Compared.Stages {
		if s := &j.Compared.Stages[i]; s.Stage < j.Stage || j.Step == Baking {
			s.each(samples, j.Compared.control(j.With), addSince)
			j.Compared.addBeside(s.Nodes)
		}
	}
}

// stayed returns the region with only the nodes that were there when the stage was applied, or nil if any of them is
// gone.
func (c *ComparedRegion) stayed() *ComparedRegion {
	of := new(ComparedRegion)
	for _, n := range c.Nodes {
		switch {
		case n.Came:
		case n.Gone:
			return nil
		default:
			of.Nodes = append(of.Nodes, n)
		}
	}
	return of
}

// addSince adds a difference from after the stage was applied.
func addSince(s *sequential.Series, difference float64) {
	if s.Dropped+len(s.Since) < comparedMax {
		s.Add(difference)
	}
}

func newest(slots []*Sample, s *Sample) []*Sample {
	slots = append(slots, s)
	return slots[max(0, len(slots)-sequential.Kept):]
}

// beginComparing ends the baseline of a stage. It records the figures of all regions, and the differences between the
// stage's own regions and the others.
func (j *Judge) beginComparing() {
	stage := ComparedStage{Stage: j.Stage, Before: map[string]Sample{}}
	for i := range j.Compared.Regions {
		c := &j.Compared.Regions[i]
		if mean := meanOf(c.Slots); mean != nil {
			stage.Before[c.Region] = *mean
		}
	}
	for _, region := range j.Watch.RegionsOf(j.Stage) {
		stage.Regions = append(stage.Regions, ComparedSeries{Region: region})
		if part := j.Watch.part(region, j.Stage); part != nil && part.Below < tuning.TrialShares {
			stage.Nodes = append(stage.Nodes, besideBefore(region, *part, j.Compared.region(region).Beside))
		}
	}
	if len(stage.Regions) > 1 {
		stage.Regions = append(stage.Regions, ComparedSeries{})
	}
	for back := sequential.Kept; back > 0; back-- {
		samples := map[string]Sample{}
		for i := range j.Compared.Regions {
			c := &j.Compared.Regions[i]
			if at := len(c.Slots) - back; at >= 0 && c.Slots[at] != nil {
				samples[c.Region] = *c.Slots[at]
			}
		}
		stage.each(samples, j.Compared.control(j.With), func(s *sequential.Series, difference float64) {
			s.Before.Add(difference)
		})
	}
	for i := range j.Compared.Stages {
		j.Compared.Stages[i].Nodes = nil // their control group now runs the tuning too
	}
	for i := range j.Compared.Regions {
		c := &j.Compared.Regions[i]
		c.Slots, c.Beside, c.Nodes = nil, nil, slices.DeleteFunc(c.Nodes, func(n ComparedNode) bool { return n.Gone })
		for n := range c.Nodes {
			c.Nodes[n].Came = false
		}
	}
	j.Compared.Stages = append(j.Compared.Stages, stage)
}

// besideBefore begins the comparison of a stage's nodes with the differences from their region's other nodes before the
// stage.
func besideBefore(region string, share WatchedShare, slots []*Sample) ComparedSeries {
	c := ComparedSeries{Region: region, Share: &share}
	for _, difference := range slots {
		if difference == nil {
			continue
		}
		for f, v := range difference {
			c.Series[f].Before.Add(v)
		}
	}
	return c
}

func meanOf(slots []*Sample) *Sample {
	var mean Sample
	n := 0.0
	for _, s := range slots {
		if s == nil {
			continue
		}
		n++
		for i, v := range s {
			mean[i] += (v - mean[i]) / n
		}
	}
	if n == 0 {
		return nil
	}
	return &mean
}

// each calls add with the differences of each region of the stage in a slot: how much its figures have changed since
// its baseline, less the median of the changes in regions without the tuning. Because it is the median, a single region
// that changes by itself has no influence.
func (s *ComparedStage) each(samples map[string]Sample, control map[string]bool,
	add func(s *sequential.Series, difference float64)) {
	var others [len(Sample{})][]float64
	for region, sample := range samples {
		before, ok := s.Before[region]
		if !control[region] || !ok {
			continue
		}
		for i := range sample {
			others[i] = append(others[i], sample[i]-before[i])
		}
	}
	if len(others[0]) == 0 || len(s.Regions) == 0 { // no region of the stage has a node
		return
	}
	var sum Sample
	n := 0
	for i := range s.Regions {
		c := &s.Regions[i]
		c.Against = len(others[0])
		sample, ok := samples[c.Region]
		before, was := s.Before[c.Region]
		if !ok || !was {
			continue
		}
		n++
		for f := range sample {
			difference := sample[f] - before[f] - median(others[f])
			sum[f] += difference
			add(&c.Series[f], difference)
		}
	}
	if all := &s.Regions[len(s.Regions)-1]; all.Region == "" && n == len(s.Regions)-1 {
		for f := range sum {
			add(&all.Series[f], sum[f]/float64(n))
		}
	}
}

// median sorts the values and returns their median.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// ComparedVerdict is the comparison's verdict on a figure of a region of a stage, or of all regions of the stage
// together.
type ComparedVerdict struct {
	Stage   int
	Region  string // empty: all of the stage together
	Nodes   bool   // it is about the nodes of the region that the stage takes in
	Against int    // number of regions, or of nodes of the region, without the tuning
	Field   string
	Bound   float64 // the most that may be added, converted for people like Estimate, Low and High
	Enough  float64 // confidence at which the figure is worse; all figures of all regions share the error rate
	sequential.Verdict
	words, unit string
}

// Comparisons returns the verdicts on all figures of stages that have been applied.
func (j *Judge) Comparisons() (all []ComparedVerdict) {
	rails := railsOf(j.Plan.Guardrails.Comparison)
	α := j.Plan.Guardrails.ErrorRate() / 2 / float64(len(rails)*j.Compared.series(j.Stages))
	for i := range j.Compared.Stages {
		s := &j.Compared.Stages[i]
		for _, c := range slices.Concat(s.Regions, s.Nodes) {
			for _, rail := range rails {
				if c.Share != nil && rail.figure == sampleRows {
					continue
				}
				v := verdictOf(c.Series[rail.figure], rail, α)
				all = append(all, ComparedVerdict{Stage: s.Stage, Region: c.Region, Nodes: c.Share != nil, Against: c.Against,
					Field: rail.field, Bound: rail.show(rail.margin), Enough: 1 - α, Verdict: v, words: rail.words,
					unit: rail.unit(v.Estimate)})
			}
		}
	}
	return all
}

// verdictOf returns the verdict on a series, converted for people.
func verdictOf(s sequential.Series, rail comparedRail, α float64) sequential.Verdict {
	if rail.sign < 0 {
		s.Before.Mean = -s.Before.Mean
		since := make([]float64, len(s.Since))
		for i, v := range s.Since {
			since[i] = -v
		}
		s.Since = since
	}
	v := s.Judge(rail.margin, α)
	v.Estimate, v.Low, v.High = rail.show(v.Estimate), rail.show(v.Low), rail.show(v.High)
	return v
}

func (v ComparedVerdict) String() string {
	where, others := "region "+v.Region, controlplane.CountOf(v.Against, "region", "regions")
	switch {
	case v.Nodes:
		where = "the nodes of region " + v.Region + " that the stage takes in"
		others = controlplane.CountOf(v.Against, "node", "nodes") + " of it"
	case v.Region == "":
		where = "all regions of the stage"
	}
	return fmt.Sprintf("%s of %s: %s the %s without the tuning at the same time (%s to %s, bound %s), with a "+
		"confidence of %s", v.words, where, v.unit, others, controlplane.Figure(v.Low), controlplane.Figure(v.High),
		controlplane.Figure(v.Bound),
		controlplane.Figure(v.Confidence))
}

// worstOf returns the figure that is worse than in the regions without the tuning, with the highest confidence; nil:
// there is none.
func worstOf(all []ComparedVerdict) *Breach {
	var worst *ComparedVerdict
	for i := range all {
		if v := &all[i]; v.Worse && (worst == nil || v.Confidence > worst.Confidence) {
			worst = v
		}
	}
	if worst == nil {
		return nil
	}
	return &Breach{Stage: worst.Stage, Why: worst.String()}
}

// beginSlot clears the current slot, which began before the time that should be measured.
func (c *Compared) beginSlot(nowMs int64) {
	c.SlotMs = nowMs
	for i := range c.Regions {
		for n := range c.Regions[i].Nodes {
			c.Regions[i].Nodes[n].Slot = fleet.Span{}
		}
	}
}

// control maps each region to whether it goes without the tuning. It lacks regions that have not been observed.
func (c *Compared) control(touched fleet.Scope) map[string]bool {
	without := map[string]bool{}
	for _, of := range c.Regions {
		without[of.Region] = !touched.Has(of.Region)
	}
	return without
}

// lostElsewhere returns the share of nodes that the regions without the tuning have lost since the stage was applied.
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

// addBeside adds a slot to the comparison of nodes: the difference between the nodes that a stage takes in and the
// other nodes of their regions. Both groups are nodes of the baseline. Nodes that came later are in neither group.
// While a node of a group is gone, no slot is added: nodes differ, so a changed group would differ even if the tuning
// is harmless.
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

// series returns the largest possible number of series, which share the error rate.
func (c *Compared) series(stages plan.StagePlans) (n int) {
	each := 1
	if slices.ContainsFunc(stages, func(s plan.StagePlan) bool { return !s.All() }) {
		each = 2 // a region, and its nodes
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
