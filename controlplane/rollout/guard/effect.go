package guard

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/rollout/plan"
	"github.com/weirhq/weir/controlplane/sequential"
	"github.com/weirhq/weir/shared/heartbeat"
)

// Effect has the figures of the trials of a rollout of limits: of each node with a trial, and of regions the sum of the
// nodes that are gone. A node's figures begin at 0 with a trial. If the node restarts, its earlier figures of the trial
// are kept. It takes some 200 bytes of state a node.
type Effect struct {
	Nodes  []EffectNode     `json:"nodes,omitempty"`
	Spaces []EffectSpace    `json:"spaces,omitempty"` // the namespaces that SpaceTally has, at most spacesMax
	Top    []AffectedCaller `json:"top,omitempty"`    // most affected of late, at most heartbeat.LimitsTopMax

	Callers []EffectCallers `json:"callers,omitempty"`
}

// EffectCallers are the callers that the trial of a region has newly denied, each once, however many nodes denied it.
type EffectCallers struct {
	Region string            `json:"region"`
	Trial  int64             `json:"trial"`
	Set    heartbeat.Callers `json:"set"`
}

// EffectSpace identifies a namespace.
type EffectSpace struct {
	Workspace []byte `json:"w"`
	Namespace []byte `json:"n"`
}

const spacesMax = heartbeat.LimitsNamespacesMax

// EffectTally is judged, denied before, denied after and newly denied decisions, and newly denied decisions of
// protected callers.
type EffectTally [5]int64

// SpaceTally has the first four figures of an EffectTally for one namespace.
type SpaceTally [4]int64

const (
	effectJudged    = 0
	effectNewly     = 3
	effectProtected = 4
)

// EffectNode is a node with a trial. Without an ID it is the sum of nodes of a region that are gone.
type EffectNode struct {
	ID        string       `json:"id,omitempty"`
	Region    string       `json:"region"`
	Count     int          `json:"count,omitempty"` // of nodes that are gone
	Trial     int64        `json:"trial"`
	StartedMs int64        `json:"started_ms,omitempty"`
	Earlier   EffectTally  `json:"earlier,omitzero"` // before the newest restart
	Newest    EffectTally  `json:"newest"`
	SpacesWas []SpaceTally `json:"spaces_was,omitempty"` // in the order of Effect.Spaces, as Earlier
	Spaces    []SpaceTally `json:"spaces,omitempty"`
	Caller    string       `json:"caller,omitempty"` // a protected caller that was newly denied
}

// AffectedCaller is a key with newly denied decisions. Count is their number.
type AffectedCaller struct {
	heartbeat.TopKey
	Protected bool `json:"protected,omitempty"`
}

// tally returns the node's figures.
func (n EffectNode) tally() (all EffectTally) {
	for i := range all {
		all[i] = n.Earlier[i] + n.Newest[i]
	}
	return all
}

// observe takes in a look at all regions. trials are the numbers of the rollout's trials.
func (e *Effect) observe(look fleet.Look, trials map[int64]bool) {
	if len(trials) == 0 {
		return
	}
	here := map[string]bool{}
	top := map[string]*AffectedCaller{}
	for _, n := range look.Nodes {
		if here[n.ID] = true; n.Limits != nil && trials[n.Trial] {
			e.node(n)
			e.unite(n)
			addTop(top, n.Limits)
		}
	}
	for _, n := range look.Unheard {
		here[n.ID] = true
	}
	e.Nodes = slices.DeleteFunc(e.Nodes, func(n EffectNode) bool { return !trials[n.Trial] })
	e.Callers = slices.DeleteFunc(e.Callers, func(c EffectCallers) bool { return !trials[c.Trial] })
	e.fold(here)
	e.Top = e.Top[:0]
	for _, c := range top {
		e.Top = append(e.Top, *c)
	}
	slices.SortFunc(e.Top, func(a, b AffectedCaller) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), bytes.Compare(keyName(a.TopKey), keyName(b.TopKey)))
	})
	e.Top = slices.Clone(e.Top[:min(len(e.Top), heartbeat.LimitsTopMax)])
}

