package controlplane

import (
	"fmt"

	"github.com/weirhq/weir/shared/heartbeat"
)

// FleetLook is what the nodes of a scope last said of themselves, at one moment.
type FleetLook struct {
	AtMs   int64          `json:"at_ms"` // by the clock of the database
	Nodes  []NodeFigures  `json:"nodes"` // those that are live, by region and id
	Silent map[string]int `json:"silent,omitempty"`
	// Silent is how many nodes of a region have a heartbeat that is too old.

	Truncated bool `json:"truncated,omitempty"` // there are more than FleetNodesMax

	LiveMs int64 `json:"live_ms,omitempty"` // how old the heartbeat of a live node is at most
}

// NodeFigures are one live node: what it runs, and its totals as its heartbeat has them.
type NodeFigures struct {
	ID        string `json:"id"`
	Region    string `json:"region"`
	Version   int64  `json:"version"`    // of the tuning
	StartedMs int64  `json:"started_ms"` // of its process, by its clock: another one counts from 0 again
	SentMs    int64  `json:"sent_ms"`    // by its clock
	SeenMs    int64  `json:"seen_ms"`    // by the clock of the database
	Totals    Tally  `json:"totals"`

	Held   []int `json:"held,omitempty"`   // shards of the region's origin that it relays
	Shards int   `json:"shards,omitempty"` // that the origin has; 0: the node has no relay

	ConvergenceMs *float64 `json:"convergence_ms,omitempty"` // nil: not reported
	LatencyUs     *float64 `json:"latency_us,omitempty"`
	Problem       string   `json:"problem,omitempty"` // why its settings are not in force
}

// Tally are totals of a node, or how much they grew: an array, since the state of a rollout
// has several for each node. Figures are only ever added at its end.
type Tally [6]int64

// The figures of a Tally.
const (
	TallyDecisions = iota
	TallyDenied
	TallyDegraded
	TallyDropped
	TallyErrors // of relays and readings of settings
	TallyRows   // of MySQL, that relays wrote and read
)

// Span is what a node did in a time: its length in ms, then a Tally.
type Span [1 + len(Tally{})]int64

func (s *Span) add(ms int64, grown Tally) {
	s[0] += ms
	for i, v := range grown {
		s[1+i] += v
	}
}

func (s Span) of(figure int) int64 { return s[1+figure] }

// TakeLook is the look at a scope of a fleet.
func TakeLook(fleet Fleet, scope RolloutScope) FleetLook {
	look := FleetLook{AtMs: fleet.Now.UnixMilli(), Silent: map[string]int{}, Truncated: fleet.Truncated}
	for _, n := range fleet.Nodes {
		switch {
		case !scope.Has(n.Region):
		case !n.Live:
			look.Silent[n.Region]++
		default:
			look.Nodes = append(look.Nodes, figuresOf(n))
		}
	}
	return look
}

func figuresOf(n Node) NodeFigures {
	h := n.Health
	f := NodeFigures{
		ID: n.NodeID, Region: n.Region, Version: n.TuningVersion,
		StartedMs: n.StartedAtMs, SentMs: n.SentAtMs, SeenMs: n.SeenAt.UnixMilli(),
		ConvergenceMs: n.Reported.ConvergenceMs, LatencyUs: n.Reported.LatencyUs, Problem: cut(h.SettingsProblem, 200),
	}
	f.Totals[TallyDecisions] = h.AllowedTotal + h.DeniedTotal + h.ShadowedTotal
	f.Totals[TallyDenied] = h.DeniedTotal + h.ShadowedTotal
	f.Totals[TallyDegraded] = h.DegradedTotal
	f.Totals[TallyDropped] = h.DroppedCost
	f.Totals[TallyErrors] = h.SettingsErrors
	if r := h.Relay; r != nil {
		f.Totals[TallyErrors] += r.Errors
		f.Totals[TallyRows] = r.Rows
		f.Held, f.Shards = r.Held, min(r.Shards, heartbeat.ShardsMax)
	}
	return f
}

func (n NodeFigures) problem() string {
	if n.Problem == "" {
		return ""
	}
	return ": " + n.Problem
}

// Applied is how far nodes have taken up a version.
type Applied struct {
	Live    int
	Applied int
	Waiting string // one node that has not, and what it says
}

func (a Applied) String() string {
	return fmt.Sprintf("%d of %d live nodes have applied it; %s", a.Applied, a.Live, a.Waiting)
}

// appliedBy tells how far the nodes of a scope run the versions that the rollout wrote:
// those very versions, as a newer one is something else's. Regions that have none of their
// own follow the fleet's.
func (r *Rollout) appliedBy(look FleetLook, scope RolloutScope) (a Applied) {
	versions := make(map[string]int64, len(r.Touched))
	for _, t := range r.Touched {
		versions[t.Region] = t.Applied
	}
	for _, n := range look.Nodes {
		if !scope.Has(n.Region) {
			continue
		}
		want, own := versions[n.Region]
		if !own {
			want = versions[""]
		}
		a.Live++
		switch {
		case n.Version == want:
			a.Applied++
		case a.Waiting == "" || n.Problem != "":
			a.Waiting = fmt.Sprintf("%s in %s runs version %d, not %d", n.ID, n.Region, n.Version, want) + n.problem()
		}
	}
	return a
}

// touchedScope is every region that the rollout has, or may have, written.
func (r *Rollout) touchedScope() (scope RolloutScope) {
	for _, t := range r.Touched {
		if t.Region == "" {
			return RolloutScope{Rest: true}
		}
		scope.Regions = append(scope.Regions, t.Region)
	}
	return scope
}
