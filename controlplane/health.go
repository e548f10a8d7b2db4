package controlplane

import (
	"slices"
	"time"
)

// healthNodesMax is how many nodes of a stage have their health compared: snapshots are
// part of a durable document. Larger stages are sampled evenly.
const healthNodesMax = 300

// NodeFigures are one node's totals as its heartbeat has them.
type NodeFigures struct {
	ID        string `json:"id"`
	StartedMs int64  `json:"started_ms"` // of its process: another one counts from 0 again
	SentMs    int64  `json:"sent_ms"`
	Decisions int64  `json:"decisions"`
	Denied    int64  `json:"denied"`
	Degraded  int64  `json:"degraded"`
	Dropped   int64  `json:"dropped"`
	Errors    int64  `json:"errors"` // of flushes, imports and settings
	Rows      int64  `json:"rows"`   // flushed and imported
}

// HealthSnapshot is the health of a stage's live nodes at one moment.
type HealthSnapshot struct {
	Nodes []NodeFigures `json:"nodes"`

	// The slowest node's, nil where none reports them.
	ConvergenceMs *float64 `json:"convergence_ms,omitempty"`
	LatencyUs     *float64 `json:"latency_us,omitempty"`
}

// HealthRates are how nodes did between two snapshots. nil is not measured.
type HealthRates struct {
	Nodes     int `json:"nodes"`      // that were heard of again
	NodesLost int `json:"nodes_lost"` // that were live, and are not

	ErrorsPerMinute *float64 `json:"errors_per_minute,omitempty"` // a node
	RowsPerSecond   *float64 `json:"rows_per_second,omitempty"`   // a node
	DegradedShare   *float64 `json:"degraded_share,omitempty"`
	DeniedShare     *float64 `json:"denied_share,omitempty"`
	ConvergenceMs   *float64 `json:"convergence_ms,omitempty"`
	LatencyUs       *float64 `json:"latency_us,omitempty"`
	DroppedCost     int64    `json:"dropped_cost,omitempty"`
}

// TakeHealth is the snapshot of a scope's live nodes: of those that are in like, when
// it is given, and else of up to healthNodesMax.
func TakeHealth(fleet Fleet, scope RolloutScope, like *HealthSnapshot) HealthSnapshot {
	var s HealthSnapshot
	var live []Node
	for _, n := range fleet.Nodes {
		if n.Live && scope.Has(n.Region) {
			live = append(live, n)
			s.ConvergenceMs = larger(s.ConvergenceMs, n.Reported.ConvergenceMs)
			s.LatencyUs = larger(s.LatencyUs, n.Reported.LatencyUs)
		}
	}
	for _, n := range sample(live, like) {
		h := n.Health
		s.Nodes = append(s.Nodes, NodeFigures{
			ID: n.NodeID, StartedMs: n.StartedAtMs, SentMs: n.SentAtMs,
			Decisions: h.AllowedTotal + h.DeniedTotal + h.ShadowedTotal, Denied: h.DeniedTotal + h.ShadowedTotal,
			Degraded: h.DegradedTotal, Dropped: h.DroppedCost,
			Errors: h.FlushErrors + h.ImportErrors + h.SettingsErrors, Rows: h.FlushedRows + h.ImportedRows,
		})
	}
	return s
}

// sample takes the nodes of an earlier snapshot again, or else healthNodesMax of them
// at equal distances, so that every region has its share.
func sample(nodes []Node, like *HealthSnapshot) []Node {
	if like == nil {
		most := min(len(nodes), healthNodesMax)
		taken := make([]Node, most)
		for i := range taken {
			taken[i] = nodes[i*len(nodes)/most]
		}
		return taken
	}
	known := make(map[string]bool, len(like.Nodes))
	for _, n := range like.Nodes {
		known[n.ID] = true
	}
	return slices.DeleteFunc(nodes, func(n Node) bool { return !known[n.NodeID] })
}

// Rates are how the nodes of s did until after was taken. A node that has not spoken
// since is not counted, and neither is one that came meanwhile.
func (s HealthSnapshot) Rates(after HealthSnapshot) HealthRates {
	now := make(map[string]NodeFigures, len(after.Nodes))
	for _, n := range after.Nodes {
		now[n.ID] = n
	}
	var rates HealthRates
	var sum NodeFigures
	var spoken time.Duration // of all nodes together
	for _, was := range s.Nodes {
		is, live := now[was.ID]
		if !live {
			rates.NodesLost++
			continue
		}
		if is.SentMs <= was.SentMs {
			continue
		}
		if is.StartedMs != was.StartedMs { // it counts anew
			was = NodeFigures{SentMs: was.SentMs}
		}
		rates.Nodes++
		spoken += time.Duration(is.SentMs-was.SentMs) * time.Millisecond
		sum.Decisions += max(0, is.Decisions-was.Decisions)
		sum.Denied += max(0, is.Denied-was.Denied)
		sum.Degraded += max(0, is.Degraded-was.Degraded)
		sum.Dropped += max(0, is.Dropped-was.Dropped)
		sum.Errors += max(0, is.Errors-was.Errors)
		sum.Rows += max(0, is.Rows-was.Rows)
	}
	rates.ConvergenceMs, rates.LatencyUs, rates.DroppedCost = after.ConvergenceMs, after.LatencyUs, sum.Dropped
	if spoken > 0 {
		rates.ErrorsPerMinute = quotient(float64(sum.Errors), spoken.Minutes())
		rates.RowsPerSecond = quotient(float64(sum.Rows), spoken.Seconds())
	}
	if sum.Decisions >= decisionsMin {
		rates.DegradedShare = quotient(float64(sum.Degraded), float64(sum.Decisions))
		rates.DeniedShare = quotient(float64(sum.Denied), float64(sum.Decisions))
	}
	return rates
}

func quotient(a, b float64) *float64 {
	q := a / b
	return &q
}

func larger(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}