// addTop adds a node's most affected callers to those of all nodes.
func addTop(top map[string]*AffectedCaller, l *heartbeat.Limits) {
	keys := l.Top
	if l.Caller != nil && !slices.ContainsFunc(keys, func(k heartbeat.TopKey) bool { return sameKey(k, *l.Caller) }) {
		keys = append(slices.Clip(keys), *l.Caller)
	}
	for _, k := range keys {
		name := fmt.Sprintf("%q %q %q %d", k.Workspace, k.Namespace, k.Identifier, k.DurationMs)
		c := top[name]
		if c == nil {
			c = &AffectedCaller{TopKey: k}
			c.Count, top[name] = 0, c
		}
		c.Count += k.Count
		c.Protected = c.Protected || l.Caller != nil && sameKey(k, *l.Caller)
	}
}

func sameKey(a, b heartbeat.TopKey) bool { return bytes.Equal(keyName(a), keyName(b)) }

// keyName returns a name of the key's caller for people, which also orders callers.
func keyName(k heartbeat.TopKey) []byte {
	return bytes.Join([][]byte{k.Workspace, k.Namespace, k.Identifier}, []byte("/"))
}

// node takes in the newest heartbeat of a node.
func (e *Effect) node(is fleet.NodeFigures) {
	i := slices.IndexFunc(e.Nodes, func(n EffectNode) bool { return n.ID == is.ID && n.Region == is.Region })
	if i < 0 {
		i = len(e.Nodes)
		e.Nodes = append(e.Nodes, EffectNode{ID: is.ID, Region: is.Region, Trial: is.Trial, StartedMs: is.StartedMs})
	}
	n, l := &e.Nodes[i], is.Limits
	newest := EffectTally{l.Judged, l.DeniedBefore, l.DeniedAfter, l.NewlyDenied, l.Protected}
	switch {
	case n.Trial != is.Trial:
		*n = EffectNode{ID: n.ID, Region: n.Region, Trial: is.Trial}
	case n.StartedMs != is.StartedMs || newest[0] < n.Newest[0]:
		n.Earlier, n.Newest = n.tally(), EffectTally{}
		n.SpacesWas, n.Spaces = sumSpaces(n.SpacesWas, n.Spaces), nil
	}
	n.StartedMs, n.Newest, n.Spaces = is.StartedMs, newest, slices.Clone(n.Spaces)
	for _, of := range l.Namespaces {
		if at := e.space(of); at >= 0 {
			n.Spaces = append(n.Spaces, make([]SpaceTally, max(0, at+1-len(n.Spaces)))...)
			n.Spaces[at] = SpaceTally{of.Judged, of.DeniedBefore, of.DeniedAfter, of.NewlyDenied}
		}
	}
	if l.Caller != nil {
		n.Caller = string(bytes.ToValidUTF8(keyName(*l.Caller), []byte("\uFFFD")))
	}
}

// unite takes in the newly denied callers of a node.
func (e *Effect) unite(is fleet.NodeFigures) {
	if len(is.Limits.Callers) == 0 {
		return
	}
	i := slices.IndexFunc(e.Callers, func(c EffectCallers) bool { return c.Region == is.Region && c.Trial == is.Trial })
	if i < 0 {
		i = len(e.Callers)
		e.Callers = append(e.Callers, EffectCallers{Region: is.Region, Trial: is.Trial})
	}
	e.Callers[i].Set = e.Callers[i].Set.Union(is.Limits.Callers)
}

// callers returns the number of callers that trials have newly denied, in a region or, if region is empty, in all.
func (e *Effect) callers(trials map[int64]bool, region string) int64 {
	var all heartbeat.Callers
	for _, c := range e.Callers {
		if trials[c.Trial] && (region == "" || c.Region == region) {
			all = all.Union(c.Set)
		}
	}
	return all.Count()
}

// space returns the index of a namespace, or a negative number if there is no room for it.
func (e *Effect) space(of heartbeat.LimitsNamespace) int {
	i := slices.IndexFunc(e.Spaces, func(s EffectSpace) bool {
		return bytes.Equal(s.Workspace, of.Workspace) && bytes.Equal(s.Namespace, of.Namespace)
	})
	if i < 0 && len(e.Spaces) < spacesMax {
		i = len(e.Spaces)
		e.Spaces = append(e.Spaces, EffectSpace{of.Workspace, of.Namespace})
	}
	return i
}

func sumSpaces(a, b []SpaceTally) []SpaceTally {
	sum := make([]SpaceTally, max(len(a), len(b)))
	for _, side := range [][]SpaceTally{a, b} {
		for i, s := range side {
			for figure, v := range s {
				sum[i][figure] += v
			}
		}
	}
	return sum
}

