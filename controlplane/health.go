package controlplane

import "time"

// HealthRates are how nodes did in a time. nil is not measured.
type HealthRates struct {
	Nodes     int `json:"nodes"`      // that were heard of
	NodesLost int `json:"nodes_lost"` // that were live, and are not

	ErrorsPerMinute *float64 `json:"errors_per_minute,omitempty"` // a node
	RowsPerSecond   *float64 `json:"rows_per_second,omitempty"`   // a region
	DegradedShare   *float64 `json:"degraded_share,omitempty"`
	DeniedShare     *float64 `json:"denied_share,omitempty"`
	ConvergenceMs   *float64 `json:"convergence_ms,omitempty"` // the slowest relay's
	LatencyUs       *float64 `json:"latency_us,omitempty"`     // the slowest node's
	DroppedCost     int64    `json:"dropped_cost,omitempty"`
}

// ratesOf are the rates of nodes that were heard of for the time of sum, all together. The
// time of a node counts as least where it is shorter.
func ratesOf(sum Span, nodes int, least time.Duration, decisionsLeast int64) HealthRates {
	rates := HealthRates{Nodes: nodes, DroppedCost: sum.of(TallyDropped)}
	if sum[0] <= 0 {
		return HealthRates{}
	}
	spoken := max(time.Duration(sum[0])*time.Millisecond, time.Duration(nodes)*least)
	rates.ErrorsPerMinute = quotient(float64(sum.of(TallyErrors)), spoken.Minutes())
	rates.RowsPerSecond = quotient(float64(sum.of(TallyRows)), spoken.Seconds()/float64(nodes))
	if decisions := sum.of(TallyDecisions); decisions >= decisionsLeast {
		rates.DegradedShare = quotient(float64(sum.of(TallyDegraded)), float64(decisions))
		rates.DeniedShare = quotient(float64(sum.of(TallyDenied)), float64(decisions))
	}
	return rates
}

// worstOf shows several regions in one line: the sum of their nodes and the worst of their
// figures.
func worstOf(regions []HealthRates) (all HealthRates) {
	for _, r := range regions {
		all.Nodes += r.Nodes
		all.NodesLost += r.NodesLost
		all.DroppedCost += r.DroppedCost
		all.ErrorsPerMinute = larger(all.ErrorsPerMinute, r.ErrorsPerMinute)
		all.RowsPerSecond = larger(all.RowsPerSecond, r.RowsPerSecond)
		all.DegradedShare = larger(all.DegradedShare, r.DegradedShare)
		all.DeniedShare = larger(all.DeniedShare, r.DeniedShare)
		all.ConvergenceMs = larger(all.ConvergenceMs, r.ConvergenceMs)
		all.LatencyUs = larger(all.LatencyUs, r.LatencyUs)
	}
	return all
}

func quotient(a, b float64) *float64 {
	q := a / b
	return &q
}
