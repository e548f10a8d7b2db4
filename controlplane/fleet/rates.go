package fleet

import "time"

// HealthRates are figures of nodes in a span of time; nil: not measured.
type HealthRates struct {
	Nodes     int `json:"nodes"`      // nodes with a heartbeat
	NodesLost int `json:"nodes_lost"` // nodes that were live, but no longer are

	ErrorsPerMinute *float64 `json:"errors_per_minute,omitempty"` // per node
	RowsPerSecond   *float64 `json:"rows_per_second,omitempty"`   // per region
	DegradedShare   *float64 `json:"degraded_share,omitempty"`
	DeniedShare     *float64 `json:"denied_share,omitempty"`
	ConvergenceMs   *float64 `json:"convergence_ms,omitempty"` // the slowest relay's
	LatencyUs       *float64 `json:"latency_us,omitempty"`     // the slowest node's
	DroppedCost     int64    `json:"dropped_cost,omitempty"`
}

// RatesOf returns the rates of nodes whose heartbeats together cover the time of sum. If a node's time is shorter than
// least, it counts as least.
func RatesOf(sum Span, nodes int, least time.Duration, decisionsLeast int64) HealthRates {
	rates := HealthRates{Nodes: nodes, DroppedCost: sum.Of(TallyDropped)}
	if sum[0] <= 0 {
		return HealthRates{}
	}
	spoken := max(time.Duration(sum[0])*time.Millisecond, time.Duration(nodes)*least)
	rates.ErrorsPerMinute = Quotient(float64(sum.Of(TallyErrors)), spoken.Minutes())
	rates.RowsPerSecond = Quotient(float64(sum.Of(TallyRows)), spoken.Seconds()/float64(nodes))
	if decisions := sum.Of(TallyDecisions); decisions >= decisionsLeast {
		rates.DegradedShare = Quotient(float64(sum.Of(TallyDegraded)), float64(decisions))
		rates.DeniedShare = Quotient(float64(sum.Of(TallyDenied)), float64(decisions))
	}
	return rates
}

// WorstOf sums up several regions: the sum of their nodes and the worst of their figures.
func WorstOf(regions []HealthRates) (all HealthRates) {
	for _, r := range regions {
		all.Nodes += r.Nodes
		all.NodesLost += r.NodesLost
		all.DroppedCost += r.DroppedCost
		all.ErrorsPerMinute = Larger(all.ErrorsPerMinute, r.ErrorsPerMinute)
		all.RowsPerSecond = Larger(all.RowsPerSecond, r.RowsPerSecond)
		all.DegradedShare = Larger(all.DegradedShare, r.DegradedShare)
		all.DeniedShare = Larger(all.DeniedShare, r.DeniedShare)
		all.ConvergenceMs = Larger(all.ConvergenceMs, r.ConvergenceMs)
		all.LatencyUs = Larger(all.LatencyUs, r.LatencyUs)
	}
	return all
}

// Quotient returns a divided by b.
func Quotient(a, b float64) *float64 {
	return new(a / b)
}

// Larger returns the larger of two figures; nil: not measured.
func Larger(a, b *float64) *float64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}