// End adds up all nodes, for each region and trial, because no more heartbeats come.
func (e *Effect) End() { e.fold(nil) }

// fold adds up the nodes that are not here, for each region and trial.
func (e *Effect) fold(here map[string]bool) {
	var left []EffectNode
	for _, n := range e.Nodes {
		if here[n.ID] {
			left = append(left, n)
			continue
		}
		i := slices.IndexFunc(left, func(sum EffectNode) bool {
			return sum.ID == "" && sum.Region == n.Region && sum.Trial == n.Trial
		})
		if i < 0 {
			i = len(left)
			left = append(left, EffectNode{Region: n.Region, Trial: n.Trial})
		}
		sum, all := &left[i], n.tally()
		for f, v := range all {
			sum.Newest[f] += v
		}
		sum.Spaces = sumSpaces(sum.Spaces, sumSpaces(n.SpacesWas, n.Spaces))
		sum.Count, sum.Caller = sum.Count+max(1, n.Count), cmp.Or(sum.Caller, n.Caller)
	}
	e.Nodes = left
}

// LimitsEvidence is the evidence of a rollout of limits, of all nodes whose trial has the mode of the newest stage with
// a trial.
type LimitsEvidence struct {
	Judged, DeniedBefore, DeniedAfter, NewlyDenied, Callers, Protected int64

	Nodes      int                         // that have reported
	Namespaces []heartbeat.LimitsNamespace // most newly denied first, at most heartbeat.LimitsNamespacesMax
	Top        []AffectedCaller
}

// Evidence returns the evidence of trials with these numbers.
func (e *Effect) Evidence(trials map[int64]bool) (all LimitsEvidence) {
	all.Callers = e.callers(trials, "")
	spaces := []SpaceTally{}
	for _, n := range e.Nodes {
		if !trials[n.Trial] {
			continue
		}
		t := n.tally()
		all.Judged, all.DeniedBefore, all.DeniedAfter = all.Judged+t[0], all.DeniedBefore+t[1], all.DeniedAfter+t[2]
		all.NewlyDenied += t[effectNewly]
		all.Protected, all.Nodes = all.Protected+t[effectProtected], all.Nodes+max(1, n.Count)
		spaces = sumSpaces(spaces, sumSpaces(n.SpacesWas, n.Spaces))
	}
	for i, s := range spaces {
		if name := e.Spaces[i]; s[0] > 0 {
			all.Namespaces = append(all.Namespaces, heartbeat.LimitsNamespace{Workspace: name.Workspace,
				Namespace: name.Namespace, Judged: s[0], DeniedBefore: s[1], DeniedAfter: s[2], NewlyDenied: s[3]})
		}
	}
	slices.SortStableFunc(all.Namespaces, func(a, b heartbeat.LimitsNamespace) int {
		return cmp.Compare(b.NewlyDenied, a.NewlyDenied)
	})
	all.Top = e.Top
	return all
}

// Unjudged describes what the evidence of trials lacks: any decision, or any decision of some of the namespaces, each
// of which is WORKSPACE/NAMESPACE; empty: it has decisions of each. Such a stage passes, for example if nobody calls.
func (e *Effect) Unjudged(trials map[int64]bool, namespaces []string) string {
	var judged int64
	var spaces []SpaceTally
	for _, n := range e.Nodes {
		if trials[n.Trial] {
			judged, spaces = judged+n.tally()[0], sumSpaces(spaces, sumSpaces(n.SpacesWas, n.Spaces))
		}
	}
	const shows = "so the evidence shows nothing about the change"
	if judged == 0 {
		return "no decision was judged, " + shows
	}
	var without []string
	for _, name := range namespaces {
		found := func(s EffectSpace) bool { return string(s.Workspace)+"/"+string(s.Namespace) == name }
		if i := slices.IndexFunc(e.Spaces, found); i < 0 || i >= len(spaces) || spaces[i][0] == 0 {
			without = append(without, name)
		}
	}
	if len(without) == 0 || len(e.Spaces) == spacesMax { // heartbeats have no more namespaces
		return ""
	}
	return fmt.Sprintf("no decision was judged in %s, %s there", controlplane.Several(without), shows)
}

// effectRegion has the figures of a region's trial that guardrails judge as counts.
type effectRegion struct {
	region        string
	judged, newly int64      // decisions
	callers       int64      // newly denied
	guarded       EffectNode // with newly denied decisions of protected callers; zero: none
	protects      int64      // newly denied decisions of protected callers
}

