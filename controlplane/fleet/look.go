package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// Look is the newest heartbeats of the nodes of a scope, at a moment.
type Look struct {
	AtMs   int64          `json:"at_ms"` // by the clock of the database
	Nodes  []NodeFigures  `json:"nodes"` // live nodes, by region and ID
	Silent map[string]int `json:"silent,omitempty"`
	// Silent counts the nodes of a region whose heartbeat is too old.

	Unheard []SilentNode `json:"unheard,omitempty"` // the nodes of Silent that were live within UnheardKept
	Left    []string     `json:"left,omitempty"`    // IDs of nodes that were shut down in order

	Truncated bool `json:"truncated,omitempty"` // there are more than NodesMax

	LiveMs int64 `json:"live_ms,omitempty"` // the greatest age of a live node's heartbeat
}

// SilentNode is a node without a recent heartbeat. It may or may not run, with any tuning.
type SilentNode struct {
	ID     string `json:"id"`
	Region string `json:"region"`
	SeenMs int64  `json:"seen_ms"` // by the clock of the database
}

// UnheardKept is how long looks name a silent node: the longest lease of a trial.
const UnheardKept = time.Hour

const hashBytesMax = 16 // of a tuning

// NodeFigures are the tuning and the totals of a live node, from its newest heartbeat.
type NodeFigures struct {
	ID        string `json:"id"`
	Region    string `json:"region"`
	Version   int64  `json:"version"`    // of the stored tuning
	StartedMs int64  `json:"started_ms"` // start of its process, by its clock; a new process counts from 0
	SentMs    int64  `json:"sent_ms"`    // by its clock
	SeenMs    int64  `json:"seen_ms"`    // by the clock of the database
	Totals    Tally  `json:"totals"`

	Held   []int `json:"held,omitempty"`   // shards of the region's origin that it relays
	Shards int   `json:"shards,omitempty"` // shards of the origin; 0: the node has no relay
	Down   bool  `json:"down,omitempty"`   // the origin, or a part of it, does not answer the node

	Trial int64  `json:"trial,omitempty"` // number of the trial in force; 0: the stored tuning is in force
	Hash  string `json:"hash,omitempty"`  // of the tuning in force

	ConvergenceMs *float64 `json:"convergence_ms,omitempty"` // nil: not reported
	LatencyUs     *float64 `json:"latency_us,omitempty"`
	Problem       string   `json:"problem,omitempty"` // why its settings are not in force

	Limits *heartbeat.Limits `json:"limits,omitempty"` // of the trial, if it is a trial of limits
}

// Tally is the totals of a node, or their growth. It is an array to be compact, because the state of a rollout has
// several for each node. New figures must be added at its end.
type Tally [8]int64

// The figures of a Tally.
const (
	TallyDecisions = iota
	TallyDenied
	TallyDegraded
	TallyDropped
	TallyErrors // of relays and readings of settings
	TallyRows   // of MySQL, that relays wrote and read

	// Of a trial of limits. They begin at 0 with each trial, although the node goes on.
	TallyJudged
	TallyNewlyDenied
)

// Span is the figures of a node in a span of time: its length in ms, then a Tally.
type Span [1 + len(Tally{})]int64

// MarshalJSON leaves out the figures of trials if they are 0, so that rollouts of tunings do not store them.
func (t Tally) MarshalJSON() ([]byte, error) { return json.Marshal(withoutTrial(t[:])) }

// MarshalJSON is as of Tally.
func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal(withoutTrial(s[:])) }

func withoutTrial(figures []int64) []int64 {
	const ofTrials = 2
	if of := figures[:len(figures)-ofTrials]; figures[len(of)] == 0 && figures[len(of)+1] == 0 {
		return of
	}
	return figures
}

// Add adds growth over ms milliseconds.
func (s *Span) Add(ms int64, grown Tally) {
	s[0] += ms
	for i, v := range grown {
		s[1+i] += v
	}
}

// Of returns a figure of the Tally.
func (s Span) Of(figure int) int64 { return s[1+figure] }

// TakeLook returns the look at a scope of a fleet.
func TakeLook(fleet Fleet, scope Scope) Look {
	look := Look{AtMs: fleet.Now.UnixMilli(), Silent: map[string]int{}, Truncated: fleet.Truncated, Left: fleet.Left}
	for _, n := range fleet.Nodes {
		switch {
		case !scope.Has(n.Region):
		case !n.Live:
			look.Silent[n.Region]++
			if n.Age <= UnheardKept {
				look.Unheard = append(look.Unheard, SilentNode{ID: n.NodeID, Region: n.Region, SeenMs: n.SeenAt.UnixMilli()})
			}
		default:
			look.Nodes = append(look.Nodes, FiguresOf(n))
		}
	}
	each := max(1, topPerLook/max(1, len(look.Nodes)))
	for _, n := range look.Nodes {
		if n.Limits != nil {
			n.Limits.Top = n.Limits.Top[:min(len(n.Limits.Top), each)]
		}
	}
	return look
}

