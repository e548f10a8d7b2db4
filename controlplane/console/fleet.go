package console

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane/console/pulse"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// Times from which a figure is late or bad. They are well above the figures that default tunings cause, and a rollout's
// default guardrail stops a rollout there.
const (
	convergenceLate = 10 * time.Second
	convergenceBad  = 30 * time.Second
	syncLate        = time.Minute // since the last successful replay or exchange of changes
	skewLate        = 500 * time.Millisecond
)

// fleetView is the fleet as its page shows it.
type fleetView struct {
	Problem  string // why the figures are not the newest
	Read     time.Time
	Empty    bool
	Nodes    int
	Live     int
	Now      pulse.Rates
	Regions  []regionView
	Pairs    pairsView
	Findings []finding
	Builds   []tally
	Tunings  []tally
	Revision string // changes when anything but a figure changes
	Partial  bool   // there are more nodes than an API response holds
}

// regionView is one region.
type regionView struct {
	Name        string
	Nodes       []nodeView
	Live        int
	Now         pulse.Rates
	Delay       delay // of the slowest relay
	Builds      []tally
	Tunings     []tally
	Breakers    int64
	Relays      []string // nodes that relay its shards
	Unpublished int64    // age of the oldest unpublished count in ms
	State       string

	shards int32 // of its Redis; 0: no node has a relay
	held   []int32
}

// nodeView is a node. State is "ok", "late" or "bad"; Why has the reasons.
type nodeView struct {
	*controlv1.Node
	Now   pulse.Rates
	State string
	Why   []string
	Delay delay
}

// delay is a convergence delay: the age of the slowest other region's changes when they were read.
type delay struct {
	Known bool
	P99   int64
	State string // ok, late, bad
}

// Scale returns the position of a delay on a drawing that is 300 wide and ends at convergenceBad.
func (d delay) Scale(ms int64) int64 {
	return min(300, ms*300/convergenceBad.Milliseconds())
}

// tally is a number of nodes with the same build or tuning.
type tally struct {
	Name  string
	Nodes int
}

// finding is a problem that needs attention.
type finding struct {
	State  string // late or bad
	Where  string // a node or a region
	Link   string
	Text   string
	Advice string
}

// describe returns the page's view of a reading.
func describe(r pulse.Reading) fleetView {
	v := fleetView{Problem: r.Problem, Read: r.Read, Empty: len(r.Fleet.GetNodes()) == 0, Partial: r.Fleet.GetTruncated()}
	builds, tunings := map[string]int{}, map[string]int{}
	for _, n := range r.Fleet.GetNodes() {
		if len(v.Regions) == 0 || v.Regions[len(v.Regions)-1].Name != n.GetRegion() {
			v.Regions = append(v.Regions, regionView{Name: n.GetRegion(), State: "ok"})
		}
		region := &v.Regions[len(v.Regions)-1]
		one := nodeView{Node: n, Now: r.Rates[n.GetNodeId()], Delay: delayOf(n)}
		one.judge(r.Fleet.GetNowMs())
		region.Nodes = append(region.Nodes, one)
		v.Nodes++
		if !n.GetLive() {
			continue
		}
		v.Live++
		region.Live++
		region.Now.Add(one.Now)
		v.Now.Add(one.Now)
		region.Breakers += n.GetHealth().GetBreakersOpen()
		if one.Delay.Known && (!region.Delay.Known || one.Delay.P99 > region.Delay.P99) {
			region.Delay = one.Delay
		}
		region.relayed(&one, r.Fleet.GetNowMs())
		builds[n.GetBuild()]++
		tunings[tuningName(n.GetTuningVersion())]++
	}
	v.Pairs = pairsOf(r.Fleet)
	v.Builds, v.Tunings = tallies(builds), tallies(tunings)
	for i := range v.Regions {
		region := &v.Regions[i]
		builds, tunings = map[string]int{}, map[string]int{}
		for _, n := range region.Nodes {
			region.State = worse(region.State, n.State)
			if n.GetLive() {
				builds[n.GetBuild()]++
				tunings[tuningName(n.GetTuningVersion())]++
			}
		}
		if len(region.unrelayed()) > 0 {
			region.State = "bad"
		}
		region.Builds, region.Tunings = tallies(builds), tallies(tunings)
		v.Findings = append(v.Findings, region.findings()...)
	}
	// bad before late
	slices.SortStableFunc(v.Findings, func(a, b finding) int { return cmp.Compare(a.State, b.State) })
	v.Revision = v.revision()
	return v
}

// judge sets the node's state and the reasons for it.
func (n *nodeView) judge(nowMs int64) {
	n.State = "ok"
	say := func(state, format string, args ...any) {
		n.State = worse(n.State, state)
		n.Why = append(n.Why, fmt.Sprintf(format, args...))
	}
	if !n.GetLive() {
		say("bad", "last heartbeat at %s (%s ago)", clock(n.GetSeenAtMs()),
			span(time.Duration(n.GetAgeMs())*time.Millisecond))
		return
	}
	h := n.GetHealth()
	if open := h.GetBreakersOpen(); open > 0 {
		since := ""
		if at := h.GetReplayedAtMs(); at > 0 {
			since = fmt.Sprintf(", its last complete replay was at %s (%s ago)", clock(at),
				span(time.Duration(sinceNode(n.Node, nowMs, at))*time.Millisecond))
		}
		say("bad", "decides without its Redis: %s open%s", plural(open, "breaker is", "breakers are"), since)
	}
	if h.GetDroppedCostTotal() > 0 {
		say("bad", "has lost accepted cost: %s", count(h.GetDroppedCostTotal()))
	}
	if h.GetPendingCost() > 0 {
		n.late(say, nowMs, h.GetReplayedAtMs(), "its accepted cost has not reached Redis")
	}
	n.late(say, nowMs, h.GetSettingsAtMs(), "has not read tuning and overrides")
	n.judgeRelay(nowMs, say)
	if p := h.GetSettingsProblem(); p != "" {
		say("late", "does not run the newest settings: %s", p)
	}
	if skew := time.Duration(n.GetClockSkewMs()) * time.Millisecond; skew.Abs() > skewLate {
		say("late", "its clock is off by %s from MySQL's", span(skew.Abs()))
	}
	if p := n.GetHealthProblem(); p != "" {
		say("late", "its figures cannot all be read: %s", p)
	}
}

