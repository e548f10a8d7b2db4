package controlplane

import (
	"fmt"
	"math"
)

// decisionsMin is how many decisions a share of them is taken from, at the least.
const decisionsMin = 100

// Guardrails say how much worse the regions of a stage may do than before it. They are
// held against [HealthRates], all the time while a stage bakes.
type Guardrails struct {
	// ErrorsPerMinute bounds the failed flushes, imports and readings of settings of a
	// node a minute. Default: twice the baseline, and 6 at the least. (Heartbeats count
	// failures and not attempts, so there is no ratio.)
	ErrorsPerMinute Ceiling `json:"errors_per_minute"`

	// RowsPerSecond bounds the rows that a node writes to and reads from MySQL a
	// second. Default: three times the baseline, and 1,000 at the least.
	RowsPerSecond Ceiling `json:"rows_per_second"`

	// DegradedShare bounds the share of decisions that were made without the origin's
	// answer they wanted, 0 to 1. Default: twice the baseline, and 0.01 at the least.
	DegradedShare Ceiling `json:"degraded_share"`

	// ConvergenceMs bounds the convergence delay of the slowest node and LatencyUs the
	// decision latency (99th percentile) of the slowest node, where nodes report them.
	// Defaults: three times the baseline, and 30,000 ms and 1,000 µs at the least.
	ConvergenceMs Ceiling `json:"convergence_ms"`
	LatencyUs     Ceiling `json:"latency_us"`

	// DeniedShareShift bounds by how much the share of denied decisions may differ from
	// the baseline, up or down, 0 to 1; default 0.2. 1 turns it off.
	DeniedShareShift float64 `json:"denied_share_shift"`

	// NodesLostShare bounds the share of nodes that are not heard of any more, 0 to 1;
	// default 0.5, and 1 turns it off. Cost that nodes dropped is never borne.
	NodesLostShare float64 `json:"nodes_lost_share"`

	// Queries are what a Prometheus measures beside heartbeats; default none.
	Queries []QueryRail `json:"queries,omitempty"` // at most QueryRailsMax
}

// Ceiling bounds a figure: it is broken by more than Factor times the baseline, unless
// that is still not more than Least.
type Ceiling struct {
	Factor float64 `json:"factor"` // 1 to 1,000
	Least  float64 `json:"least"`  // 0 or more
	Off    bool    `json:"off,omitempty"`
}

// DefaultGuardrails are the defaults named at the fields.
func DefaultGuardrails() Guardrails {
	return Guardrails{
		ErrorsPerMinute:  Ceiling{Factor: 2, Least: 6},
		RowsPerSecond:    Ceiling{Factor: 3, Least: 1000},
		DegradedShare:    Ceiling{Factor: 2, Least: 0.01},
		ConvergenceMs:    Ceiling{Factor: 3, Least: 30_000},
		LatencyUs:        Ceiling{Factor: 3, Least: 1000},
		DeniedShareShift: 0.2,
		NodesLostShare:   0.5,
	}
}

// Validate reports the first field outside its bounds.
func (g Guardrails) Validate() error {
	for _, c := range g.ceilings(HealthRates{}, HealthRates{}) {
		if !c.ceiling.Off && !(c.ceiling.Factor >= 1 && c.ceiling.Factor <= 1000) { // also refuses NaN
			return fmt.Errorf("%w: guardrail %s: factor is %v (1 to 1000)", ErrInvalid, c.field, c.ceiling.Factor)
		}
		if !(c.ceiling.Least >= 0) || math.IsInf(c.ceiling.Least, 1) {
			return fmt.Errorf("%w: guardrail %s: least is %v (0 or more)", ErrInvalid, c.field, c.ceiling.Least)
		}
	}
	if !(g.DeniedShareShift >= 0 && g.DeniedShareShift <= 1) {
		return fmt.Errorf("%w: guardrail denied_share_shift is %v (0 to 1)", ErrInvalid, g.DeniedShareShift)
	}
	if !(g.NodesLostShare >= 0 && g.NodesLostShare <= 1) {
		return fmt.Errorf("%w: guardrail nodes_lost_share is %v (0 to 1)", ErrInvalid, g.NodesLostShare)
	}
	return validateQueries(g.Queries)
}

// held is a ceiling with the figures that are held against it; nil is not measured.
type held struct {
	field, words  string
	ceiling       Ceiling
	baseline, now *float64
}

func (g Guardrails) ceilings(baseline, now HealthRates) []held {
	return []held{
		{"errors_per_minute", "failed flushes and imports a node and minute", g.ErrorsPerMinute, baseline.ErrorsPerMinute, now.ErrorsPerMinute},
		{"rows_per_second", "MySQL rows a node and second", g.RowsPerSecond, baseline.RowsPerSecond, now.RowsPerSecond},
		{"degraded_share", "share of decisions without the origin", g.DegradedShare, baseline.DegradedShare, now.DegradedShare},
		{"convergence_ms", "convergence delay in ms", g.ConvergenceMs, baseline.ConvergenceMs, now.ConvergenceMs},
		{"latency_us", "decision latency in µs", g.LatencyUs, baseline.LatencyUs, now.LatencyUs},
	}
}

// Breach says in one line which guardrail is broken, and by what; empty: none. What was
// not measured breaks nothing.
func (g Guardrails) Breach(baseline, now HealthRates) string {
	if now.DroppedCost > 0 {
		return fmt.Sprintf("nodes dropped accepted cost: %d", now.DroppedCost)
	}
	if all := now.Nodes + now.NodesLost; all > 0 && g.NodesLostShare < 1 && float64(now.NodesLost) > g.NodesLostShare*float64(all) {
		return fmt.Sprintf("nodes not heard of any more: %d of %d, more than a share of %s", now.NodesLost, all, figure(g.NodesLostShare))
	}
	for _, h := range g.ceilings(baseline, now) {
		if h.now == nil || h.ceiling.Off {
			continue
		}
		was, most := 0.0, h.ceiling.Least
		if h.baseline != nil {
			was = *h.baseline
			most = max(most, h.ceiling.Factor*was)
		}
		if *h.now > most {
			return fmt.Sprintf("%s: %s, more than %s (before the stage %s)", h.words, figure(*h.now), figure(most), figure(was))
		}
	}
	if baseline.DeniedShare != nil && now.DeniedShare != nil && g.DeniedShareShift < 1 {
		if shift := math.Abs(*now.DeniedShare - *baseline.DeniedShare); shift > g.DeniedShareShift {
			return fmt.Sprintf("share of denied decisions: %s, off by more than %s (before the stage %s)", figure(*now.DeniedShare), figure(g.DeniedShareShift), figure(*baseline.DeniedShare))
		}
	}
	return ""
}

// figure is a number with the precision that people want of it.
func figure(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}