// topPerLook bounds the callers in the reports of limits trials of a look, because looks are journaled. Each node keeps
// at least one, its most affected.
const topPerLook = 1000

// Within returns the part of the look in a scope.
func (l Look) Within(scope Scope) Look {
	l.Nodes = slices.DeleteFunc(slices.Clone(l.Nodes), func(n NodeFigures) bool { return !scope.Has(n.Region) })
	l.Unheard = slices.DeleteFunc(slices.Clone(l.Unheard), func(n SilentNode) bool { return !scope.Has(n.Region) })
	l.Silent = maps.Clone(l.Silent)
	maps.DeleteFunc(l.Silent, func(region string, _ int) bool { return !scope.Has(region) })
	return l
}

// FiguresOf returns the figures of a node.
func FiguresOf(n Node) NodeFigures {
	h := n.Health
	f := NodeFigures{
		ID: n.NodeID, Region: n.Region, Version: n.TuningVersion,
		StartedMs: n.StartedAtMs, SentMs: n.SentAtMs, SeenMs: n.SeenAt.UnixMilli(),
		Trial: h.Trial, Hash: controlplane.Cut(h.TuningHash, hashBytesMax),
		ConvergenceMs: n.Reported.ConvergenceMs, LatencyUs: n.Reported.LatencyUs,
		Problem: controlplane.Shorten(h.SettingsProblem, 200),
	}
	f.Down = OriginDown(n)
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
	if h.Limits != nil && h.Trial != 0 {
		f.Limits = bounded(*h.Limits)
		f.Totals[TallyJudged], f.Totals[TallyNewlyDenied] = f.Limits.Judged, f.Limits.NewlyDenied
	}
	return f
}

// Runs names the trial or version that the node runs.
func (n NodeFigures) Runs() string {
	if n.Trial != 0 {
		return fmt.Sprintf("trial %d", n.Trial)
	}
	return fmt.Sprintf("version %d", n.Version)
}

// ProblemSuffix returns the node's problem as the suffix of a sentence; empty: it has none.
func (n NodeFigures) ProblemSuffix() string {
	if n.Problem == "" {
		return ""
	}
	return ": " + n.Problem
}

// Scope is a set of regions.
type Scope struct {
	Regions []string `json:"regions,omitempty"`
	Rest    bool     `json:"rest,omitempty"` // and every region, present or future, that is not in Not
	Not     []string `json:"not,omitempty"`
}

// Has reports whether a region belongs to the scope.
func (s Scope) Has(region string) bool {
	return slices.Contains(s.Regions, region) || s.Rest && !slices.Contains(s.Not, region)
}

// Rows returns the regions that get a row of their own; "" is the fleet's row.
func (s Scope) Rows() []string {
	if s.Rest {
		return append(slices.Clone(s.Regions), "")
	}
	return s.Regions
}

// String names the regions.
func (s Scope) String() string {
	switch {
	case s.Rest && len(s.Not) == 0:
		return "all regions"
	case s.Rest:
		return "all other regions"
	}
	return strings.Join(s.Regions, ", ")
}

// bounded returns a report of a trial of limits with at most as many entries as nodes of this build write, without
// entries whose names are too long.
func bounded(l heartbeat.Limits) *heartbeat.Limits {
	l.Top = slices.DeleteFunc(slices.Clone(l.Top[:min(len(l.Top), heartbeat.LimitsTopMax)]), overlong)
	l.Namespaces = slices.DeleteFunc(slices.Clone(l.Namespaces[:min(len(l.Namespaces), heartbeat.LimitsNamespacesMax)]),
		func(n heartbeat.LimitsNamespace) bool {
			return overlong(heartbeat.TopKey{Workspace: n.Workspace, Namespace: n.Namespace})
		})
	if l.Caller != nil && overlong(*l.Caller) {
		l.Caller = nil
	}
	return &l
}

func overlong(k heartbeat.TopKey) bool {
	return len(k.Workspace) > window.WorkspaceBytesMax || len(k.Namespace) > window.NamespaceBytesMax ||
		len(k.Identifier) > window.IdentifierBytesMax
}