// effects returns the figures of each region with a trial.
func (j *Judge) effects() (regions []effectRegion) {
	for _, n := range j.Effect.Nodes {
		if !j.Trials[n.Trial] {
			continue
		}
		i := slices.IndexFunc(regions, func(e effectRegion) bool { return e.region == n.Region })
		if i < 0 {
			i = len(regions)
			regions = append(regions, effectRegion{region: n.Region, callers: j.Effect.callers(j.Trials, n.Region)})
		}
		e, t := &regions[i], n.tally()
		e.judged, e.newly = e.judged+t[effectJudged], e.newly+t[effectNewly]
		if e.protects += t[effectProtected]; t[effectProtected] > e.guarded.tally()[effectProtected] {
			e.guarded = n
		}
	}
	return regions
}

// breachOfLimits returns the guardrail on newly denied callers that a region's trial breaks, or nil.
func (j *Judge) breachOfLimits() *Breach {
	g := j.bounds()
	for _, e := range j.effects() {
		if e.protects > 0 {
			return &Breach{Stage: j.lastApplied(), Why: fmt.Sprintf("newly denied decisions of protected callers: %d, more "+
				"than 0, of node %s in region %s: %s", e.protects, e.guarded.name(), e.region,
				cmp.Or(e.guarded.Caller, "a caller that the node does not name"))}
		}
		if most := g.NewlyDeniedCallers; most != nil && *most < plan.NewlyDeniedCallersMax && e.callers > *most {
			return &Breach{Stage: j.lastApplied(), Why: fmt.Sprintf("newly denied callers: %d, more than %d, in region %s",
				e.callers, *most, e.region)}
		}
	}
	return nil
}

func (n EffectNode) name() string { return cmp.Or(n.ID, "(gone)") }

// newlyDenied returns the evidence that the share of newly denied decisions is beyond its bound. ok is false if this
// figure is not judged here.
func (j *judgement) newlyDenied() (is sequential.Evidence, broken, ok bool) {
	most := j.NewlyDeniedShare
	if most == nil || !j.others {
		return is, false, false
	}
	scale := cmp.Or(*most, plan.DefaultNewlyDeniedShare)
	is = j.of(countNewlyDenied, scale, sequential.Bound{Plus: *most})
	judged := false
	for _, part := range j.since {
		judged = judged || part.Did.Of(fleet.TallyJudged) > 0
	}
	return is, *most < 1 && is.Log >= j.enough, judged
}

// shareRail returns the rail of the share of newly denied decisions, not measured.
func (g bounds) shareRail() Rail {
	rail := Rail{Field: "newly_denied_share"}
	if *g.NewlyDeniedShare < 1 {
		rail.Most = g.NewlyDeniedShare
	}
	return rail
}

// limitsRails returns the rails of a rollout of limits, not measured; none for a tuning.
func (g bounds) limitsRails() []Rail {
	if g.NewlyDeniedShare == nil {
		return nil
	}
	callers := Rail{Field: "newly_denied_callers"}
	if *g.NewlyDeniedCallers < plan.NewlyDeniedCallersMax {
		callers.Most = new(float64(*g.NewlyDeniedCallers))
	}
	return []Rail{g.shareRail(), callers, {Field: "protected", Most: new(0.0)}}
}

// effectRails returns the rails of newly denied callers of each region, and once the rollout is over, of newly denied
// decisions.
func (j *Judge) effectRails() (rails []Rail) {
	g := j.bounds()
	for _, e := range j.effects() {
		most := *g.NewlyDeniedCallers
		rails = append(rails, placed([]Rail{
			countRail("newly_denied_callers", float64(e.callers), float64(most), most >= plan.NewlyDeniedCallersMax),
		}, e.region, "")...)
		if j.Watch == nil && e.judged > 0 { // the rollout is over, and the figures that were judged are gone
			rail := g.shareRail()
			rail.Now = new(float64(e.newly) / float64(e.judged))
			if rail.Most != nil {
				rail.left(*rail.Now, *rail.Most)
			}
			rails = append(rails, placed([]Rail{rail}, e.region, "")...)
		}
		rails = append(rails, placed([]Rail{countRail("protected", float64(e.protects), 0, false)}, e.region,
			e.guarded.ID)...)
	}
	return rails
}