// late reports a task that has not succeeded for longer than syncLate. For a node that has not done it yet, the time
// counts from the node's start.
func (n *nodeView) late(say func(state, format string, args ...any), nowMs, atMs int64, what string) {
	since := atMs
	if since == 0 {
		since = n.GetStartedAtMs()
	}
	ago := time.Duration(sinceNode(n.Node, nowMs, since)) * time.Millisecond
	if ago > syncLate {
		say("late", "%s since %s (%s)", what, clock(since), span(ago))
	}
}

// sinceNode returns the time in ms since a moment by a node's clock.
func sinceNode(n *controlv1.Node, nowMs, atMs int64) int64 {
	return max(0, nowMs+n.GetClockSkewMs()-atMs)
}

// findings returns the problems of a region: its own problems, and the problems of up to three nodes, bad nodes
// first. If no node is live or shards have no relay, the region has a finding.
func (r *regionView) findings() (found []finding) {
	link := "/console/regions/" + r.Name
	if r.Live == 0 {
		return []finding{{"bad", r.Name, link, "no node of this region sends heartbeats",
			"The nodes have stopped, or cannot reach MySQL: check their processes and their connection to MySQL."}}
	}
	if missing := r.unrelayed(); len(missing) > 0 {
		found = append(found, finding{"bad", r.Name, link, "no node relays " + shardsInWords(missing) + " of its Redis",
			"This region and the others exchange no counts: the nodes' logs say why none of them gets the lease."})
	}
	const most = 3
	odd := slices.DeleteFunc(slices.Clone(r.Nodes), func(n nodeView) bool { return n.State == "ok" })
	slices.SortStableFunc(odd, func(a, b nodeView) int { return cmp.Compare(a.State, b.State) }) // bad before late
	for _, n := range odd[:min(len(odd), most)] {
		found = append(found, finding{State: n.State, Where: n.GetNodeId() + " in " + r.Name, Link: link,
			Text: strings.Join(n.Why, "; ")})
	}
	if len(odd) > most {
		found = append(found, finding{State: odd[most].State, Where: r.Name, Link: link,
			Text: fmt.Sprintf("and %s more of its nodes", count(len(odd)-most))})
	}
	return found
}

func tuningName(version int64) string {
	if version == 0 {
		return "built-in"
	}
	return "version " + count(version)
}

// tallies returns the tallies, sorted by their number of nodes, the largest first.
func tallies(nodes map[string]int) (out []tally) {
	for name, n := range nodes {
		out = append(out, tally{name, n})
	}
	slices.SortFunc(out, func(a, b tally) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// worse returns the worse of two states.
func worse(a, b string) string {
	rank := map[string]int{"ok": 0, "late": 1, "bad": 2}
	if rank[b] > rank[a] {
		return b
	}
	return a
}

func (v *fleetView) revision() string {
	h := fnv.New64a()
	put := func(words ...any) { _, _ = fmt.Fprintln(h, words...) }
	put(v.Problem, v.Nodes, v.Live, v.Builds, v.Tunings)
	for _, r := range v.Regions {
		put(r.Name, r.State, r.Live, r.Breakers, r.Delay.State, r.Relays, r.Builds, r.Tunings)
		for _, n := range r.Nodes {
			put(n.GetNodeId(), n.State)
		}
	}
	return fmt.Sprintf("%x", h.Sum64())
}

func (c fleetPages) fleetPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	reading := c.pulse.Look(r.Context())
	if reading.Fleet == nil {
		c.render(w, r, v, http.StatusServiceUnavailable, "broken", "Fleet", reading.Problem)
		return
	}
	c.render(w, r, v, http.StatusOK, "fleet", "Fleet", describe(reading))
}

// regionNodesMax is the number of nodes that a region's page shows at most.
const regionNodesMax = 200

// regionPageView is a region with a page of its nodes, bad nodes first.
type regionPageView struct {
	regionView
	Shown []nodeView
	Read  time.Time
}

func (c fleetPages) regionPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	reading := c.pulse.Look(r.Context())
	fleet := describe(reading)
	name := r.PathValue("region")
	i := slices.IndexFunc(fleet.Regions, func(region regionView) bool { return region.Name == name })
	switch {
	case reading.Fleet == nil:
		c.render(w, r, v, http.StatusServiceUnavailable, "broken", name, reading.Problem)
	case i < 0:
		c.render(w, r, v, http.StatusNotFound, "broken", name,
			fmt.Sprintf("No node of a region %q has sent a heartbeat. "+
				"The name of a region is the WEIR_REGION of its nodes.", name))
	default:
		page := regionPageView{regionView: fleet.Regions[i], Read: fleet.Read}
		page.Shown = slices.Clone(page.Nodes)
		rank := map[string]int{"bad": 0, "late": 1, "ok": 2}
		slices.SortStableFunc(page.Shown, func(a, b nodeView) int { return cmp.Compare(rank[a.State], rank[b.State]) })
		page.Shown = page.Shown[:min(len(page.Shown), regionNodesMax)]
		c.render(w, r, v, http.StatusOK, "region", name, page)
	}
}
